"""DescribeLogDirs, API key 35: the sizes of logs and log directories (KIP-113).

v2 is flexible.
v3 adds an error for the whole response.
v4 returns the size of the volume (KIP-827).
v5 returns whether the directory is cordoned (KIP-1066).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class DescribableLogDirTopic:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@message(ApiKey.DESCRIBE_LOG_DIRS, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    """The partitions to describe."""

    # None: all
    topics: list[DescribableLogDirTopic] | None = wire(array(DescribableLogDirTopic), nullable="0+")


@struct
class DescribeLogDirsPartition:
    """One partition."""

    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)  # bytes
    # lag behind the high watermark, or of a future log behind the current one
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOL)  # a future log that will replace the current one


@struct
class DescribeLogDirsTopic:
    """The partitions of one topic here."""

    name: str = wire(STRING)
    partitions: list[DescribeLogDirsPartition] = wire(array(DescribeLogDirsPartition))


@struct
class DescribeLogDirsResult:
    """One directory."""

    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: list[DescribeLogDirsTopic] = wire(array(DescribeLogDirsTopic))
    # of the volume; -1: unknown (KIP-827)
    total_bytes: int = wire(INT64, "4+", default=-1, ignorable=True)
    # of the volume; -1: unknown (KIP-827)
    usable_bytes: int = wire(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = wire(BOOL, "5+", ignorable=True)  # KIP-1066


@message(ApiKey.DESCRIBE_LOG_DIRS, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    """The directories."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = wire(array(DescribeLogDirsResult))

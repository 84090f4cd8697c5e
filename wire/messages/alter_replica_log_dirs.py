"""AlterReplicaLogDirs, API key 34: move replicas to other directories of a broker (KIP-113).

v2 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, array, message, struct, wire


@struct
class AlterReplicaLogDirTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@struct
class AlterReplicaLogDir:
    """A directory and the replicas to move to it."""

    path: str = wire(STRING)
    topics: list[AlterReplicaLogDirTopic] = wire(array(AlterReplicaLogDirTopic))


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """The new directories of replicas."""

    dirs: list[AlterReplicaLogDir] = wire(array(AlterReplicaLogDir))


@struct
class AlterReplicaLogDirPartitionResult:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class AlterReplicaLogDirTopicResult:
    """The outcomes for one topic."""

    topic_name: str = wire(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = wire(
        array(AlterReplicaLogDirPartitionResult)
    )


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    results: list[AlterReplicaLogDirTopicResult] = wire(array(AlterReplicaLogDirTopicResult))

"""DescribeLogDirs 1-5: data directories and the partitions in them (KIP-113).

v3 error code, v4 size of the volume (KIP-827), v5 cordoned directories (KIP-1066).
Left out: cordons and moves between directories, since a broker has one directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.actors.failures import error_code_of
from raylog.actors.gateway.context import RequestContext
from raylog.actors.names import broker_name
from raylog.actors.ports import LogDirStatus, PartitionStatus
from raylog.wire.errors import ErrorCode, KafkaStorageError
from raylog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor

TIMEOUT_MS = 30_000


async def describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Ask the broker for its directory, tell the partitions that were asked for."""
    directories = await log_dirs(context.gateway)
    return DescribeLogDirsResponse(
        results=[_result(directory, request.topics) for directory in directories]
    )


async def log_dirs(gateway: GatewayActor) -> list[LogDirStatus]:
    """The directories of this gateway's broker, and what is in them."""
    found: list[LogDirStatus] = await gateway.runtime.call(
        broker_name(gateway.cluster_id, gateway.broker_id),
        "describe_log_dirs",
        timeout_ms=TIMEOUT_MS,
    )
    return found


def _result(
    directory: LogDirStatus, asked: list[DescribableLogDirTopic] | None
) -> DescribeLogDirsResult:
    wanted = None if asked is None else {one.topic: set(one.partitions) for one in asked}
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for status in sorted(directory.partitions, key=lambda one: (one.topic, one.partition)):
        if wanted is None or status.partition in wanted.get(status.topic, ()):
            topics.setdefault(status.topic, []).append(_partition(status))
    failure = KafkaStorageError(f"{directory.path} is offline")
    return DescribeLogDirsResult(
        error_code=int(error_code_of(failure) if directory.offline else ErrorCode.NONE),
        log_dir=directory.path,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )


def _partition(status: PartitionStatus) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=status.partition,
        partition_size=status.size_bytes,
        offset_lag=max(0, status.log_end_offset - status.high_watermark),
    )

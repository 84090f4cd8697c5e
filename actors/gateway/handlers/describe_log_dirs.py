"""DescribeLogDirs 1-5: data directories and the partitions in them (KIP-113).

v3 adds an error code, v4 the size of the volume (KIP-827), v5 cordoned directories (KIP-1066). Left
out: cordons and moves between directories, since a broker has only one directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.actors.common_messages import LogDirStatus, PartitionStatus
from raylog.actors.failures import error_code_of
from raylog.actors.gateway.context import RequestContext
from raylog.actors.names import broker_name
from raylog.actors.remote import Broker, call
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
    """Describe the broker's directory, with the requested partitions."""
    directories = await log_dirs(context.gateway)
    return DescribeLogDirsResponse(
        results=[_result(directory, request.topics) for directory in directories]
    )


async def log_dirs(gateway: GatewayActor) -> list[LogDirStatus]:
    """Return the directories of this gateway's broker, and their contents."""
    return await call(
        gateway.runtime,
        broker_name(gateway.cluster_id, gateway.broker_id),
        Broker.describe_log_dirs,
        timeout_ms=TIMEOUT_MS,
    )


def _result(
    directory: LogDirStatus, request: list[DescribableLogDirTopic] | None
) -> DescribeLogDirsResult:
    wanted = None if request is None else {one.topic: set(one.partitions) for one in request}
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
        offset_lag=max(0, status.high_watermark - status.log_end_offset),
    )

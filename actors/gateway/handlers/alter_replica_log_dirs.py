"""AlterReplicaLogDirs 1-2: moves replicas between directories of a broker (KIP-113).

Left out: moves, since a broker has only one directory.
"""

from __future__ import annotations

from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.handlers.describe_log_dirs import log_dirs
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Report for each partition whether it is where the last request for it puts it."""
    found = {
        one.path: {(part.topic, part.partition) for part in one.partitions}
        for one in await log_dirs(context.gateway)
    }
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        here = found.get(directory.path)
        for topic in directory.topics:
            answered = codes.setdefault(topic.name, {})
            for partition in topic.partitions:
                if here is None:
                    answered[partition] = ErrorCode.LOG_DIR_NOT_FOUND
                elif (topic.name, partition) in here:
                    answered[partition] = ErrorCode.NONE
                else:
                    answered[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(code))
                    for index, code in partitions.items()
                ],
            )
            for name, partitions in codes.items()
        ]
    )

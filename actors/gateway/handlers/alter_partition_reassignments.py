"""AlterPartitionReassignments 0-1: partitions move to other brokers, or stop moving (KIP-455).

v1 can forbid another number of replicas (KIP-860). The answer comes when the move is committed,
and this gateway sees it; the move itself takes as long as the data needs.
"""

from __future__ import annotations

from itertools import islice

from raylog.actors.controller.api import AlterReassignments, ReassignOutcome, ReassignPartition
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.replica_changes import alter_reassignments
from raylog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Have the controller move them; each partition succeeds or fails on its own.

    The answer has the request's topics and partitions, in its order.
    """
    asked = AlterReassignments(
        [_asked(topic.name, one) for topic in request.topics for one in topic.partitions],
        request.allow_replication_factor_change,
    )
    outcomes = iter(await alter_reassignments(context.gateway, asked, request.timeout_ms))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(one) for one in islice(outcomes, len(topic.partitions))],
            )
            for topic in request.topics
        ],
    )


def _asked(name: str, one: ReassignablePartition) -> ReassignPartition:
    replicas = None if one.replicas is None else tuple(one.replicas)
    return ReassignPartition(name, one.partition_index, replicas)


def _result(outcome: ReassignOutcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=outcome.partition,
        error_code=int(outcome.error),
        error_message=outcome.message,
    )

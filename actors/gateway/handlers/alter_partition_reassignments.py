"""AlterPartitionReassignments 0-1: starts or cancels moves of partitions (KIP-455).

v1 can forbid changes of the number of replicas (KIP-860). The response is sent when the move is
committed and this gateway sees it. The move itself takes as long as copying the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from raylog.actors.controller.messages import AlterReassignments, ReassignOutcome, ReassignPartition
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.replica_changes import alter_reassignments
from raylog.wire.errors import PolicyViolation
from raylog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

REASSIGNED_MAX = 10_000
"""Maximum partitions per request: each takes a record, and Kafka's controller accepts no more."""


async def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Start or cancel moves through the controller; each partition succeeds or fails independently.

    The response has the topics and partitions of the request, in the same order.
    """
    if sum(len(topic.partitions) for topic in request.topics) > REASSIGNED_MAX:
        raise PolicyViolation("Excessively large number of partitions per request.")
    partitions: list[ReassignPartition] = []
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[],
    )

    def read() -> Iterator[int]:
        for topic in request.topics:
            for one in topic.partitions:
                partitions.append(_asked(topic.name, one))
                yield 1 + len(one.replicas or ())
            yield 1

    def tell(outcomes: Iterator[ReassignOutcome]) -> Iterator[int]:
        for topic in request.topics:
            result = ReassignableTopicResponse(name=topic.name, partitions=[])
            response.responses.append(result)
            for one in islice(outcomes, len(topic.partitions)):
                result.partitions.append(_result(one))
                yield 1
            yield 1

    await context.turns(read())
    asked = AlterReassignments(partitions, request.allow_replication_factor_change)
    outcomes = await alter_reassignments(context.gateway, asked, request.timeout_ms)
    await context.turns(tell(iter(outcomes)))
    return response


def _asked(name: str, one: ReassignablePartition) -> ReassignPartition:
    replicas = None if one.replicas is None else tuple(one.replicas)
    return ReassignPartition(name, one.partition_index, replicas)


def _result(outcome: ReassignOutcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=outcome.partition,
        error_code=int(outcome.error),
        error_message=outcome.message,
    )

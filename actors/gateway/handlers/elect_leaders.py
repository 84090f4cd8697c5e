"""ElectLeaders 0-2: leaders elected by hand, the preferred ones or, unclean, any (KIP-460).

v0 knows preferred elections only, v2 is flexible. The answer comes when the elections are
committed, and this gateway sees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from raylog.actors.controller.api import ElectLeaders, ElectOutcome
from raylog.actors.gateway.answers import attempt_async, by_topic
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.replica_changes import elect_leaders as elect
from raylog.wire.errors import InvalidRequest
from raylog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

ERROR_CODE_SINCE = 1
_UNCLEAN = {0: False, 1: True}
"""By election type."""


async def elect_leaders(
    context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Have the controller elect; each partition succeeds or fails on its own."""
    return await attempt_async(_elected(context, request), partial(_refused, context, request))


async def _elected(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    unclean = _UNCLEAN.get(request.election_type)
    if unclean is None:
        raise InvalidRequest(f"Unknown election type {request.election_type}")
    partitions = None if request.topic_partitions is None else list(_partitions(request))
    topics = list(context.gateway.cluster.image.topic_ids)
    outcomes = await elect(context.gateway, ElectLeaders(unclean, partitions, request.timeout_ms))
    if request.topic_partitions is None:
        found = by_topic(outcomes)
        told = [(name, found.get(name, [])) for name in dict.fromkeys([*topics, *found])]
    else:
        rest = iter(outcomes)
        told = [
            (one.topic, list(islice(rest, len(one.partitions)))) for one in request.topic_partitions
        ]
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=[_result(one) for one in outcomes])
            for name, outcomes in told
        ]
    )


def _partitions(request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    for topic in request.topic_partitions or ():
        for index in topic.partitions:
            yield topic.topic, index


def _result(outcome: ElectOutcome) -> PartitionResult:
    return PartitionResult(
        partition_id=outcome.partition,
        error_code=int(outcome.error),
        error_message=outcome.message,
    )


def _refused(
    context: RequestContext, request: ElectLeadersRequest, code: int, message: str | None
) -> ElectLeadersResponse:
    """All failed: version 0 has no other place for it than beside each partition."""
    return ElectLeadersResponse(
        error_code=code if context.version >= ERROR_CODE_SINCE else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )

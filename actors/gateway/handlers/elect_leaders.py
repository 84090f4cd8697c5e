"""ElectLeaders 0-2: elects preferred leaders, or any live replica if unclean (KIP-460).

v0 has only preferred elections, v2 is flexible. The response is sent when the elections are
committed and this gateway sees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from raylog.actors.controller.messages import ElectLeaders, ElectOutcome
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
    """Elect leaders through the controller; each partition succeeds or fails independently."""
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
        outcomes_by_topic = [
            (name, found.get(name, [])) for name in dict.fromkeys([*topics, *found])
        ]
    else:
        rest = iter(outcomes)
        outcomes_by_topic = [
            (one.topic, list(islice(rest, len(one.partitions)))) for one in request.topic_partitions
        ]
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=[_result(one) for one in outcomes])
            for name, outcomes in outcomes_by_topic
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
    """Report that everything failed, which version 0 can do only for each partition."""
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

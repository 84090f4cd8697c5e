"""AddRaftVoter 0-1: makes a broker's copy of the metadata log a voter (KIP-853).

v1 can be answered before the new voter set is committed (KIP-1186). The listeners are ignored,
because voters live in brokers, which the cluster can reach.
"""

from __future__ import annotations

from raylog.actors.controller.messages import AddVoter
from raylog.actors.gateway.context import RequestContext
from raylog.actors.remote import Controller
from raylog.wire.errors import InconsistentClusterId, InvalidRequest
from raylog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from raylog.wire.uuids import ZERO_UUID, to_base64


async def add_raft_voter(
    context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    """Make the copy a voter, once it has caught up.

    Raises DuplicateVoter, RequestTimedOut if the copy does not catch up in time or another change
    is in progress, and the errors of `require_cluster`.
    """
    require_cluster(context, request.cluster_id)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise InvalidRequest("Add voter request didn't include a valid voter")
    asked = AddVoter(
        request.voter_id,
        to_base64(request.voter_directory_id),
        request.timeout_ms * 3 // 4,  # the rest is for the commit and the response
        request.ack_when_committed,
    )
    await context.gateway.controller.ask(Controller.add_voter, asked, timeout_ms=request.timeout_ms)
    return AddRaftVoterResponse(error_message=None)


def require_cluster(context: RequestContext, cluster_id: str | None) -> None:
    """Raise InconsistentClusterId if the request is meant for another cluster."""
    own = context.gateway.cluster_id
    if cluster_id not in (None, own):
        raise InconsistentClusterId(
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        )

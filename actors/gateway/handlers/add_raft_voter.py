"""AddRaftVoter 0-1: a broker's copy of the metadata log is to vote (KIP-853).

v1 can be answered before the new set of voters is committed (KIP-1186). The listeners are not
looked at: voters live in brokers, which the cluster knows how to reach.
"""

from __future__ import annotations

from raylog.actors.controller.api import AddVoter
from raylog.actors.gateway.context import RequestContext
from raylog.wire.errors import InconsistentClusterId, InvalidRequest
from raylog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from raylog.wire.uuids import ZERO_UUID, to_base64


async def add_raft_voter(
    context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    """Have the controller bring the copy level and let it vote.

    Raises DuplicateVoter, RequestTimedOut if the copy does not get level in time or another change
    is under way, and what `require_cluster` raises.
    """
    require_cluster(context, request.cluster_id)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise InvalidRequest("Add voter request didn't include a valid voter")
    asked = AddVoter(
        request.voter_id,
        to_base64(request.voter_directory_id),
        request.timeout_ms * 3 // 4,  # what is left is for the commit, and for telling why not
        request.ack_when_committed,
    )
    await context.gateway.controller.ask("add_voter", asked, request.timeout_ms)
    return AddRaftVoterResponse(error_message=None)


def require_cluster(context: RequestContext, cluster_id: str | None) -> None:
    """Raise InconsistentClusterId for a request that another cluster is meant by."""
    own = context.gateway.cluster_id
    if cluster_id not in (None, own):
        raise InconsistentClusterId(
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        )

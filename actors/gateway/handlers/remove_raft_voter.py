"""RemoveRaftVoter 0: a copy of the metadata log is to vote no more (KIP-853).

It may be one that is lost; then another directory of the same broker can be added.
"""

from __future__ import annotations

from raylog.actors.controller.api import RemoveVoter
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.handlers.add_raft_voter import require_cluster
from raylog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from raylog.wire.uuids import to_base64

TIMEOUT_MS = 30_000
"""The request has no deadline of its own."""


async def remove_raft_voter(
    context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """Have the controller take the vote away; raises VoterNotFound, for the last voter too."""
    require_cluster(context, request.cluster_id)
    asked = RemoveVoter(request.voter_id, to_base64(request.voter_directory_id))
    await context.gateway.controller.ask("remove_voter", asked, TIMEOUT_MS)
    return RemoveRaftVoterResponse(error_message=None)

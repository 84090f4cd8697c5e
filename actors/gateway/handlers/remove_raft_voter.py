"""RemoveRaftVoter 0: removes a copy of the metadata log from the voters (KIP-853).

The copy may be lost. Afterwards another directory of the same broker can be added.
"""

from __future__ import annotations

from raylog.actors.controller.messages import RemoveVoter
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.handlers.add_raft_voter import require_cluster
from raylog.actors.remote import Controller
from raylog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from raylog.wire.uuids import to_base64

TIMEOUT_MS = 30_000
"""For requests without their own deadline."""


async def remove_raft_voter(
    context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """Remove the voter through the controller; raises VoterNotFound, also for the last one."""
    require_cluster(context, request.cluster_id)
    asked = RemoveVoter(request.voter_id, to_base64(request.voter_directory_id))
    await context.gateway.controller.ask(Controller.remove_voter, asked, timeout_ms=TIMEOUT_MS)
    return RemoveRaftVoterResponse(error_message=None)

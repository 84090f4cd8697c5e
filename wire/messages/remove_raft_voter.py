"""RemoveRaftVoter, API key 81: remove a voter of the metadata log (KIP-853)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, UUID, message, wire


@message(ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    """The voter, by its id and the directory of its copy."""

    cluster_id: str | None = wire(STRING, nullable="0+")
    voter_id: int = wire(INT32)
    voter_directory_id: bytes = wire(UUID)


@message(ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    """The outcome."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", ignorable=True)

"""AddRaftVoter, API key 80: add a voter of the metadata log (KIP-853).

v1 can return before the new voter set is committed (KIP-1186).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    array,
    message,
    struct,
    wire,
)


@struct
class Listener:
    """One address of the new voter."""

    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)


@message(ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    """The voter, by its id and the directory of its copy."""

    cluster_id: str | None = wire(STRING, nullable="0+")
    timeout_ms: int = wire(INT32)
    voter_id: int = wire(INT32)
    voter_directory_id: bytes = wire(UUID)
    listeners: list[Listener] = wire(array(Listener))
    ack_when_committed: bool = wire(BOOL, "1+", default=True)  # KIP-1186


@message(ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    """The outcome."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", ignorable=True)

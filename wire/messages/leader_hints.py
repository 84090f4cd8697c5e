"""What Produce, Fetch and their share-group kin say about a leader that moved (KIP-951)."""

from raylog.wire.schema import INT32, STRING, struct, wire


@struct
class LeaderIdAndEpoch:
    """Who leads now; -1 is unknown."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@struct
class NodeEndpoint:
    """Where a leader can be reached, at the listener the client connected to."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, default=None, nullable="0+")

"""The current leader in responses of Produce, Fetch and the share group APIs (KIP-951)."""

from raylog.wire.schema import INT32, STRING, struct, wire


@struct
class LeaderIdAndEpoch:
    """The current leader; -1 if it is unknown."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@struct
class NodeEndpoint:
    """The address of a leader on the client's listener."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, default=None, nullable="0+")

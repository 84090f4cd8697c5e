"""FindCoordinator, API key 10: the coordinator of a group, transactional id or share partition.

v1 also finds transaction coordinators (KIP-98).
v3 is flexible.
v4 accepts several keys (KIP-699).
v5 may return TRANSACTION_ABORTABLE (KIP-890).
v6 also finds share coordinators (KIP-932).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT8, INT16, INT32, STRING, array, message, struct, wire


@message(ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """The keys to find coordinators for. Up to v3 there is one."""

    key: str = wire(STRING, "0-3")
    key_type: int = wire(INT8, "1+")  # 0 group, 1 transactional id, 2 share partition
    coordinator_keys: list[str] = wire(array(STRING), "4+")  # KIP-699


@struct
class Coordinator:
    """The coordinator of one key."""

    key: str = wire(STRING)
    node_id: int = wire(INT32)  # -1: none
    host: str = wire(STRING)
    port: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", ignorable=True)


@message(ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The coordinators. Up to v3 the outer fields hold the only one."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0-3")
    error_message: str | None = wire(STRING, "1-3", nullable="0+", ignorable=True)
    node_id: int = wire(INT32, "0-3")  # -1: none
    host: str = wire(STRING, "0-3")
    port: int = wire(INT32, "0-3")
    coordinators: list[Coordinator] = wire(array(Coordinator), "4+")  # KIP-699

"""Heartbeat, API key 12: keep a member of a classic group alive.

v1 returns the throttle time.
v3 supports static members (KIP-345).
v4 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, message, wire


@message(ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Sent every `heartbeat.interval.ms`."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, "3+", default=None, nullable="0+")


@message(ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)

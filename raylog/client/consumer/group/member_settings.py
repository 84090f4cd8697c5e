"""Settings of a group member, for both protocols."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """Settings of one member."""

    group_id: str
    member_id: str = ""
    """Chosen once by the client (KIP-1082); in classic groups the coordinator chooses."""
    session_timeout_ms: int = 45_000
    """Classic groups only."""
    heartbeat_interval_ms: int = 3_000
    """Classic groups only."""
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    group_instance_id: str | None = None
    rack: str | None = None
    remote_assignor: str | None = None
    """KIP-848 groups only."""

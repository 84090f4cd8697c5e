"""What the broker's configuration says about classic groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """Kafka's settings under their own names, and its defaults. All times in ms."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    """A group's first rebalance waits so long for more members, again and again as they come."""
    group_max_size: int = 2_147_483_647
    new_member_join_timeout_ms: int = 300_000
    """A new member that waits in its first join cannot be heard; after so long it is out."""

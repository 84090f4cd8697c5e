"""How many of a broker's processes use its replication quotas at the moment (KIP-73).

A quota is a broker's, and its replicas may live in several processes: each asks every second while
it uses one, and takes its share. A share that is not used any more is free again soon.
"""

from __future__ import annotations

from dataclasses import dataclass, field

USED_MS = 2_500
"""For how long who has asked counts: it asks every second."""


@dataclass(slots=True)
class ThrottleShares:
    """Who has used which of the two rates when."""

    _led_ms: dict[str, float] = field(default_factory=dict)
    _followed_ms: dict[str, float] = field(default_factory=dict)

    def used(self, name: str, leads: bool, follows: bool, now_ms: float) -> tuple[int, int]:
        """A process uses the leader's or the follower's rate: how many do now, of each."""
        return _count(self._led_ms, name, leads, now_ms), _count(
            self._followed_ms, name, follows, now_ms
        )


def _count(used_ms: dict[str, float], name: str, uses: bool, now_ms: float) -> int:
    if uses:
        used_ms[name] = now_ms
    for one in [one for one, at_ms in used_ms.items() if now_ms - at_ms > USED_MS]:
        del used_ms[one]
    return len(used_ms)

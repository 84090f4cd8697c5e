"""Counts the processes of a broker that currently use its replication quotas (KIP-73).

A quota is per broker, but the broker's replicas may be in several processes. Each process asks
every second while it uses a quota, and takes its share. An unused share becomes free after USED_MS.
"""

from __future__ import annotations

from dataclasses import dataclass, field

USED_MS = 2_500
"""How long a process counts after it asked; it asks every second."""


@dataclass(slots=True)
class ThrottleShares:
    """Tracks when each process last used each of the two rates."""

    _led_ms: dict[str, float] = field(default_factory=dict)
    _followed_ms: dict[str, float] = field(default_factory=dict)

    def used(self, name: str, leads: bool, follows: bool, now_ms: float) -> tuple[int, int]:
        """Record which rates a process uses; return the number of users of each rate."""
        return _count(self._led_ms, name, leads, now_ms), _count(
            self._followed_ms, name, follows, now_ms
        )


def _count(used_ms: dict[str, float], name: str, uses: bool, now_ms: float) -> int:
    if uses:
        used_ms[name] = now_ms
    for one in [one for one, at_ms in used_ms.items() if now_ms - at_ms > USED_MS]:
        del used_ms[one]
    return len(used_ms)

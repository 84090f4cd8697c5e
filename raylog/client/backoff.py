"""Pauses before repeats: they double up to a bound, give or take a fifth by chance (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_SPREAD = 0.2


@dataclass(slots=True)
class Backoff:
    """The pauses of one operation, or of one broker's connections."""

    first_ms: float
    max_ms: float
    chance: Callable[[], float]
    """A number from 0 to 1: clients that failed together do not come back together."""
    count: int = 0
    """Pauses so far."""

    def next_ms(self) -> float:
        """The next pause."""
        doubled = self.first_ms * 2.0 ** min(self.count, 62)
        self.count += 1
        return min(doubled, self.max_ms) * (1 + _SPREAD * (2 * self.chance() - 1))

"""Pauses before repeats: they double up to a bound, give or take a fifth by chance (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable

_SPREAD = 0.2


class Backoff:
    """The pauses of one operation, or of one broker's connections."""

    def __init__(self, first_ms: float, max_ms: float, chance: Callable[[], float]) -> None:
        """`chance` is from 0 to 1: clients that failed together do not come back together."""
        self.count = 0
        """Pauses so far."""
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._chance = chance

    def next_ms(self) -> float:
        """The next pause."""
        doubled = self._first_ms * 2.0 ** min(self.count, 62)
        self.count += 1
        return min(doubled, self._max_ms) * (1 + _SPREAD * (2 * self._chance() - 1))

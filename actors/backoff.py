"""How long to wait before something that keeps ending is started again."""

from __future__ import annotations

import math
from dataclasses import dataclass

LOSSES_AT_ONCE = 5
"""Losses in a row after which the next start does not wait yet."""
FIRST_MS = 1_000
"""The first wait; it doubles with each loss, up to LONGEST_MS."""
LONGEST_MS = 10_000
"""What runs for as long begins a new row when it ends: it cannot keep a core busy with starts."""


@dataclass(slots=True)
class Backoff:
    """The waits before the starts of one thing. Times are in ms on any clock.

    A crash is mended at once. A crash loop would keep a core busy with starting processes, so the
    starts become rare; they never cease, since a port or a disk may come back.
    """

    losses: int = 0
    """In a row."""
    due_ms: float = -math.inf
    """When the last start was due."""

    def lost(self, now_ms: float) -> int:
        """It has ended, or did not start; returns how many ms to wait with the next start."""
        if now_ms - self.due_ms >= LONGEST_MS:
            self.losses = 0
        self.losses += 1
        beyond = self.losses - LOSSES_AT_ONCE
        delay_ms = min(FIRST_MS << min(beyond - 1, 16), LONGEST_MS) if beyond > 0 else 0
        self.due_ms = now_ms + delay_ms
        return delay_ms

    def wait_ms(self, now_ms: float) -> float:
        """How long to wait until the next start is due."""
        return max(0, self.due_ms - now_ms)

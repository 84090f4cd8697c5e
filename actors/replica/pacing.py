"""Limits how fast a log is cleaned: by rate, with rests if an event loop shares the process."""

from __future__ import annotations

import time  # noqa: TID251 - the paced work runs in a thread or process that may sleep
from dataclasses import dataclass


@dataclass(slots=True)
class Pacing:
    """Called with the bytes read and written since the last call; sleeps.

    Each call sleeps at least `rest_s` seconds, and until the rate is at most `bytes_per_second`.
    """

    bytes_per_second: float
    """0 counts as 1; a negative rate is no limit."""
    rest_s: float
    _free_at: float = 0.0
    """Time until which the bytes so far use up the rate."""

    def __call__(self, spent_bytes: int) -> None:
        """Account for `spent_bytes` and sleep."""
        now, rate = time.monotonic(), self.bytes_per_second
        self._free_at = max(self._free_at, now) + spent_bytes / (1.0 if 0 <= rate < 1 else rate)
        rest_s = max(self.rest_s, self._free_at - now)
        if rest_s > 0:
            time.sleep(rest_s)

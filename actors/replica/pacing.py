"""How fast a log is cleaned: a rate, and rests where an event loop runs in the same process."""

from __future__ import annotations

import time  # noqa: TID251 - what is paced runs in a thread or process that may sleep
from dataclasses import dataclass


@dataclass(slots=True)
class Pacing:
    """Called with the bytes read and written since the last call; sleeps.

    `rest_s` seconds at least each time, and until no more than `bytes_per_second` were moved.
    """

    bytes_per_second: float
    rest_s: float
    _free_at: float = 0.0
    """When the bytes so far are paid for."""

    def __call__(self, spent_bytes: int) -> None:
        """Pay for `spent_bytes`."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + spent_bytes / self.bytes_per_second
        rest_s = max(self.rest_s, self._free_at - now)
        if rest_s > 0:
            time.sleep(rest_s)

"""What a disk refused, in the log: every writer meets it, so it is not said every time."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)
INTERVAL_MS = 5_000


class StorageFailures:
    """Logs failures of the disk, one line in INTERVAL_MS."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._silent_until_ms = float("-inf")
        self._unsaid = 0

    def report(self, failure: Exception) -> None:
        """A client was told of this failure."""
        now_ms = self._monotonic_ms()
        if now_ms < self._silent_until_ms:
            self._unsaid += 1
            return
        log.error("%s (and %d more since the last report)", failure, self._unsaid)
        self._silent_until_ms = now_ms + INTERVAL_MS
        self._unsaid = 0

"""Limits log lines about refused writes: every writer meets such a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable

from raylog.wire.errors import KafkaError, KafkaStorageError

log = logging.getLogger(__name__)
INTERVAL_MS = 5_000


class StorageFailures:
    """Logs disk failures, at most one line every INTERVAL_MS."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._silent_until_ms = float("-inf")
        self._unsaid = 0

    def refusal(self, what: str, failure: KafkaError | OSError) -> KafkaError:
        """The error to answer a request with; disk failures are also logged."""
        if isinstance(failure, OSError):
            log.error("%s failed on the disk", what, exc_info=failure)
            return KafkaStorageError(f"{what}: {failure}")
        if isinstance(failure, KafkaStorageError):
            self.report(failure)
        return failure

    def report(self, failure: Exception) -> None:
        """Log a failure that a client was answered with."""
        now_ms = self._monotonic_ms()
        if now_ms < self._silent_until_ms:
            self._unsaid += 1
            return
        log.error("%s (and %d more since the last report)", failure, self._unsaid)
        self._silent_until_ms = now_ms + INTERVAL_MS
        self._unsaid = 0

"""Writes histories to files. Any thread may add operations."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from threading import Lock

from raylog.client.closing import Closing
from tests.checker.lines import encode
from tests.checker.operations import Operation

_LINES_MAX = 1_000
_FLUSH_NS = 1_000_000_000


class Recorder(Closing):
    """One file of one process. Several such files make one history.

    Whole lines are written, at the latest with the first operation after a second, so the last
    operations of a killed process are missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors: Counter[int] = Counter()
        """Counts of the error codes that clients got; librdkafka's own are negative."""
        self._file = path.open("w", encoding="utf-8")
        self._lock = Lock()
        self._lines: list[str] = []
        self._flushed_ns = self._last_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        """The time, later than all previous ones, so that the order of calls is kept."""
        with self._lock:
            self._last_ns = max(self._last_ns + 1, time.monotonic_ns())
            return self._last_ns

    def add(self, operation: Operation) -> None:
        """Record a completed operation."""
        line = encode(operation) + "\n"
        with self._lock:
            self._lines.append(line)
            now_ns = time.monotonic_ns()
            if len(self._lines) >= _LINES_MAX or now_ns - self._flushed_ns > _FLUSH_NS:
                self._write()
                self._flushed_ns = now_ns

    def error_reported(self, code: int) -> None:
        """Count an error that a client got."""
        with self._lock:
            self.errors[code] += 1

    def flush(self) -> None:
        """Write everything to the file."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Flush, and record nothing more."""
        self.flush()
        self._file.close()

    def _write(self) -> None:
        self._file.write("".join(self._lines))
        self._file.flush()
        self._lines.clear()


def payload_of(value: str, record_bytes: int) -> bytes:
    """The bytes of a record: the value, padded with spaces."""
    return value.encode().ljust(record_bytes)


def value_of(payload: bytes | None) -> str:
    """The value in a record's bytes."""
    assert payload is not None, "recorded values are never null"
    return payload.rstrip(b" ").decode()

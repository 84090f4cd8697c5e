"""Counts what users measured: cheap per record, exact when it is taken.

Users add times to plain columns. numpy folds many of them at once into the counts of HdrHistogram's
buckets. Locust's statistics get the same counts, so its pages are right without an event per
record.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from raylog.loadtest.error_texts import count_error
from raylog.loadtest.histograms import Counts, Numbers, counts_index, encoded, sum_of
from raylog.loadtest.results import Interval, Operation

if TYPE_CHECKING:
    from locust.stats import RequestStats

_ERROR_TEXT_LENGTH_MAX = 300
_FOLDED_AT = 8_192
"""The most times that wait to be folded."""
_PLACES = 1 << 15
"""More than the counts of a histogram: a key is a second times this plus an index."""
_US_PER_S = 1_000_000


@dataclass(slots=True)
class Second:
    """One second of an operation."""

    requests: int = 0
    failures: int = 0
    bytes: int = 0
    latencies: list[Counts] = field(default_factory=list)


class Seen:
    """What was measured of one operation since the last `take`."""

    __slots__ = ("bytes", "errors", "intended_us", "latency_us", "seconds")

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self.seconds: dict[int, Second] = {}
        self.intended_us = array("q")
        self.latency_us = array("q")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.errors or self.seconds or self.intended_us)


class Recorder:
    """The counts of one process.

    Times are µs of the run's clock, latency from the intended time.
    """

    def __init__(self, now_us: Callable[[], int], started_us: int) -> None:
        self.started_us = started_us
        """Seconds are counted from here."""
        self.locust: RequestStats | None = None
        """Locust's statistics, if they are fed as well."""
        self._now_us = now_us
        self._operations: dict[str, Seen] = {}

    def done(self, operation: str, intended_us: int, now_us: int, size: int = 0) -> None:
        """Count a successful request with its intended and actual time."""
        found = self._of(operation)
        found.intended_us.append(intended_us)
        found.latency_us.append(now_us - intended_us)
        if size:
            self._second(found, intended_us).bytes += size
        if len(found.intended_us) >= _FOLDED_AT:
            _fold(found, self.started_us)

    def done_many(
        self, operation: str, intended_us: Sequence[int], now_us: int, size: int = 0
    ) -> None:
        """Count several successful requests; `size` is their total."""
        found = self._of(operation)
        found.intended_us.extend(intended_us)
        found.latency_us.extend([now_us - at_us for at_us in intended_us])
        self._counted(found, intended_us[0], size)

    def done_columns(
        self, operation: str, intended_us: Numbers, now_us: int, size: int = 0
    ) -> None:
        """Count a numpy column of successful requests; `size` is their total."""
        found = self._of(operation)
        found.intended_us.frombytes(intended_us.tobytes())
        found.latency_us.frombytes((now_us - intended_us).tobytes())
        self._counted(found, int(intended_us[0]), size)

    def failed(self, operation: str, error: str, intended_us: int | None = None) -> None:
        """Count a failed request. Without an intended time it counts now."""
        self.failed_many(operation, error, [self._now_us() if intended_us is None else intended_us])

    def failed_many(self, operation: str, error: str, intended_us: Sequence[int]) -> None:
        """Count failed requests with these intended times."""
        if not len(intended_us):
            return
        found = self._of(operation)
        count_error(found.errors, error[:_ERROR_TEXT_LENGTH_MAX], len(intended_us))
        seconds = (np.array(intended_us, np.int64) - self.started_us) // _US_PER_S
        for number, count in zip(*np.unique(seconds, return_counts=True), strict=True):
            found.seconds.setdefault(int(number), Second()).failures += int(count)

    def take(self) -> list[Operation]:
        """What was measured since the last call.

        The intervals of a second may come in several parts, which have to be added up.
        """
        for found in self._operations.values():
            _fold(found, self.started_us)
        taken, self._operations = self._operations, {}
        if self.locust is not None:
            from raylog.loadtest.locust_stats import feed  # imports locust, which patches

            for name, found in taken.items():
                feed(self.locust, name, found, self.started_us // _US_PER_S)
        return [_result(name, found) for name, found in taken.items() if not found.is_empty]

    # -- inside ----------------------------------------------------------------------------------

    def _of(self, name: str) -> Seen:
        found = self._operations.get(name)
        if found is None:
            found = self._operations[name] = Seen()
        return found

    def _second(self, found: Seen, at_us: int) -> Second:
        number = (at_us - self.started_us) // _US_PER_S
        second = found.seconds.get(number)
        if second is None:
            second = found.seconds[number] = Second()
        return second

    def _counted(self, found: Seen, first_us: int, size: int) -> None:
        self._second(found, first_us).bytes += size
        if len(found.intended_us) >= _FOLDED_AT:
            _fold(found, self.started_us)


def _fold(found: Seen, started_us: int) -> None:
    """Fold the columns into counts."""
    if not found.intended_us:
        return
    seconds = (np.array(found.intended_us) - started_us) // _US_PER_S
    latencies = np.array(found.latency_us)
    found.intended_us, found.latency_us = array("q"), array("q")
    first = int(seconds.min())
    places = (seconds - first) * _PLACES + counts_index(latencies)
    unique, counts = np.unique(places, return_counts=True)
    numbers = unique // _PLACES
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for start, end in pairwise((*starts, len(unique))):
        second = found.seconds.setdefault(first + int(numbers[start]), Second())
        second.latencies.append(Counts(unique[start:end] % _PLACES, counts[start:end]))
        second.requests += int(counts[start:end].sum())


def _result(name: str, found: Seen) -> Operation:
    """The operation in the form of a result."""
    return Operation(
        name=name,
        errors=dict(found.errors),
        intervals=[
            Interval(
                second=number,
                requests=second.requests,
                failures=second.failures,
                bytes=second.bytes,
                latencies=encoded(sum_of(second.latencies)),
            )
            for number, second in sorted(found.seconds.items())
        ],
    )

"""Watches the process that makes the load, so that a report can say when it was the limit."""

from __future__ import annotations

import math
import os
import platform
import time
from array import array
from collections.abc import Iterable

import numpy as np

from raylog.loadtest.histograms import NO_COUNTS, Numbers, counted, encoded, sum_of
from raylog.loadtest.results import Generator

BUSY_SHARE = 0.9
"""A process that uses more than this share of a core may be the limit."""
LATE_MS = 20.0
"""A process may be the limit if its users are later than this for 1 % of a second's time."""
_LATE_SHARE = 0.01
_TOUCHED_S = 0.1
"""Samples are not taken exactly between two seconds. A sample that covers less of a second says
nothing about how late users were in it."""
_US_PER_MS = 1_000


class GeneratorWatch:
    """CPU use and lateness of this process, by second."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._cpu_share: list[float] = []
        self._late_ms: list[float] = []
        self._counts = NO_COUNTS
        self._late_us = array("q")
        self._slept_us = 0
        self._cpu_s = 0.0
        self._at_s: float | None = None
        """The time of the last sample."""

    def woke(self, slept_us: int, late_us: int) -> None:
        """Record that a user wanted to sleep for a time, and woke up late by `late_us`."""
        self._slept_us += slept_us
        self._late_us.append(late_us)

    def sample(self, at_s: float) -> None:
        """Record what happened since the last call. The first call is at the start.

        The values are spread over all seconds since then: if a process was stopped for 20 s, one
        call covers 20 seconds.
        """
        cpu_s, late_us = time.process_time(), np.array(self._late_us)
        if self._at_s is not None and at_s > self._at_s:
            share = (cpu_s - self._cpu_s) / (at_s - self._at_s)
            late_ms = round(_late_us(late_us, self._slept_us)) / _US_PER_MS
            self._add(self._at_s, at_s, share, late_ms)
            self._counts = sum_of([self._counts, counted(late_us)])
        self._cpu_s, self._at_s = cpu_s, at_s
        self._late_us, self._slept_us = array("q"), 0

    def _add(self, from_s: float, to_s: float, share: float, late_ms: float) -> None:
        missing = math.ceil(to_s) - len(self._cpu_share)
        self._cpu_share += [0.0] * missing
        self._late_ms += [0.0] * missing
        for second in range(math.floor(from_s), math.ceil(to_s)):
            inside_s = min(to_s, second + 1) - max(from_s, second)
            self._cpu_share[second] += share * inside_s
            if inside_s >= _TOUCHED_S:
                self._late_ms[second] = max(self._late_ms[second], late_ms)

    def result(self, clock_offset_us: int = 0, clock_uncertainty_us: int = 0) -> Generator:
        """What was recorded so far."""
        return Generator(
            worker=self._worker,
            host=platform.node(),
            cores=os.cpu_count() or 1,
            pid=os.getpid(),
            cpu_share=[round(one, 3) for one in self._cpu_share],
            late_ms=list(self._late_ms),
            lateness=encoded(self._counts),
            clock_offset_us=clock_offset_us,
            clock_uncertainty_us=clock_uncertainty_us,
        )


def _late_us(late_us: Numbers, slept_us: int) -> float:
    """The lateness that users had, or exceeded, for `_LATE_SHARE` of their time.

    What is due while a user is late waits until it wakes up: the first request for all of that
    time, the last for none. So a single delay of half a second has its full weight, no matter how
    often the user wakes up in time.
    """
    late = np.sort(late_us)[::-1].astype(np.float64)
    allowed = _LATE_SHARE * (slept_us + float(late.sum()))
    limits = (np.cumsum(late) - allowed) / np.arange(1, len(late) + 1)
    return float(limits.max(initial=0.0))


def within(generators: Iterable[Generator], end_s: float) -> list[Generator]:
    """The same reports without the seconds after `end_s`."""
    end = math.ceil(end_s)
    return [
        one.model_copy(update={"cpu_share": one.cpu_share[:end], "late_ms": one.late_ms[:end]})
        for one in generators
    ]


def limited(generators: Iterable[Generator], end_s: float) -> list[tuple[float, float]]:
    """Spans (s) before `end_s` in which some process had no spare core, or was late."""
    seconds = sorted(
        {
            second
            for one in generators
            for second, (busy, late_ms) in enumerate(zip(one.cpu_share, one.late_ms, strict=True))
            if second < end_s and (busy >= BUSY_SHARE or late_ms >= LATE_MS)
        }
    )
    spans: list[tuple[float, float]] = []
    for second in seconds:
        until_s = min(second + 1.0, end_s)
        if spans and spans[-1][1] == second:
            spans[-1] = (spans[-1][0], until_s)
        else:
            spans.append((float(second), until_s))
    return spans

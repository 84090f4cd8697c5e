"""How the process that makes the load is doing, so that a report says when it was the limit."""

from __future__ import annotations

import os
import platform
import time
from array import array
from collections.abc import Iterable

import numpy as np

from raylog.loadtest.histograms import NO_COUNTS, counted, encoded, sum_of
from raylog.loadtest.results import Generator

BUSY_SHARE = 0.9
"""A process that takes more of its core than this may be the limit."""
LATE_MS = 20.0
"""So is one in which one of 100 wake-ups is later than this."""
_LATE_PERCENTILE = 99
_US_PER_MS = 1_000


class GeneratorWatch:
    """CPU and lateness of this process."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._cpu_share: list[float] = []
        self._late_ms: list[float] = []
        self._counts = NO_COUNTS
        self._late_us = array("q")
        self._cpu_s = time.process_time()
        self._wall_s = time.monotonic()

    def woke(self, late_us: int) -> None:
        """A user woke up so much later than it had asked for."""
        self._late_us.append(late_us)

    def sample(self) -> None:
        """Close a second: call it once in each."""
        cpu_s, wall_s = time.process_time(), time.monotonic()
        took_s = max(wall_s - self._wall_s, 1e-6)
        self._cpu_share.append(round((cpu_s - self._cpu_s) / took_s, 3))
        self._cpu_s, self._wall_s = cpu_s, wall_s
        late_us, self._late_us = np.array(self._late_us), array("q")
        worst_us = float(np.percentile(late_us, _LATE_PERCENTILE)) if len(late_us) else 0.0
        self._late_ms.append(round(worst_us) / _US_PER_MS)
        self._counts = sum_of([self._counts, counted(late_us)])

    def result(self, clock_offset_us: int = 0, clock_uncertainty_us: int = 0) -> Generator:
        """What was seen so far."""
        return Generator(
            worker=self._worker,
            host=platform.node(),
            cores=os.cpu_count() or 1,
            pid=os.getpid(),
            cpu_share=list(self._cpu_share),
            late_ms=list(self._late_ms),
            lateness=encoded(self._counts),
            clock_offset_us=clock_offset_us,
            clock_uncertainty_us=clock_uncertainty_us,
        )


def limited(generators: Iterable[Generator]) -> list[tuple[float, float]]:
    """Spans (s) in which some process had no core to spare, or woke its users up late."""
    seconds = sorted(
        {
            second
            for one in generators
            for second, (busy, late_ms) in enumerate(zip(one.cpu_share, one.late_ms, strict=True))
            if busy >= BUSY_SHARE or late_ms >= LATE_MS
        }
    )
    spans: list[tuple[float, float]] = []
    for second in seconds:
        if spans and spans[-1][1] == second:
            spans[-1] = (spans[-1][0], float(second + 1))
        else:
            spans.append((float(second), float(second + 1)))
    return spans

"""The response of a process that is asked for its metrics.

Its counts have no names; they get them here, when metrics are collected. A shell has a method

    async def metrics(self) -> ProcessMetrics:
        samples = Samples()
        samples.add(families.groups.GROUPS, len(self._machine.groups), "stable")
        return process_metrics(self._runtime, samples)

which only its broker calls, when it is scraped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from raylog.actors.message import distinct
from raylog.actors.metrics.counts import Histogram
from raylog.actors.metrics.families import process
from raylog.actors.metrics.family import Family, Kind
from raylog.actors.runtime.base import Runtime

Value = int | float | tuple[float, ...]
"""For a histogram: its sum, then the count of each bucket (not cumulative)."""
Sample = tuple[str, tuple[str, ...], Value]
"""Family name, label values in order, and the value."""


@distinct
class ProcessMetrics(NamedTuple):
    """The metrics of one actor."""

    pid: int
    """Process id. Several actors may share a process."""
    samples: Sequence[Sample]
    process: Sequence[Sample]
    """Metrics of the process: the same from all actors in it."""


class Samples:
    """Collects the samples of one response."""

    def __init__(self) -> None:
        self.taken: list[Sample] = []

    def add(self, family: Family, value: float, *labels: str) -> None:
        """Add the value of a counter or gauge."""
        assert family.kind is not Kind.HISTOGRAM, family.name
        self._add(family, labels, value)

    def histogram(self, family: Family, counts: Histogram, *labels: str) -> None:
        """Add a histogram that uses the bounds of the family."""
        assert family.bounds == counts.bounds, family.name
        self._add(family, labels, (counts.total, *counts.counts))

    def _add(self, family: Family, labels: tuple[str, ...], value: Value) -> None:
        assert len(labels) == len(family.labels), family.name
        self.taken.append((family.name, labels, value))


def process_metrics(runtime: Runtime, samples: Samples) -> ProcessMetrics:
    """Return the response of an actor, including the metrics of its process."""
    return ProcessMetrics(os.getpid(), samples.taken, _of_process(runtime).taken)


def _of_process(runtime: Runtime) -> Samples:
    samples = Samples()
    usage = runtime.process_usage()
    if usage is None:
        return samples
    samples.add(process.CPU_SECONDS, usage.cpu_seconds)
    samples.add(process.MAX_FILES, usage.open_files_max)
    samples.histogram(process.LOOP_LAG, usage.loop_lag)
    for family, figure in (
        (process.RESIDENT_BYTES, usage.resident_bytes),
        (process.OPEN_FILES, usage.open_files),
        (process.START_TIME, usage.started_seconds),
    ):
        if figure is not None:
            samples.add(family, figure)
    return samples

"""Counts a coordinator's shards and answers."""

from __future__ import annotations

from collections import Counter

from raylog.actors.coordination.rules.step import Counted, Step
from raylog.actors.metrics.counts import Histogram
from raylog.actors.metrics.errors import ErrorCounts
from raylog.actors.metrics.families import coordinators as families
from raylog.actors.metrics.samples import Samples


class CoordinatorCounts:
    """Counts of one coordinator, across all shards it has had."""

    __slots__ = ("counted", "errors", "leavings", "load_failures", "loads", "records", "refusals")

    def __init__(self) -> None:
        self.loads = Histogram(families.LOAD_SECONDS)
        self.load_failures = 0
        self.records = 0
        self.refusals = 0
        self.leavings = 0
        """Members that left: the only decisions that coordinators journal."""
        self.counted: Counter[Counted] = Counter()
        self.errors = ErrorCounts()

    def stepped(self, step: Step) -> None:
        """Count a step whose records are being appended."""
        self.records += len(step.records)
        self.leavings += len(step.decided)
        if step.counted:
            self.counted.update(step.counted)

    def sample(self, samples: Samples) -> None:
        """Sample the counts that both kinds of coordinators have."""
        samples.histogram(families.LOADS, self.loads)
        samples.add(families.LOAD_FAILURES, self.load_failures)
        samples.add(families.RECORDS, self.records)
        samples.add(families.REFUSALS, self.refusals)
        self.errors.sample(samples)

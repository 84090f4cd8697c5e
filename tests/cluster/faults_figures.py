"""How long partitions could not be written: measured by a producer, gathered by kind of fault."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message
from rich.table import Table

from tests.support.load import Writer
from tests.support.ray_clusters import wait_until

WRITTEN_AGAIN_S = 60.0
"""What the producer gives a record."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, and the records of each partition that were written before it."""

    at_s: float
    sent: dict[int, int]


class Probe(Writer):
    """A writer that notes when each record was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, pause_s: float) -> None:
        super().__init__(bootstrap, topic, partitions, pause_s)
        self._at_s: dict[int, list[float]] = {p: [] for p in self.partitions}
        """Partition to the times at which its records were acknowledged, in order."""

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        super()._delivered(error, message)
        partition = message.partition()
        if error is None and partition is not None:
            self._at_s[partition].append(time.monotonic())

    @property
    def acknowledged_count(self) -> int:
        """Records acknowledged so far."""
        return sum(map(len, self._at_s.values()))

    def standing(self) -> str:
        """What each partition was sent and has acknowledged."""
        return ", ".join(f"{p}: {len(self._at_s[p])} of {self.sent[p]}" for p in self.partitions)

    def mark(self) -> Mark:
        """This moment."""
        return Mark(time.monotonic(), dict(self.sent))

    def failover_s(self, mark: Mark, partitions: Collection[int]) -> float:
        """From a moment to when each of these partitions acknowledged a record sent after it.

        Raises AssertionError where that does not happen.
        """

        def written() -> bool:
            return bool(self.failures) or all(
                len(self._at_s[p]) > mark.sent[p] for p in self.partitions
            )

        wait_until(written, "every partition to be written again", WRITTEN_AGAIN_S)
        assert not self.failures, self.failures[:3]
        return max(self._at_s[p][mark.sent[p]] for p in partitions) - mark.at_s


@dataclass(slots=True)
class Figures:
    """Failover times by kind of fault, in s."""

    failover_s: dict[str, list[float]] = field(default_factory=dict)
    level_s: dict[str, list[float]] = field(default_factory=dict)
    """Until all replicas were in sync, and lost nodes back."""

    def note(self, kind: str, failover_s: float, level_s: float) -> None:
        """One fault."""
        self.failover_s.setdefault(kind, []).append(failover_s)
        self.level_s.setdefault(kind, []).append(level_s)

    def table(self) -> Table:
        """By kind: how often, and how long until the next acknowledged write."""
        table = Table(title="until the next acknowledged write, s")
        for name in ("fault", "count", "p50", "p99", "max", "all level, p50", "max"):
            table.add_column(name, justify="left" if name == "fault" else "right")
        for kind, times in sorted(self.failover_s.items()):
            level = self.level_s[kind]
            row = (quantile(times, 0.5), quantile(times, 0.99), max(times))
            others = (quantile(level, 0.5), max(level))
            table.add_row(
                kind,
                str(len(times)),
                *(f"{one:.2f}" for one in row),
                *(f"{one:.1f}" for one in others),
            )
        return table


def quantile(values: Collection[float], part: float) -> float:
    """The smallest value that so large a part of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]

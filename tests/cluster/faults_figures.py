"""How long partitions could not be written: measured by a producer, collected by kind of fault."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import KafkaError, Message
from rich.table import Table

from bench.quantiles import quantile, quantile_text
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
    """A writer that records when each record was acknowledged."""

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

    def silence_s(self, mark: Mark, partitions: Collection[int], seconds: float) -> float:
        """The longest time without an acknowledged write of one of these partitions.

        Of all such times that began at a mark, or within so many seconds after it. Raises
        AssertionError where one of them does not end.
        """
        ends_s = mark.at_s + seconds

        def written() -> bool:
            times = (self._at_s[p][mark.sent[p] :] for p in self.partitions)
            return bool(self.failures) or all(one and one[-1] > ends_s for one in times)

        wait_until(written, "every partition to be written again", WRITTEN_AGAIN_S)
        assert not self.failures, self.failures[:3]
        return max(self._silence_of(p, mark, ends_s) for p in partitions)

    def _silence_of(self, partition: int, mark: Mark, ends_s: float) -> float:
        times = [mark.at_s, *self._at_s[partition][mark.sent[partition] :]]
        return max(later - at for at, later in pairwise(times) if at <= ends_s)


@dataclass(slots=True)
class Figures:
    """Times without an acknowledged write by kind of fault, in s."""

    silence_s: dict[str, list[float]] = field(default_factory=dict)
    level_s: dict[str, list[float]] = field(default_factory=dict)
    """Until all replicas were in sync, and lost nodes back."""

    def note(self, kind: str, silence_s: float, level_s: float) -> None:
        """One fault."""
        self.silence_s.setdefault(kind, []).append(silence_s)
        self.level_s.setdefault(kind, []).append(level_s)

    def table(self) -> Table:
        """By kind: how often, and how long some partition that it concerns was not written."""
        table = Table(title="until the next acknowledged write, s")
        for name in ("fault", "count", "p50", "p99", "max", "all level, p50", "max"):
            table.add_column(name, justify="left" if name == "fault" else "right")
        for kind, times in sorted(self.silence_s.items()):
            level = self.level_s[kind]
            row = (quantile(times, 0.5), quantile(times, 0.99), max(times))
            others = (quantile(level, 0.5), max(level))
            table.add_row(
                kind,
                str(len(times)),
                *(quantile_text(one, 2) for one in row),
                *(quantile_text(one, 1) for one in others),
            )
        return table

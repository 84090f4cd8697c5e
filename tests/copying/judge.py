"""What exactly-once means for a copy job, judged by the records of a read_committed reader.

Copiers in a group (`TransactionJudge`): the source's partitions hold the numbers 0, 1, 2, … as
values. A copier writes each of them to the sink's partition of the same index as `NUMBER
TRANSACTION COUNT`: the transaction's name and its number of records. Once it knows the end of a
transaction, it notes it as a line `committed TRANSACTION COUNT` or `aborted TRANSACTION COUNT`.

A streaming job (`BatchJudge`): a micro-batch is written whole or not at all. In a partition its
rows are contiguous: no row of an earlier batch follows a row of a later one. In the end each batch
must have all its rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from statistics import median

from tests.copying.spark_jobs import Job, Label

SHOWN_MAX = 10
"""How many anomalies of one kind are kept; the others are only counted."""
UNLABELLED = "-"
"""Stands for the batch where the sink does not report it."""


class Judge:
    """The records that one reader of the sink got, in order."""

    def __init__(self) -> None:
        self.anomalies: list[str] = []
        self.counts: Counter[str] = Counter()
        """How many anomalies of each kind there were."""
        self._ended_at: Counter[int] = Counter()
        """Partition to the offset after the last record."""

    def place(self, partition: int, offset: int) -> str:
        """Return a record's place as text; note an anomaly if its offset does not rise."""
        place = f"{partition}@{offset}"
        if offset < self._ended_at[partition]:
            self.note("offset given again", f"{place} after {self._ended_at[partition] - 1}")
        self._ended_at[partition] = offset + 1
        return place

    def note(self, kind: str, text: str) -> None:
        """Record an anomaly."""
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_MAX:
            self.anomalies.append(f"{kind}: {text}")

    def lines(self) -> Iterator[str]:
        """Yield the anomalies."""
        yield from self.anomalies
        for kind, count in self.counts.items():
            if count > SHOWN_MAX:
                yield f"{kind}: {count} in all"


@dataclass(slots=True)
class Ends:
    """The transactions whose end the copiers knew, with record counts, and their other notes."""

    committed: dict[str, int] = field(default_factory=dict)
    aborted: dict[str, int] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    """Errors that copiers received, by code."""

    @classmethod
    def load(cls, paths: Iterable[Path]) -> Ends:
        """Read notes; skip an incomplete line, which a killed copier was writing."""
        ends = cls()
        for path in paths:
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    ends._take(*line.split())
        return ends

    def _take(self, kind: str, name: str, count: str) -> None:
        match kind:
            case "committed":
                self.committed[name] = int(count)
            case "aborted":
                self.aborted[name] = int(count)
            case "error":
                self.errors[name] += int(count)
            case _:
                raise ValueError(f"{kind} is no kind of note")


class TransactionJudge(Judge):
    """A judge of copiers in a group."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.numbers = dict.fromkeys(range(partitions), 0)
        """Partition to the number expected next."""
        self._transactions: dict[str, tuple[int, int]] = {}
        """Transaction to the records that were seen, and to those that it has."""

    @property
    def transactions(self) -> int:
        """How many transactions were seen, whole or in part."""
        return len(self._transactions)

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """Judge one record."""
        number, name, count = value.decode().split()
        place = self.place(partition, offset)
        expected = self.numbers[partition]
        if int(number) < expected:
            self.note("duplicate or out of order", f"{number} at {place}, due was {expected}")
        else:
            if int(number) > expected:
                self.note("lost", f"{expected} to {int(number) - 1} before {place}")
            self.numbers[partition] = int(number) + 1
        seen, _ = self._transactions.get(name, (0, 0))
        self._transactions[name] = seen + 1, int(count)

    def finish(self, sent: Mapping[int, int], ends: Ends) -> None:
        """Compare everything read with the source and with the copiers' notes."""
        for partition, count in sent.items():
            if self.numbers[partition] != count:
                found = self.numbers[partition]
                self.note("not copied", f"partition {partition} ends at {found}, not {count}")
        for name, (seen, count) in self._transactions.items():
            if seen != count:
                self.note("torn transaction", f"{seen} of {count} records of {name}")
        for name in self._transactions.keys() & ends.aborted.keys():
            self.note("aborted transaction read", name)
        for name in ends.committed.keys() - self._transactions.keys():
            self.note("committed transaction not read", name)


@dataclass(slots=True)
class _Batch:
    """One micro-batch as the reader saw it."""

    first_s: float
    last_s: float
    rows: int = 0


class BatchJudge(Judge):
    """A judge of a streaming job."""

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.job = job
        self.rows = 0
        """How many rows came, repeats included."""
        self.newest: Label = (0, -1)
        self._clock = clock
        self._seen: set[str] = set()
        self._batches: dict[Label, _Batch] = {}
        self._newest_of: dict[int, Label] = {}
        """Partition to the batch of its last row."""

    @property
    def distinct(self) -> int:
        """How many different rows came."""
        return len(self._seen)

    @property
    def is_complete(self) -> bool:
        """Whether no row is missing."""
        return self.distinct == self.job.total

    @property
    def batches(self) -> int:
        """How many micro-batches were seen, whole or in part."""
        return len(self._batches)

    @property
    def pace_s(self) -> float:
        """The median time from one batch to the next; 0 if there are fewer than two."""
        batches = list(self._batches.values())  # the reader's thread adds to it
        times = [one.first_s for one in batches]
        return median(b - a for a, b in pairwise(times)) if len(times) > 1 else 0.0

    @property
    def spread_s(self) -> float:
        """The longest time from the first to the last row of a batch."""
        return max((one.last_s - one.first_s for one in self._batches.values()), default=0.0)

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """Judge one row."""
        row_id, content, label = value.decode().split()
        place = self.place(partition, offset)
        self.rows += 1
        if row_id in self._seen:
            self.note("duplicate", f"{row_id} at {place} of batch {label}")
        elif self.job.content(row_id) == content:
            self._seen.add(row_id)
        else:
            self.note("not expected", f"{row_id} {content} at {place} of batch {label}")
        if label != UNLABELLED:
            query, batch = label.split(".")
            self._take_batch(partition, place, (int(query), int(batch)))

    def _take_batch(self, partition: int, place: str, label: Label) -> None:
        newest = self._newest_of.setdefault(partition, label)
        if label < newest:
            self.note("late row of a batch", f"{_text(label)} at {place} after {_text(newest)}")
        else:
            self._newest_of[partition] = label
        self.newest = max(self.newest, label)
        now_s = self._clock()
        batch = self._batches.setdefault(label, _Batch(now_s, now_s))
        batch.rows += 1
        batch.last_s = now_s

    def finish(self, sizes: Mapping[Label, int]) -> None:
        """Compare everything read with the expected rows, and with the size of each batch."""
        lost = self.job.total - self.distinct
        if lost:
            missing = (row_id for row_id in self.job.ids() if row_id not in self._seen)
            self.note("lost", f"{lost} rows, as {', '.join(islice(missing, 5))}")
            self.counts["lost"] = lost
        for label, batch in self._batches.items():
            if batch.rows != sizes.get(label):
                self.note(
                    "torn batch", f"{batch.rows} of {sizes.get(label)} rows of {_text(label)}"
                )


def _text(label: Label) -> str:
    return f"{label[0]}.{label[1]}"

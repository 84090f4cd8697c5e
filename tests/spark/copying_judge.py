"""What exactly-once means for a streaming job, told from what a read_committed reader was given.

A micro-batch is whole or not there. In a partition its rows come in one piece: after the first row
of a later batch none of an earlier one may come, and in the end there are as many as the batch has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from statistics import median

from tests.spark.copying_jobs import Job, Label

SHOWN_MAX = 10
"""Anomalies of one kind that are kept; the others are counted."""
UNLABELLED = "-"
"""Instead of a batch, where the sink does not tell."""


@dataclass(slots=True)
class _Batch:
    """One micro-batch as it was seen."""

    first_s: float
    last_s: float
    rows: int = 0


@dataclass(slots=True)
class Judge:
    """What one reader of the sink was given, in the order it was given."""

    job: Job
    clock: Callable[[], float] = time.monotonic
    anomalies: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Kinds of anomalies, all of them."""
    rows: int = 0
    """All that came."""
    newest: Label = (0, -1)
    _seen: set[str] = field(default_factory=set)
    _batches: dict[Label, _Batch] = field(default_factory=dict)
    _newest_of: dict[int, Label] = field(default_factory=dict)
    """Partition to the batch of its last row."""
    _ended_at: Counter[int] = field(default_factory=Counter)
    """Partition to the offset behind the last row."""

    @property
    def distinct(self) -> int:
        """Rows that came, each counted once."""
        return len(self._seen)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing any more."""
        return self.distinct == self.job.total

    @property
    def batches(self) -> int:
        """Micro-batches of which something was seen."""
        return len(self._batches)

    @property
    def pace_s(self) -> float:
        """The usual time from one batch to the next; 0 before there are two."""
        batches = list(self._batches.values())  # the reader's thread adds to them
        times = [one.first_s for one in batches]
        return median(b - a for a, b in pairwise(times)) if len(times) > 1 else 0.0

    @property
    def spread_s(self) -> float:
        """The longest time from the first to the last row of a batch."""
        return max((one.last_s - one.first_s for one in self._batches.values()), default=0.0)

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """One row."""
        row_id, content, label = value.decode().split()
        place = f"{partition}@{offset}"
        if offset < self._ended_at[partition]:
            self._note("offset given again", f"{place} after {self._ended_at[partition] - 1}")
        self._ended_at[partition] = offset + 1
        self.rows += 1
        if row_id in self._seen:
            self._note("duplicate", f"{row_id} at {place} of batch {label}")
        elif self.job.content(row_id) == content:
            self._seen.add(row_id)
        else:
            self._note("not expected", f"{row_id} {content} at {place} of batch {label}")
        if label != UNLABELLED:
            query, batch = label.split(".")
            self._take_batch(partition, place, (int(query), int(batch)))

    def _take_batch(self, partition: int, place: str, label: Label) -> None:
        newest = self._newest_of.setdefault(partition, label)
        if label < newest:
            self._note("late row of a batch", f"{_text(label)} at {place} after {_text(newest)}")
        else:
            self._newest_of[partition] = label
        self.newest = max(self.newest, label)
        now_s = self.clock()
        batch = self._batches.setdefault(label, _Batch(now_s, now_s))
        batch.rows += 1
        batch.last_s = now_s

    def _note(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_MAX:
            self.anomalies.append(f"{kind}: {text}")

    def finish(self, sizes: Mapping[Label, int]) -> None:
        """All was read: compare with what there should be, and with what each batch has."""
        lost = self.job.total - self.distinct
        if lost:
            missing = (row_id for row_id in self.job.ids() if row_id not in self._seen)
            self.anomalies.append(f"lost: {lost} rows, as {', '.join(islice(missing, 5))}")
            self.counts["lost"] = lost
        for label, batch in self._batches.items():
            if batch.rows != sizes.get(label):
                self._note(
                    "torn batch", f"{batch.rows} of {sizes.get(label)} rows of {_text(label)}"
                )

    def lines(self) -> Iterator[str]:
        """What was wrong."""
        yield from self.anomalies
        for kind, count in self.counts.items():
            if count > SHOWN_MAX and kind != "lost":
                yield f"{kind}: {count} in all"


def _text(label: Label) -> str:
    return f"{label[0]}.{label[1]}"

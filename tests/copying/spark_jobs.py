"""The expected results of the jobs under kills, computed from the rows of the source alone.

Row n of the source has the number n as key and value and is in partition n % 6. A row of the sink
is `ID CONTENT QUERY.BATCH`: a unique id, its content, and the micro-batch.

| job | rows of the sink |
|---|---|
| copy | n, with n squared: one for each row of the source |
| aggregate | `WINDOW.GROUP`, with `COUNT.SUM` of its rows: one for each group of a closed window |

The aggregation's event time is n times `STEP_MS`; a row's group is n squared modulo `GROUPS`. A
window is closed when the watermark has passed its end, and is written once, in the batch that
begins with that watermark. No row is late: partitions are read evenly, so none is `DELAY_MS` behind
another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from raylog.raydp_jobs.checkpoints import batch_source

PARTITIONS = 6
STEP_MS = 10
WINDOW_MS = 1_000
DELAY_MS = 60_000
GROUPS = 23
_WINDOW_ROWS = WINDOW_MS // STEP_MS

Label = tuple[int, int]
"""A micro-batch: the number of its query (its checkpoint), and its own."""


class Job(Protocol):
    """The expected results of a job."""

    @property
    def source_rows(self) -> int:
        """How many rows to write to the source."""

    @property
    def total(self) -> int:
        """How many rows the sink has in the end."""

    def content(self, row_id: str) -> str | None:
        """Return the content for an id; None if there is no such id."""

    def ids(self) -> Iterator[str]:
        """Return all ids."""

    def sizes(self, checkpoints: Mapping[int, Path]) -> dict[Label, int]:
        """Return the number of rows of each micro-batch that any of the queries began."""


@dataclass(slots=True)
class Copying:
    """The stateless copy."""

    rows: int
    """While the source is being filled, an upper bound."""

    @property
    def source_rows(self) -> int:
        """All rows are copied."""
        return self.rows

    @property
    def total(self) -> int:
        """Each row of the source gives one."""
        return self.rows

    def content(self, row_id: str) -> str | None:
        """Return the number squared."""
        return str(int(row_id) ** 2) if int(row_id) < self.rows else None

    def ids(self) -> Iterator[str]:
        """Return all numbers."""
        return map(str, range(self.rows))

    def sizes(self, checkpoints: Mapping[int, Path]) -> dict[Label, int]:
        """Return how many rows each batch has read."""
        found: dict[Label, int] = {}
        for query, checkpoint in checkpoints.items():
            for batch in batches_of(checkpoint):
                source = batch_source(_Files(checkpoint).read, batch)
                starts = sum(source.starts.values())
                found[query, batch] = sum(source.ends.values()) - starts
        return found


@dataclass(slots=True)
class Aggregation:
    """Counts and sums by window and group, for the windows of the first `rows` rows."""

    rows: int
    """A multiple of the rows per window."""
    _expected: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert self.rows % _WINDOW_ROWS == 0, "whole windows are counted"
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for n in range(self.rows):
            row_id = f"{n // _WINDOW_ROWS * WINDOW_MS}.{n * n % GROUPS}"
            counts[row_id] += 1
            sums[row_id] += n
        self._expected = {row_id: f"{count}.{sums[row_id]}" for row_id, count in counts.items()}

    @property
    def source_rows(self) -> int:
        """The last row moves the watermark to the end of the last window."""
        return self.rows + DELAY_MS // STEP_MS + 1

    @property
    def total(self) -> int:
        """How many groups all windows have."""
        return len(self._expected)

    def content(self, row_id: str) -> str | None:
        """Return count and sum."""
        return self._expected.get(row_id)

    def ids(self) -> Iterator[str]:
        """Return all windows with their groups."""
        return iter(self._expected)

    def sizes(self, checkpoints: Mapping[int, Path]) -> dict[Label, int]:
        """Return the number of groups in the windows that each batch's watermark passed."""
        groups = Counter(int(row_id.partition(".")[0]) + WINDOW_MS for row_id in self._expected)
        found: dict[Label, int] = {}
        for query, checkpoint in checkpoints.items():
            before = 0
            for batch in batches_of(checkpoint):
                now = _watermark_ms(checkpoint, batch)
                found[query, batch] = sum(
                    groups[end] for end in range(_next_end(before), now + 1, WINDOW_MS)
                )
                before = now
        return found


JOBS: Mapping[str, type[Copying] | type[Aggregation]] = {"copy": Copying, "aggregate": Aggregation}


@dataclass(frozen=True, slots=True)
class _Files:
    """A checkpoint on this machine."""

    checkpoint: Path

    def read(self, name: str) -> str | None:
        path = self.checkpoint / name
        return path.read_text() if path.exists() else None


def batches_of(checkpoint: Path) -> list[int]:
    """Return the batches that a query has begun, in order."""
    return sorted(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))


def _watermark_ms(checkpoint: Path, batch: int) -> int:
    line = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[1]
    found = json.loads(line)["batchWatermarkMs"]
    assert isinstance(found, int)
    return found


def _next_end(watermark_ms: int) -> int:
    """Return the first window end after a watermark."""
    return (watermark_ms // WINDOW_MS + 1) * WINDOW_MS

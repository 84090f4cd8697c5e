"""What was sent, and what was answered: the side of the senders in the audit of a run.

A sender numbers its records in each partition from 0 on. A *run* is a stretch of them that follow
one another in the log as well; one acknowledged batch is one run, or makes the last one longer.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import msgpack
import numpy as np
from numpy.typing import NDArray

COLUMNS = 6
"""Of a run: partition, sender, first sequence, base offset, count, fate."""
UNKNOWN_OFFSET = -1
Runs = NDArray[np.int64]
"""Rows of `COLUMNS` numbers."""


class Fate(IntEnum):
    """What became of records, as far as their sender knows."""

    ACKNOWLEDGED = 0
    UNANSWERED = 1
    """They may be in the log or not."""
    ABORTED = 2
    """Their transaction was aborted: no reader of committed records may see them."""


@dataclass(slots=True)
class _Last:
    """The newest run of a sender in a partition: `row` is where it begins in the columns."""

    row: int
    next_sequence: int
    next_offset: int
    fate: Fate


class Ledger:
    """The runs of one process's senders since they were last taken."""

    def __init__(self) -> None:
        self._runs: dict[str, array[int]] = {}
        self._last: dict[tuple[str, int, int], _Last] = {}

    def add(
        self,
        topic: str,
        partition: int,
        sender: int,
        first_sequence: int,
        count: int,
        fate: Fate,
        base_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        """Note what became of `count` records; the offset is that of the first."""
        key = (topic, partition, sender)
        last = self._last.get(key)
        next_offset = base_offset + count if base_offset >= 0 else UNKNOWN_OFFSET
        if (
            last is not None
            and last.next_sequence == first_sequence
            and last.fate is fate
            and last.next_offset == base_offset
        ):
            self._runs[topic][last.row + 4] += count
            last.next_sequence += count
            last.next_offset = next_offset
            return
        runs = self._runs.setdefault(topic, array("q"))
        self._last[key] = _Last(len(runs), first_sequence + count, next_offset, fate)
        runs.extend((partition, sender, first_sequence, base_offset, count, fate))

    def take(self) -> bytes:
        """What was noted since the last call, for `read`."""
        runs, self._runs, self._last = self._runs, {}, {}
        return bytes(
            msgpack.packb(
                {topic: np.array(rows, dtype="<i8").tobytes() for topic, rows in runs.items()}
            )
        )


def read(taken: bytes) -> dict[str, Runs]:
    """The runs of each topic in what `take` returned."""
    found: dict[str, bytes] = msgpack.unpackb(taken)
    return {
        topic: np.frombuffer(rows, dtype="<i8").astype(np.int64).reshape(-1, COLUMNS)
        for topic, rows in found.items()
    }


def merged(parts: Iterable[bytes]) -> dict[str, Runs]:
    """The runs of several processes, or several times, by topic."""
    runs: dict[str, list[Runs]] = {}
    for part in parts:
        for topic, rows in read(part).items():
            runs.setdefault(topic, []).append(rows)
    return {topic: np.concatenate(rows) for topic, rows in runs.items()}

"""What was sent and how it was answered: the producers' side of an audit.

A sender numbers its records in each partition from 0. A *run* is a sequence of them that is
contiguous in the log, too. An acknowledged batch is one run or extends the last one.
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
"""The columns of a run: partition, sender, first sequence, base offset, count, fate."""
UNKNOWN_OFFSET = -1
Runs = NDArray[np.int64]
"""Rows with `COLUMNS` numbers."""


class Fate(IntEnum):
    """The fate of records, as far as their sender knows."""

    ACKNOWLEDGED = 0
    UNANSWERED = 1
    """They may be in the log or not."""
    ABORTED = 2
    """Their transaction was aborted: read_committed must not return them."""


@dataclass(slots=True)
class _Last:
    """The newest run of a sender in a partition. `row` is the index of its first column."""

    row: int
    next_sequence: int
    next_offset: int
    fate: Fate


class Ledger:
    """The runs of one process's senders since the last `take`."""

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
        """Add the fate of `count` records. The offset is that of the first one."""
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
        """The runs since the last call, encoded for `read`."""
        runs, self._runs, self._last = self._runs, {}, {}
        return bytes(
            msgpack.packb(
                {topic: np.array(rows, dtype="<i8").tobytes() for topic, rows in runs.items()}
            )
        )


def read(taken: bytes) -> dict[str, Runs]:
    """Decode what `take` returned: runs by topic."""
    found: dict[str, bytes] = msgpack.unpackb(taken)
    return {
        topic: np.frombuffer(rows, dtype="<i8").astype(np.int64).reshape(-1, COLUMNS)
        for topic, rows in found.items()
    }


def merged(parts: Iterable[bytes]) -> dict[str, Runs]:
    """The runs of several `take`s, by topic."""
    runs: dict[str, list[Runs]] = {}
    for part in parts:
        for topic, rows in read(part).items():
            runs.setdefault(topic, []).append(rows)
    return {topic: np.concatenate(rows) for topic, rows in runs.items()}

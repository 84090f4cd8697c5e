"""Finds records that readers should have received by the end of a run, and did not.

Readers know which offsets they have read, and the audit knows which records the log has. A record
that a reader has not received is a failure of "end-to-end" in the second of its intended time.
Otherwise a reader that stops or skips records would look like one that was always quick.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from raylog.client import TopicPartition
from raylog.loadtest.histograms import Numbers
from raylog.loadtest.results import Interval, Operation
from raylog.loadtest.scenario import CatchUpUsers, ConsumerUsers, GroupUsers, Scenario

UNRECEIVED = "was not received by the end of the run"
LAST_S = 2.0
"""Records meant for the last seconds of a run may still be in flight."""
_COLUMNS = 3
Position = tuple[str, str, int]
"""A reader, a topic and a partition."""


def reader_of(number: int, users: ConsumerUsers | GroupUsers | CatchUpUsers) -> str:
    """The reader: a group, or the users of a scenario's entry."""
    return f"group {users.group}" if isinstance(users, GroupUsers) else f"users {number}"


def readers(scenario: Scenario) -> set[tuple[str, str]]:
    """Each reader that follows a topic, and the topic."""
    return {
        (reader_of(number, users), users.topic)
        for number, users in enumerate(scenario.users)
        if isinstance(users, ConsumerUsers | GroupUsers)
    }


class RecordRuns:
    """Offsets of a partition's records, and the seconds for which they were meant."""

    def __init__(self) -> None:
        self.rows = array("q")
        """First offset, second and count of contiguous records."""

    def add(self, offsets: Numbers, seconds: Numbers) -> None:
        """Add the next records."""
        if not len(offsets):
            return
        is_new = (np.diff(offsets) != 1) | (np.diff(seconds) != 0)
        starts = np.concatenate(([0], np.flatnonzero(is_new) + 1))
        counts = np.diff(np.concatenate((starts, [len(offsets)])))
        found = np.stack((offsets[starts], seconds[starts], counts), axis=1).astype(np.int64)
        rows = self.rows
        if rows and (rows[-3] + rows[-1], rows[-2]) == (found[0, 0], found[0, 1]):
            rows[-1] += int(found[0, 2])
            found = found[1:]
        rows.frombytes(found.tobytes())

    def missing_in(self, received: RecordRuns) -> Counter[int]:
        """The number of records that others lack, by second. Seconds of `received` do not count."""
        firsts, seconds, counts = self._columns()
        left = counts - received._below(firsts + counts) + received._below(firsts)
        found: Counter[int] = Counter()
        for second, count in zip(seconds.tolist(), left.tolist(), strict=True):
            found[second] += count
        return +found

    def _below(self, offsets: Numbers) -> Numbers:
        """The number of records before each of some offsets. Runs may overlap, in any order."""
        firsts, _, counts = self._columns()
        order = np.argsort(firsts)
        ends = np.concatenate(([0], np.maximum.accumulate((firsts + counts)[order])))
        starts = np.maximum(firsts[order], ends[:-1])
        totals = np.concatenate(([0], np.cumsum(ends[1:] - starts)))
        at = np.searchsorted(starts, offsets)
        found: Numbers = totals[at] - np.maximum(ends[at] - offsets, 0)
        return found

    def _columns(self) -> Numbers:
        """First offsets, seconds and counts."""
        return np.array(self.rows, np.int64).reshape(-1, _COLUMNS).T


def unreceived(
    of_readers: Iterable[tuple[str, str]],
    received: Mapping[Position, RecordRuns],
    written: Mapping[TopicPartition, RecordRuns],
    name_of: Callable[[str], str],
    ended_s: float,
) -> Counter[int]:
    """The records that readers have not received, by second. `name_of` gives names in the run."""
    found: Counter[int] = Counter()
    for reader, topic in of_readers:
        name = name_of(topic)
        for key, of in written.items():
            if key.topic == name:
                found += of.missing_in(received.get((reader, *key), RecordRuns()))
    return Counter(
        {second: count for second, count in found.items() if 0 <= second < int(ended_s - LAST_S)}
    )


def as_failures(operation: str, seconds: Mapping[int, int]) -> Operation:
    """An operation with these failures by second."""
    count = sum(seconds.values())
    return Operation(
        name=operation,
        errors={UNRECEIVED: count} if count else {},
        intervals=[
            Interval(second=second, requests=0, failures=failures, bytes=0, latencies="")
            for second, failures in sorted(seconds.items())
        ],
    )

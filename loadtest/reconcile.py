"""Compares the acknowledged records of one partition with its log, using columns.

| finding | meaning |
|---|---|
| lost | acknowledged, and not in the log although the reader has passed its offset |
| doubled | in the log more than once |
| reordered | after a record that its sender sent later |
| unknown | in the log, but not sent by anyone in this run |
| wrong-offset | acknowledged with another offset than it has |
| aborted-seen | readable although its transaction was aborted |

Both sides come as runs (`ledger.py`) of 40 bytes, which are kept until they are settled. A sender's
records are settled in order, up to the first one whose fate is open. If a settled record comes
again, it is doubled. Nothing is done per record.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raylog.client import TopicPartition
from raylog.loadtest.findings import Findings, Kind
from raylog.loadtest.histograms import Numbers
from raylog.loadtest.ledger import Fate, Runs
from raylog.loadtest.local import SENDERS_PER_WORKER

_SEQUENCE_BITS = 40
SEQUENCES = 1 << _SEQUENCE_BITS
_SENDER, _FIRST, _OFFSET, _COUNT, _FATE = range(5)
_COLUMNS = 5
_NOWHERE = -1


class Counts(NamedTuple):
    """Counts of records, of a partition or in total."""

    acknowledged: int
    unanswered: int
    found: int


def runs_of(offsets: Numbers, senders: Numbers, sequences: Numbers) -> Numbers:
    """Records in log order as rows of sender, first sequence, offset and count."""
    follows = (np.diff(senders) == 0) & (np.diff(sequences) == 1) & (np.diff(offsets) == 1)
    starts = np.concatenate(([0], np.flatnonzero(~follows) + 1))
    counts = np.diff(np.concatenate((starts, [len(offsets)])))
    return np.stack((senders[starts], sequences[starts], offsets[starts], counts), axis=1)


class PartitionAudit:
    """The audit of one partition, from its first record."""

    def __init__(self, key: TopicPartition, findings: Findings) -> None:
        self._key = key
        self._findings = findings
        self._sent: list[Numbers] = []
        self._found: list[Numbers] = []
        self._backward: list[tuple[int, int, int]] = []
        """Sender, first and end of records that came after later ones."""
        self._highest: dict[int, int] = {}
        """By sender, the end of the highest sequence found."""
        self._settled: dict[int, int] = {}
        """By sender, the end of what is settled."""
        self._deleted: list[tuple[int, int]] = []
        """Offsets that retention deleted before they were read."""
        self._acknowledged = self._unanswered = self._count = 0

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        return Counts(self._acknowledged, self._unanswered, self._count)

    @property
    def held_runs(self) -> int:
        """The number of runs that are not settled."""
        return sum(map(len, self._sent)) + sum(map(len, self._found))

    # ---- input -----------------------------------------------------------------------------------

    def sent(self, runs: Runs) -> None:
        """Add runs of the ledger in this partition."""
        rows = runs[:, 1:]
        self._acknowledged += int(rows[rows[:, _FATE] == Fate.ACKNOWLEDGED, _COUNT].sum())
        self._unanswered += int(rows[rows[:, _FATE] == Fate.UNANSWERED, _COUNT].sum())
        self._sent.append(rows)

    def found(self, offsets: Numbers, senders: Numbers, sequences: Numbers) -> None:
        """Add records in log order. Their run and checksum are checked."""
        self._count += len(offsets)
        strange = (sequences < 0) | (sequences >= SEQUENCES)
        if strange.any():
            self._add("unknown", int(strange.sum()), "a sequence number that nobody uses")
            offsets, senders, sequences = (
                column[~strange] for column in (offsets, senders, sequences)
            )
        if not len(offsets):
            return
        runs = runs_of(offsets, senders, sequences)
        self._note_backward(runs)
        self._found.append(runs)

    def deleted(self, first_offset: int, end_offset: int) -> None:
        """Add offsets that retention deleted before they were read."""
        self._deleted.append((first_offset, end_offset))

    def _note_backward(self, runs: Numbers) -> None:
        order = np.argsort(runs[:, _SENDER], kind="stable")
        senders, firsts, counts = (runs[order, at] for at in (_SENDER, _FIRST, _COUNT))
        ends = firsts + counts
        known, starts = np.unique(senders, return_index=True)
        bounds = [*starts.tolist(), len(senders)]
        for sender, start, end in zip(known.tolist(), bounds, bounds[1:], strict=False):
            before = self._highest.get(sender, 0)
            highest = np.maximum.accumulate(np.concatenate(([before], ends[start:end])))
            for at in np.flatnonzero(firsts[start:end] < highest[:-1]).tolist():
                stop = min(int(ends[start + at]), int(highest[at]))
                self._backward.append((sender, int(firsts[start + at]), stop))
            self._highest[sender] = int(highest[-1])

    # ---- settling --------------------------------------------------------------------------------

    def settle(self, position: int) -> None:
        """Compare what both sides know, after reading everything before `position`."""
        sent, found = self._together()
        limits = self._limits(sent, position)
        self._compare(sent, found, limits, ())

    def finish(self, incomplete: Collection[int] = ()) -> None:
        """Compare the rest, after reading everything.

        Workers with an `incomplete` ledger may have sent unknown records.
        """
        sent, found = self._together()
        limits = dict.fromkeys(_senders(sent, found), SEQUENCES)
        self._compare(sent, found, limits, incomplete)

    def _together(self) -> tuple[Numbers, Numbers]:
        sent = np.concatenate([np.empty((0, _COLUMNS), np.int64), *self._sent])
        found = np.concatenate([np.empty((0, _COLUMNS - 1), np.int64), *self._found])
        self._sent, self._found = [], []
        return sent, found

    def _limits(self, sent: Numbers, position: int) -> dict[int, int]:
        """By sender, the end of the sequences that can be settled."""
        limits = {}
        order = np.lexsort((sent[:, _FIRST], sent[:, _SENDER]))
        sent = sent[order]
        known, starts = np.unique(sent[:, _SENDER], return_index=True)
        bounds = [*starts.tolist(), len(sent)]
        for sender, start, end in zip(known.tolist(), bounds, bounds[1:], strict=False):
            rows = sent[start:end]
            firsts, ends = rows[:, _FIRST], rows[:, _FIRST] + rows[:, _COUNT]
            limit = min(int(ends[-1]), self._highest.get(sender, 0))
            expected = np.concatenate(([self._settled.get(sender, 0)], ends[:-1]))
            is_ahead = rows[:, _OFFSET] + rows[:, _COUNT] > position
            is_open = (rows[:, _FATE] == Fate.ACKNOWLEDGED) & is_ahead
            blocked = np.flatnonzero((firsts != expected) | is_open)
            if len(blocked):
                limit = min(limit, int(expected[blocked[0]]))
            limits[sender] = limit
        return limits

    def _compare(
        self,
        sent: Numbers,
        found: Numbers,
        limits: dict[int, int],
        incomplete: Collection[int],
    ) -> None:
        """Settle everything below the limits and keep the rest."""
        senders = _senders(sent, found)
        ends = np.array([limits.get(sender, 0) for sender in senders.tolist()], np.int64)
        sent, kept_sent = _divided(sent, senders, ends)
        found, kept_found = _divided(found, senders, ends)
        self._sent, self._found = [kept_sent], [kept_found]
        again, found = self._without_settled(found, senders)
        if again:
            self._add("doubled", again, "records that were read before")
        if len(sent) or len(found):
            axis = _Axis(senders, sent, found)
            self._judge(axis, incomplete)
            self._count_reordered(axis, limits)
        self._settled.update(
            {
                sender: limit
                for sender, limit in limits.items()
                if limit > self._settled.get(sender, 0)
            }
        )

    def _without_settled(self, found: Numbers, senders: Numbers) -> tuple[int, Numbers]:
        """The number of records that were settled before, and the runs without them."""
        ends = np.array([self._settled.get(sender, 0) for sender in senders.tolist()], np.int64)
        again, rest = _divided(found, senders, ends)
        return int(again[:, _COUNT].sum()), rest

    def _judge(self, axis: _Axis, incomplete: Collection[int]) -> None:
        lengths, is_found = axis.lengths, axis.found > 0
        again = np.maximum(axis.found - 1, 0) * lengths
        self._tell(axis, "doubled", again, "is in the log {times} times")
        self._tell(axis, "lost", self._lost(axis), "was acknowledged, but is not in the log")
        is_unknown = is_found & (axis.sent == 0)
        if incomplete:
            workers = axis.senders_of() // SENDERS_PER_WORKER
            is_unknown &= ~np.isin(workers, list(incomplete))
        self._tell(axis, "unknown", lengths * is_unknown, "was not sent by this run")
        is_aborted = is_found & (axis.aborted > 0)
        self._tell(axis, "aborted-seen", lengths * is_aborted, "belongs to an aborted transaction")
        is_known = (axis.placed == 1) & (axis.acknowledged == 1) & (axis.found == 1)
        is_wrong = is_known & (axis.placed_at != axis.found_at)
        text = "was acknowledged at offset {said}, but is at {at}"
        self._tell(axis, "wrong-offset", lengths * is_wrong, text)

    def _lost(self, axis: _Axis) -> Numbers:
        """The number of lost records per piece, without those that retention deleted."""
        lost: Numbers = axis.lengths * ((axis.acknowledged > 0) & (axis.found == 0))
        firsts = axis.starts + axis.placed_at
        ends = firsts + axis.lengths
        for first, end in self._deleted:
            deleted = np.minimum(ends, end) - np.maximum(firsts, first)
            lost -= np.where((lost > 0) & (axis.placed > 0), np.maximum(deleted, 0), 0)
        return lost

    def _tell(self, axis: _Axis, kind: Kind, counts: Numbers, text: str) -> None:
        """Report wrong records per piece."""
        for place in np.flatnonzero(counts).tolist():
            self._add(kind, int(counts[place]), axis.describe(place, text))

    def _count_reordered(self, axis: _Axis, limits: dict[int, int]) -> None:
        """Count the records that came after later ones and exist exactly once."""
        left = []
        for sender, first, end in self._backward:
            limit = limits.get(sender, 0)
            if first >= limit:
                left.append((sender, first, end))
                continue
            if end > limit:
                left.append((sender, limit, end))
            count = axis.once(sender, max(first, self._settled.get(sender, 0)), min(end, limit))
            if count:
                text = f"record {first} of sender {sender} comes after one that was sent later"
                self._add("reordered", count, text)
        self._backward = left

    def _add(self, kind: Kind, count: int, text: str) -> None:
        self._findings.add(kind, self._key, text, count)


class _Axis:
    """All senders' sequence numbers on one axis, cut wherever a run begins or ends.

    Columns have a value per piece: how many runs of a kind cover it, and what to add to a place on
    the axis to get its offset (valid if exactly one run covers it).
    """

    def __init__(self, senders: Numbers, sent: Numbers, found: Numbers) -> None:
        self._senders = senders
        of_sent, of_found = self._keys(sent), self._keys(found)
        ends_sent, ends_found = of_sent + sent[:, _COUNT], of_found + found[:, _COUNT]
        cuts = np.unique(np.concatenate((of_sent, ends_sent, of_found, ends_found)))
        self._cuts = cuts
        self.starts, self.lengths = cuts[:-1], np.diff(cuts)
        fates = sent[:, _FATE]
        is_acknowledged = fates == Fate.ACKNOWLEDGED
        is_placed = is_acknowledged & (sent[:, _OFFSET] >= 0)

        def covered(starts: Numbers, ends: Numbers, weights: Numbers | int = 1) -> Numbers:
            changes = np.zeros(len(cuts), np.int64)
            np.add.at(changes, np.searchsorted(cuts, starts), weights)
            np.subtract.at(changes, np.searchsorted(cuts, ends), weights)
            return np.cumsum(changes)[:-1]

        def of_fate(chosen: NDArray[np.bool_]) -> Numbers:
            return covered(of_sent[chosen], ends_sent[chosen])

        self.sent = covered(of_sent, ends_sent)
        self.acknowledged = of_fate(is_acknowledged)
        self.aborted = of_fate(fates == Fate.ABORTED)
        self.placed = of_fate(is_placed)
        self.placed_at = covered(
            of_sent[is_placed],
            ends_sent[is_placed],
            sent[is_placed, _OFFSET] - of_sent[is_placed],
        )
        self.found = covered(of_found, ends_found)
        self.found_at = covered(of_found, ends_found, found[:, _OFFSET] - of_found)

    def _keys(self, runs: Numbers) -> Numbers:
        ranks: Numbers = np.searchsorted(self._senders, runs[:, _SENDER])
        return (ranks << (_SEQUENCE_BITS + 1)) + runs[:, _FIRST]

    def senders_of(self) -> Numbers:
        """The sender of each piece."""
        senders: Numbers = self._senders[self.starts >> (_SEQUENCE_BITS + 1)]
        return senders

    def once(self, sender: int, first: int, end: int) -> int:
        """The number of a sender's records that exist exactly once."""
        if first >= end:
            return 0
        base = int(np.searchsorted(self._senders, sender)) << (_SEQUENCE_BITS + 1)
        begin, stop = np.searchsorted(self._cuts, (base + first, base + end))
        inside = slice(int(begin), int(stop))
        return int(self.lengths[inside][self.found[inside] == 1].sum())

    def describe(self, place: int, text: str) -> str:
        """Describe the first record of a piece."""
        start = int(self.starts[place])
        rank, sequence = divmod(start, 1 << (_SEQUENCE_BITS + 1))
        said, at = start + int(self.placed_at[place]), start + int(self.found_at[place])
        line = text.format(times=int(self.found[place]), said=said, at=at)
        where = (
            f", acknowledged at offset {said}," if "not in the log" in text and said >= 0 else ""
        )
        return f"record {sequence} of sender {int(self._senders[rank])}{where} {line}"


def _senders(sent: Numbers, found: Numbers) -> Numbers:
    return np.unique(np.concatenate((sent[:, _SENDER], found[:, _SENDER])))


def _divided(runs: Numbers, senders: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Runs below each sender's end and the others. A run may be split."""
    if not len(runs):
        return runs, runs
    limits = ends[np.searchsorted(senders, runs[:, _SENDER])]
    room = limits - runs[:, _FIRST]
    below = runs[room > 0].copy()
    below[:, _COUNT] = np.minimum(below[:, _COUNT], room[room > 0])
    above = runs[room < runs[:, _COUNT]].copy()
    cut = np.maximum(room[room < runs[:, _COUNT]], 0)
    above[:, _FIRST] += cut
    above[:, _COUNT] -= cut
    above[:, _OFFSET] += np.where(above[:, _OFFSET] >= 0, cut, 0)
    return below, above

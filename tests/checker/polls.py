"""Checks what each process read: forwards, and without omissions.

The position of a process in a partition is the offset after the last record that it got, or its
start offset. A reset makes positions unknown. A reset during a poll may come before, after or
between the records of that poll, so its partitions are not checked in that poll.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.checker.anomalies import Anomaly, Kind
from tests.checker.index import Fate, Index
from tests.checker.offsets import name_of
from tests.checker.operations import (
    Assign,
    Batch,
    Partition,
    Poll,
    Rebalance,
    Reset,
    Seek,
    Subscribe,
)

_SHOWN_MAX = 5
_NEVER = -1


def check_polls(index: Index) -> Iterator[Anomaly]:
    """Check order and completeness of every process's polls."""
    visible = _Visible(index)
    for process, operations in index.history.reads.items():
        reader = _Reader(process, visible)
        for operation in operations:
            if isinstance(operation, Poll):
                yield from reader.poll(operation)
            else:
                reader.reset(operation)


class _Visible:
    """Offsets at which somebody saw a record, which nobody may skip."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._sorted: dict[tuple[Partition, bool], list[int]] = {}

    def between(
        self, partition: Partition, start: int, end: int, *, read_committed: bool
    ) -> list[int]:
        """Visible offsets from `start` to before `end`."""
        key = partition, read_committed
        offsets = self._sorted.get(key)
        if offsets is None:
            offsets = self._sorted[key] = self._offsets(partition, read_committed=read_committed)
        first = bisect_left(offsets, start)
        return [
            offset
            for offset in offsets[first : bisect_left(offsets, end, first)]
            if not self._may_be_gone(partition, offset)
        ]

    def values(self, partition: Partition, offsets: list[int]) -> tuple[str, ...]:
        """The values at the first few of these offsets."""
        at = self._index.logs[partition].at
        return tuple(at[offset] for offset in offsets[:_SHOWN_MAX])

    def _offsets(self, partition: Partition, *, read_committed: bool) -> list[int]:
        log = self._index.logs[partition]
        if not read_committed:
            return sorted(log.polled_committed | log.polled_uncommitted)
        # Records that must not be visible are reported for the reader that saw them.
        never = self._index.never_visible
        return sorted(offset for offset in log.polled_committed if log.at[offset] not in never)

    def _may_be_gone(self, partition: Partition, offset: int) -> bool:
        """Whether retention or compaction may have removed the record meanwhile."""
        cover = self._index.covers.get(partition)
        if cover is not None and offset < cover.start:
            return True
        if partition[0] not in self._index.history.compacted:
            return False
        send = self._index.writer.get(self._index.logs[partition].at[offset])
        if send is None:
            return False
        # The cleaner drops aborted records, which readers of uncommitted records had seen.
        aborted = self._index.fate_of(send) is not Fate.COMMITTED
        return aborted or self._index.is_superseded(send, offset)


@dataclass(slots=True)
class _Reader:
    """One process: its positions, and when they were reset."""

    process: str
    visible: _Visible
    positions: dict[Partition, int] = field(default_factory=dict)
    reset_ns: dict[Partition, int] = field(default_factory=dict)
    all_reset_ns: int = _NEVER

    def reset(self, event: Reset) -> None:
        """Forget positions, or set new ones."""
        match event:
            case Assign(_, at_ns, starts):
                self.all_reset_ns = at_ns
                known = [one for one in starts if one.offset is not None]
                self.positions = {one.partition: one.offset or 0 for one in known}
            case Subscribe(_, at_ns):
                self.all_reset_ns = at_ns
                self.positions = {}
            case Rebalance(_, at_ns, _, partitions):
                for partition in partitions:
                    self.positions.pop(partition, None)
                    self.reset_ns[partition] = at_ns
            case Seek(_, at_ns, partition, offset):
                self.reset_ns[partition] = at_ns
                if offset is None:
                    self.positions.pop(partition, None)
                else:
                    self.positions[partition] = offset

    def poll(self, poll: Poll) -> Iterator[Anomaly]:
        """Check a poll and update the positions."""
        for batch in poll.batches:
            partition, offsets, _ = batch
            if not offsets:
                continue
            reset_ns = max(self.all_reset_ns, self.reset_ns.get(partition, _NEVER))
            if reset_ns < poll.invoked_ns:
                yield from self._check(batch, read_committed=poll.read_committed)
            self.positions[partition] = offsets[-1] + 1

    def _check(self, batch: Batch, *, read_committed: bool) -> Iterator[Anomaly]:
        partition, offsets, values = batch
        position = self.positions.get(partition, offsets[0])
        inside = False
        for offset, value in zip(offsets, values, strict=True):
            if offset != position:
                if offset < position:
                    yield self._went_back(partition, position, offset, value, inside=inside)
                else:
                    skipped = self.visible.between(
                        partition, position, offset, read_committed=read_committed
                    )
                    if skipped:
                        yield self._skipped(partition, position, offset, skipped, inside=inside)
            position = offset + 1
            inside = True

    def _went_back(
        self, partition: Partition, position: int, offset: int, value: str, *, inside: bool
    ) -> Anomaly:
        kind = Kind.INTERNAL_NONMONOTONIC_POLL if inside else Kind.NONMONOTONIC_POLL
        return Anomaly(
            kind,
            f"{self.process} stood at {position} of {name_of(partition)} and then got {value} "
            f"at {offset}{' within one poll' if inside else ''}",
            partition,
            (value,),
            (offset, position - 1) if position else (offset,),
            (self.process,),
        )

    def _skipped(
        self, partition: Partition, position: int, offset: int, skipped: list[int], *, inside: bool
    ) -> Anomaly:
        at = self.visible.values(partition, skipped)
        shown = ", ".join(f"{value} at {where}" for where, value in zip(skipped, at, strict=False))
        more = f" and {len(skipped) - len(at)} more" if len(skipped) > len(at) else ""
        kind = Kind.INTERNAL_SKIPPED_POLL if inside else Kind.SKIPPED_POLL
        return Anomaly(
            kind,
            f"{self.process} went from {position} to {offset} of {name_of(partition)}"
            f"{' within one poll' if inside else ''} and left out {shown}{more}",
            partition,
            at,
            (*skipped[:_SHOWN_MAX], offset),
            (self.process,),
        )

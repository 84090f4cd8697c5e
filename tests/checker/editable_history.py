"""A clean history prepared for planting anomalies: what can be changed, and the edits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from tests.checker.history import History
from tests.checker.index import Index
from tests.checker.operations import (
    Action,
    Batch,
    Begin,
    End,
    Operation,
    Outcome,
    Partition,
    Poll,
    Send,
)

STEP_NS = 1_000


class Place(NamedTuple):
    """Where a value was polled."""

    poll: Poll
    batch: Batch
    position: int


class Neighbours(NamedTuple):
    """Two consecutive polls of a partition by one process, without a reset between them."""

    before: Batch
    poll: Poll
    after: Batch


class EditableHistory:
    """A clean history with an index. Edits change its operations in place."""

    def __init__(self, operations: list[Operation], random: Random) -> None:
        self.operations = operations
        self.random = random
        self.index = Index.of(History.of(operations))
        self.places: dict[str, list[Place]] = {}
        for poll in self.index.history.polls:
            for batch in poll.batches:
                for position, value in enumerate(batch[2]):
                    self.places.setdefault(value, []).append(Place(poll, batch, position))
        self._committed = {
            end.transaction
            for end in self.index.history.ends
            if end.action is Action.COMMIT and end.outcome is Outcome.OK
        }
        self._now_ns = 1 + max(self._latest(operation) for operation in operations)

    @staticmethod
    def _latest(operation: Operation) -> int:
        completed = getattr(operation, "completed_ns", getattr(operation, "at_ns", 0))
        assert isinstance(completed, int)
        return completed

    def now_ns(self) -> int:
        """A time later than all others."""
        self._now_ns += STEP_NS
        return self._now_ns

    def end(self, partition: Partition) -> int:
        """An offset above all known ones."""
        log, cover = self.index.logs.get(partition), self.index.covers.get(partition)
        known = max(log.at, default=-1) + 1 if log is not None else 0
        return max(known, cover.end if cover is not None else 0)

    def partitions(self) -> list[Partition]:
        """All partitions that were written or read."""
        return list(self.index.logs)

    # ---- what may be changed -------------------------------------------------------------------

    def is_plain(self, partition: Partition) -> bool:
        """Whether the partition is not compacted, so that missing records are noticed."""
        return partition[0] not in self.index.history.compacted

    def is_certain(self, send: Send) -> bool:
        """Whether a record must be in the log, whatever was read."""
        within = send.transaction
        return send.outcome is Outcome.OK and (within is None or within in self._committed)

    def certain(self) -> list[Send]:
        """Records with known offsets that must be in the logs of partitions without compaction."""
        return [
            send
            for send in self.index.history.sends
            if self.is_certain(send) and send.offset is not None and self.is_plain(send.partition)
        ]

    def committed_places(self, value: str) -> list[Place]:
        """Where readers of committed records got a value."""
        return [place for place in self.places.get(value, ()) if place.poll.read_committed]

    def is_missed(self, poll: Poll, partition: Partition, value: str, offset: int) -> bool:
        """Whether others would reveal that a poll omits a record."""
        cover = self.index.covers.get(partition)
        others = [
            place
            for place in self.places[value]
            if place.poll is not poll and place.poll.read_committed >= poll.read_committed
        ]
        kept = cover is None or offset >= cover.start
        return bool(others) and kept and self.is_plain(partition)

    def neighbours(self) -> Iterator[Neighbours]:
        """Consecutive polls between which a process's position is known."""
        for operations in self.index.history.reads.values():
            last: dict[Partition, Batch] = {}
            for operation in operations:
                if not isinstance(operation, Poll):
                    last.clear()
                    continue
                for batch in operation.batches:
                    if batch[0] in last:
                        yield Neighbours(last[batch[0]], operation, batch)
                    last[batch[0]] = batch

    def undisturbed(self) -> Iterator[tuple[Poll, Batch]]:
        """Polls without a reset meanwhile, by partition."""
        for operations in self.index.history.reads.values():
            reset_ns = -1
            for operation in operations:
                if not isinstance(operation, Poll):
                    reset_ns = operation.at_ns
                elif operation.invoked_ns > reset_ns:
                    yield from ((operation, batch) for batch in operation.batches)

    # -- edits -----------------------------------------------------------------------------------

    def erase(self, value: str) -> None:
        """Remove a value from all polls."""
        for place in self.places.get(value, ()):
            position = place.batch[2].index(value)
            del place.batch[1][position], place.batch[2][position]

    def swap(self, first: Send, second: Send) -> None:
        """Exchange two records, for their producers and for all readers."""
        first.offset, second.offset = second.offset, first.offset
        for one, other in ((first, second), (second, first)):
            for place in self.places.get(one.value, ()):
                place.batch[2][place.position] = other.value

    def add_poll(
        self,
        process: str,
        partition: Partition,
        records: Sequence[tuple[int, str]],
        *,
        read_committed: bool = False,
        transaction: str | None = None,
        at_ns: int | None = None,
    ) -> None:
        """Add a poll of a process, now or at a time."""
        completed_ns = self.now_ns() if at_ns is None else at_ns
        offsets, values = [offset for offset, _ in records], [value for _, value in records]
        batches = [(partition, offsets, values)]
        times = max(0, completed_ns - 1), completed_ns
        self.operations.append(Poll(process, *times, batches, read_committed, transaction))

    def add_send(
        self,
        process: str,
        partition: Partition,
        value: str,
        offset: int | None,
        transaction: str | None = None,
    ) -> None:
        """Add a send of a process. It is acknowledged if it has an offset."""
        outcome = Outcome.UNKNOWN if offset is None else Outcome.OK
        times = self.now_ns(), self.now_ns()
        self.operations.append(
            Send(process, partition, value, *times, outcome, offset, transaction)
        )

    def add_begin(self, process: str, transaction: str) -> None:
        """Add the begin of a transaction."""
        self.operations.append(Begin(process, self.now_ns(), transaction))

    def add_commit(self, process: str, transaction: str) -> None:
        """Add the commit of a transaction."""
        times = self.now_ns(), self.now_ns()
        self.operations.append(End(process, *times, transaction, Action.COMMIT, Outcome.OK))

"""The appends of one shard to its partition: one at a time, what comes meanwhile is the next.

Each append waits until it is below the high watermark, however long that takes, so what follows
is known of all of them at any time:

- What was acknowledged is committed, in the order of the log.
- The one in flight is in the log, or is refused: then nothing of it is there, and never will be.
- What is queued behind it is nowhere but here.

A refused append of records takes back what it changed in the shard, and what is queued behind it
goes with it, for that was decided on its state. A producer's batch or a marker that is refused for
itself takes nothing along: nothing is decided on what it would have changed. In both cases the
shard goes on. Who waits for longer than the time limit is told that the outcome is open; the append
itself, and its changes, stay as they are until the log has decided.

Where the log cannot say what became of an append, because the link broke or leadership ended, this
object ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from raylog.actors.coordination import records
from raylog.actors.coordination.records import Blobs
from raylog.actors.coordination.step import Answer, Change, LogRecord, Step
from raylog.actors.ports import Route
from raylog.actors.replica.api import PRODUCE, UNTIL_COMMITTED, ProducePart, produced
from raylog.actors.runtime.base import Link, Runtime, Timer
from raylog.wire.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLarge,
    RequestTimedOut,
    TransactionAbortable,
    TransactionCoordinatorFenced,
    UnknownServerError,
)

log = logging.getLogger(__name__)
APPEND_RECORDS_MAX = 1_000
"""An append that has so many takes no more: the event loop is not to wait for its bytes."""
APPEND_BYTES_MAX = 1 << 20
"""The same of its bytes: a record may have tens of thousands."""
QUEUED_BYTES_MAX = 32 << 20
"""Where so much is queued who asks for more is told to come again."""
Outcome = Callable[[KafkaError | None], None]
"""Told why a batch is not in the log; None: it is, below the high watermark."""
REFUSALS = (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLarge,
    TransactionAbortable,
    TransactionCoordinatorFenced,
)
"""What a log says of a batch of which it has written nothing.

KAFKA_STORAGE_ERROR is among them: either the disk is full for the moment, or the log is offline
and takes nothing more under this leader epoch, so that nobody will act on the state here.
"""


class Waiting(NamedTuple):
    """What is done when an append and all before it are in the log, or are refused."""

    committed: Callable[[], None] | None
    refused: Callable[[KafkaError], None] | None


@dataclass(slots=True)
class _Append:
    """Records that go into one batch, or a batch as it is, and who waits for it."""

    records: list[LogRecord] = field(default_factory=list)
    blobs: list[Blobs] = field(default_factory=list)
    """The records as they are written."""
    size: int = 0
    """Bytes of the records, or of the batch."""
    changes: list[Change] = field(default_factory=list)
    batch: bytearray | None = None
    outcome: Outcome | None = None
    """Of a batch as it is."""
    expired: Callable[[KafkaError], None] | None = None
    """Told when the time limit has passed."""
    waiting: list[Waiting | Answer] = field(default_factory=list)
    deadline: Timer | None = None
    is_late: bool = False
    """Whether the time limit has passed."""

    @property
    def is_full(self) -> bool:
        """Whether no more records are to be added."""
        return (
            self.batch is not None
            or len(self.records) >= APPEND_RECORDS_MAX
            or self.size >= APPEND_BYTES_MAX
        )

    def take(self, record: LogRecord, blobs: Blobs) -> None:
        """Add a record."""
        key, value = blobs
        self.records.append(record)
        self.blobs.append(blobs)
        self.size += len(key) + len(value or b"")


class Owner(Protocol):
    """The shard that appends."""

    def append_committed(self) -> None:
        """An append of records is in the log; its answers follow."""

    def answer(self, answers: Sequence[Answer]) -> None:
        """What these answers waited for is in the log."""

    def refuse(self, answer: Answer, failure: KafkaError) -> None:
        """What an answer waited for is refused, or takes too long."""

    def append_reverted(self, records: list[LogRecord], failure: KafkaError) -> None:
        """These records were refused; their changes are taken back, and who waited is told."""

    def append_lost(self, failure: Exception) -> None:
        """What the log holds is not known; nothing more is called after this."""


class Appender:
    """Appends under the leader epoch of `route`. After `close` nothing is called any more."""

    def __init__(
        self, runtime: Runtime, link: Link, route: Route, timeout_ms: int, owner: Owner
    ) -> None:
        self._runtime = runtime
        self._link = link
        self._route = route
        self._timeout_ms = timeout_ms
        self._owner = owner
        self._in_flight: _Append | None = None
        self._queue: deque[_Append] = deque()
        """What comes behind it."""
        self._queued_bytes = 0
        self._flush_is_due = False
        self._refusals = 0
        """Appends refused in a row."""

    def __str__(self) -> str:
        return f"partition {self._route.partition} of {self._route.topic_id.hex()}"

    @property
    def is_overdue(self) -> bool:
        """Whether an append is in flight for longer than the time limit: others are to wait."""
        return self._in_flight is not None and self._in_flight.is_late

    @property
    def is_full(self) -> bool:
        """Whether so much is queued that others are to wait: a small request may write a MiB."""
        return self._queued_bytes >= QUEUED_BYTES_MAX

    def add(self, step: Step, stands_alone: Callable[[LogRecord], bool] | None = None) -> None:
        """Append a step's records together.

        A full batch may part them before one that stands alone. Raises EncodeError, and has done
        nothing then, if one of them cannot be written.
        """
        found, changes = step.records, step.changes
        blobs = [records.encode(record) for record in found]
        queue = self._queue
        start = 0
        while start < len(found):
            if not queue or queue[-1].is_full:
                self._queue_append(_Append())
            last = queue[-1]
            end, before = start, last.size
            while end < len(found):
                if last.is_full and stands_alone and stands_alone(found[end]):
                    break
                last.take(found[end], blobs[end])
                end += 1
            self._queued_bytes += last.size - before
            last.changes.extend(changes[start : end if end < len(found) else None])
            start = end

    def add_batch(
        self,
        batch: bytearray,
        outcome: Outcome,
        expired: Callable[[KafkaError], None] | None = None,
    ) -> None:
        """Append one batch as it is: a producer's, or a marker.

        `outcome` is called before those that wait for it, and after those of earlier appends;
        `expired` before it, if that takes longer than the time limit.
        """
        size = len(batch)
        self._queued_bytes += size
        self._queue_append(_Append(batch=batch, size=size, outcome=outcome, expired=expired))

    def when_durable(
        self,
        committed: Callable[[], None] | None,
        refused: Callable[[KafkaError], None] | None = None,
    ) -> None:
        """Call `committed` once all that was added is below the high watermark: now, if it is.

        If the append that this waits for is taken back, `refused` is called instead.
        """
        last = self._queue[-1] if self._queue else self._in_flight
        if last is not None:
            last.waiting.append(Waiting(committed, refused))
        elif committed is not None:
            committed()

    def answer_durably(self, answer: Answer) -> None:
        """Have the owner answer once all that was added is below the high watermark."""
        last = self._queue[-1] if self._queue else self._in_flight
        if last is None:
            self._owner.answer((answer,))
        elif last.is_late:
            self._owner.refuse(answer, self._overdue())
        else:
            last.waiting.append(answer)

    def close(self) -> None:
        """Nothing more is appended, and who waits is not told: the owner knows them."""
        for append in self._all():
            _settle_deadline(append)
        self._in_flight = None
        self._clear_queue()

    def _clear_queue(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0

    def _all(self) -> list[_Append]:
        """Every append that is not settled, in order."""
        first = [] if self._in_flight is None else [self._in_flight]
        return [*first, *self._queue]

    def _queue_append(self, append: _Append) -> None:
        """Append when this turn of the event loop is over, with all that it brings."""
        self._queue.append(append)
        self._limit(append)
        if self._in_flight is None:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._runtime.call_later(0, self._flush)

    def _limit(self, append: _Append) -> None:
        """Let the time limit of an append begin."""
        append.is_late = False
        append.deadline = self._runtime.call_later(
            self._timeout_ms, lambda: self._time_is_up(append)
        )

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._in_flight is not None or not self._queue:
            return
        append = self._in_flight = self._queue.popleft()
        self._queued_bytes -= append.size
        if append.is_late:
            self._limit(append)  # what kept it is over
        try:
            self._send(append)
        except AssertionError:
            raise
        except Exception as failure:
            log.exception("%s: an append cannot be sent", self)
            self._failed(append, UnknownServerError(str(failure)))

    def _send(self, append: _Append) -> None:
        batch = append.batch
        if batch is None:
            batch = bytearray(records.batch_of(append.blobs, self._runtime.now_ms()))
        route = self._route
        part = ProducePart(route.topic_id, route.partition, route.leader_epoch, len(batch))
        self._link.request(
            PRODUCE,
            (UNTIL_COMMITTED, self._timeout_ms, [part]),
            (batch,),
            lambda outcomes, _payload: self._answered(append, outcomes),
            lambda failure: self._failed(append, failure),
        )

    # ---- outcomes ------------------------------------------------------------------------

    def _answered(self, append: _Append, outcomes: list[Any]) -> None:
        if self._in_flight is not append:
            return  # closed meanwhile
        try:
            produced(outcomes[0])
        except REFUSALS as refusal:
            self._refused(append, refusal)
        except KafkaError as failure:
            self._failed(append, failure)
        else:
            self._in_flight = None
            if self._refusals:
                log.warning("%s takes appends again, %d were refused", self, self._refusals)
                self._refusals = 0
            if append.records:
                self._owner.append_committed()
            for change in append.changes:
                change.commit()
            self._settle(append, None)

    def _settle(self, append: _Append, refusal: KafkaError | None) -> None:
        """The append is done with, though itself perhaps not in the log; all before it is."""
        _settle_deadline(append)
        if append.outcome is not None:
            append.outcome(refusal)
        answers: list[Answer] = []
        for one in append.waiting:
            if isinstance(one, Answer):
                answers.append(one)
            elif one.committed is not None:
                self._owner.answer(answers)
                answers = []
                one.committed()
        self._owner.answer(answers)
        if self._queue:
            self._flush_soon()

    def _refused(self, append: _Append, refusal: KafkaError) -> None:
        level = logging.DEBUG if self._refusals else logging.WARNING
        log.log(level, "%s refused an append: %s", self, refusal)
        self._refusals += 1
        if append.batch is not None:
            self._in_flight = None
            self._settle(append, refusal)
            return
        gone = self._all()
        self._in_flight = None
        self._clear_queue()
        for one in reversed(gone):
            _settle_deadline(one)
            if one.outcome is not None:
                one.outcome(refusal)
            for change in reversed(one.changes):
                change.revert()
        for waiting in [waiting for one in gone for waiting in one.waiting]:
            if isinstance(waiting, Answer):
                self._owner.refuse(waiting, refusal)
            elif waiting.refused is not None:
                waiting.refused(refusal)
        self._owner.append_reverted([record for one in gone for record in one.records], refusal)

    def _failed(self, append: _Append, failure: Exception) -> None:
        if self._in_flight is append:
            log.warning("%s failed an append: %s", self, failure)
            self.close()
            self._owner.append_lost(failure)

    def _time_is_up(self, append: _Append) -> None:
        """Tell who has waited for long enough; what else waits goes on."""
        append.deadline, append.is_late = None, True
        late = [one for one in append.waiting if isinstance(one, Answer)]
        append.waiting = [one for one in append.waiting if not isinstance(one, Answer)]
        overdue = self._overdue()
        if append.expired is not None:
            append.expired(overdue)
        for answer in late:
            self._owner.refuse(answer, overdue)

    def _overdue(self) -> KafkaError:
        return RequestTimedOut(f"not below the high watermark after {self._timeout_ms} ms")


def _settle_deadline(append: _Append) -> None:
    if append.deadline is not None:
        append.deadline.cancel()
        append.deadline = None

"""Appends of one shard to its partition: one at a time; those added meanwhile are sent next.

An append waits until it is below the high watermark, however long that takes. So at any time:

- What was acknowledged is committed, in the order of the log.
- The append in flight is in the log, or it is refused: then no part of it is there or ever will be.
- What is queued behind it exists only here.

If an append of records is refused, its changes in the shard are reverted, and so is everything
queued behind it, which was decided on that state. A refused producer's batch or marker affects
nothing else, because nothing is decided on its outcome. In both cases the shard continues. A
request that exceeds the time limit gets REQUEST_TIMED_OUT; the append and its changes stay until
the log has decided.

If the link breaks or the leadership ends, the outcome of the append cannot be known, and this
object ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from raylog.actors.common_messages import Route
from raylog.actors.coordination.rules import records
from raylog.actors.coordination.rules.records import Blobs
from raylog.actors.coordination.rules.step import Answer, Change, LogRecord, Step
from raylog.actors.replica.messages import PRODUCE, UNTIL_COMMITTED, ProducePart, produced
from raylog.actors.runtime.base import Link, Runtime, Timer
from raylog.wire.errors import (
    EncodeError,
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
from raylog.wire.internal.offsets import OffsetCommitKey
from raylog.wire.internal.transactions import TransactionLogKey

log = logging.getLogger(__name__)
APPEND_RECORDS_MAX = 1_000
"""An append with this many records takes no more, so that encoding does not block the loop."""
APPEND_BYTES_MAX = 1 << 20
"""The same limit in bytes: one record may have tens of thousands."""
TOGETHER_BYTES_MAX = 8 << 20
"""Limit for records that must be in one batch; Kafka's is the topic's max.message.bytes. The log
itself would accept a batch that is too large for its cleaner, or for a link."""
QUEUED_BYTES_MAX = 32 << 20
"""While this much is queued, new requests are refused with a retriable error."""
Outcome = Callable[[KafkaError | None], None]
"""Called with the reason why a batch is not in the log, or None once it is committed."""
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
"""Errors that mean that the log has written nothing of a batch.

KAFKA_STORAGE_ERROR is among them: either the disk is full for now, or the log is offline and
accepts nothing more under this leader epoch, so that nobody will act on the state here.
"""


class Waiting(NamedTuple):
    """Callbacks for when an append and all before it are in the log, or are refused."""

    committed: Callable[[], None] | None
    refused: Callable[[KafkaError], None] | None


@dataclass(slots=True)
class _Append:
    """Records for one batch, or a finished batch, and what waits for it."""

    records: list[LogRecord] = field(default_factory=list)
    blobs: list[Blobs] = field(default_factory=list)
    """The encoded records."""
    size: int = 0
    """Size of the records, or of the batch, in bytes."""
    changes: list[Change] = field(default_factory=list)
    batch: bytearray | None = None
    outcome: Outcome | None = None
    """Callback for the outcome of a finished batch."""
    expired: Callable[[KafkaError], None] | None = None
    """Called when the time limit has passed."""
    waiting: list[Waiting | Answer] = field(default_factory=list)
    deadline: Timer | None = None
    is_late: bool = False
    """Whether the time limit has passed."""

    @property
    def is_full(self) -> bool:
        """Whether no more records can be added."""
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
        """Called when an append of records is committed, before its answers."""

    def answer(self, answers: Sequence[Answer]) -> None:
        """Send answers: everything that they waited for is committed."""

    def refuse(self, answer: Answer, failure: KafkaError) -> None:
        """Fail an answer: what it waited for was refused, or took too long."""

    def append_reverted(self, records: list[LogRecord], failure: KafkaError) -> None:
        """Called when records were refused, their changes reverted and their requests failed."""

    def append_lost(self, failure: Exception) -> None:
        """Called last, when the contents of the log are unknown."""


class Appender:
    """Appends under the leader epoch of `route`. After `close` no callback is called."""

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
        """Appends behind the one in flight."""
        self._queued_bytes = 0
        self._flush_is_due = False
        self._refusals = 0
        """Consecutive refused appends."""

    def __str__(self) -> str:
        return f"partition {self._route.partition} of {self._route.topic_id.hex()}"

    @property
    def is_overdue(self) -> bool:
        """Whether the append in flight exceeds the time limit, so that new writes must wait."""
        return self._in_flight is not None and self._in_flight.is_late

    @property
    def is_full(self) -> bool:
        """Whether too much is queued for new writes: even a small request may write a MiB."""
        return self._queued_bytes >= QUEUED_BYTES_MAX

    def add(self, step: Step) -> None:
        """Append a step's records together.

        If the batch becomes full, they may be split before a record that stands alone. Raises
        EncodeError, without having added anything, if a record cannot be encoded, or if records
        that must stay together are too large.
        """
        found, changes = step.records, step.changes
        blobs = [records.encode(record) for record in found]
        _check_sizes(found, blobs)
        queue = self._queue
        start = 0
        while start < len(found):
            if not queue or queue[-1].is_full:
                self._queue_append(_Append())
            last = queue[-1]
            end, before = start, last.size
            while end < len(found):
                if last.is_full and isinstance(found[end].key, OffsetCommitKey):
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
        """Append a finished batch: a producer's, or a marker.

        `outcome` is called before the callbacks that wait for this batch and after those of earlier
        appends. If that takes longer than the time limit, `expired` is called before.
        """
        size = len(batch)
        self._queued_bytes += size
        self._queue_append(_Append(batch=batch, size=size, outcome=outcome, expired=expired))

    def when_durable(
        self,
        committed: Callable[[], None] | None,
        refused: Callable[[KafkaError], None] | None = None,
    ) -> None:
        """Call `committed` once everything added so far is committed, which may be now.

        If the append that this waits for is reverted, `refused` is called instead.
        """
        last = self._queue[-1] if self._queue else self._in_flight
        if last is not None:
            last.waiting.append(Waiting(committed, refused))
        elif committed is not None:
            committed()

    @property
    def is_idle(self) -> bool:
        """Whether everything added so far is committed."""
        return self._in_flight is None and not self._queue

    def answer_durably(self, answer: Answer) -> None:
        """Let the owner answer once everything added so far is committed; there is something."""
        last = self._queue[-1] if self._queue else self._in_flight
        assert last is not None, "the owner answers by itself"
        if last.is_late:
            self._owner.refuse(answer, self._overdue())
        else:
            last.waiting.append(answer)

    def close(self) -> None:
        """Stop appending. Nothing is called back: the owner knows what waits."""
        for append in self._all():
            _settle_deadline(append)
        self._in_flight = None
        self._clear_queue()

    def _clear_queue(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0

    def _all(self) -> list[_Append]:
        """Return all appends that are not settled, in order."""
        first = [] if self._in_flight is None else [self._in_flight]
        return [*first, *self._queue]

    def _queue_append(self, append: _Append) -> None:
        """Queue an append. It is sent after this turn of the event loop, with all that joins it."""
        self._queue.append(append)
        self._limit(append)
        if self._in_flight is None:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._runtime.call_later(0, self._flush)

    def _limit(self, append: _Append) -> None:
        """Start the time limit of an append."""
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
            self._limit(append)  # the wait for the previous append does not count
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
        """Finish an append whose predecessors are all committed, itself perhaps refused."""
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
        """Fail the requests that have waited too long. The append and the other waiters stay."""
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


def _check_sizes(found: Sequence[LogRecord], blobs: Sequence[Blobs]) -> None:
    """Raise EncodeError if records that must be in one batch are too large.

    Offsets may be split. Transactions count one by one, because timeouts abort many at once.
    """
    size = 0
    for record, (key, value) in zip(found, blobs, strict=True):
        if isinstance(record.key, (OffsetCommitKey, TransactionLogKey)):
            size = 0
        size += len(key) + len(value or b"")
        if size > TOGETHER_BYTES_MAX:
            raise EncodeError(
                f"records up to {type(record.key).__name__} that must be in one batch have {size} "
                f"bytes, at most {TOGETHER_BYTES_MAX} are allowed"
            )


def _settle_deadline(append: _Append) -> None:
    if append.deadline is not None:
        append.deadline.cancel()
        append.deadline = None

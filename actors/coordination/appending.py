"""The appends of one shard to its partition: one at a time, what comes meanwhile is the next.

An append is acknowledged by all in-sync replicas, so that it is below the high watermark then. One
that fails, or whose outcome is unknown, ends this object: the log alone knows what it holds. But a
producer's batch may be refused for itself, and is then surely not in the log: the others go on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.coordination import records
from raylog.actors.coordination.step import LogRecord
from raylog.actors.ports import Route
from raylog.actors.replica.api import PRODUCE, ProducePart, produced
from raylog.actors.runtime.base import Link, PeerTimeout, Runtime, Timer
from raylog.wire.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    KafkaError,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLarge,
    TransactionAbortable,
    TransactionCoordinatorFenced,
)

log = logging.getLogger(__name__)
ACKS_ALL = -1
DEADLINE_GRACE_MS = 1_000
"""How much longer than the append may take its answer is waited for."""
APPEND_RECORDS_MAX = 1_000
"""An append that has so many takes no more: the event loop is not to wait for its bytes."""
Outcome = Callable[[KafkaError | None], None]
"""Told why a batch is not in the log; None: it is, below the high watermark."""
REFUSALS = (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLarge,
    TransactionAbortable,
    TransactionCoordinatorFenced,
)
"""What a log says of one batch before it writes any of it."""


@dataclass(slots=True)
class _Append:
    """Records that go into one batch, or a batch as it is, and who waits for it."""

    records: list[LogRecord] = field(default_factory=list)
    batch: bytearray | None = None
    outcome: Outcome | None = None
    """Of a batch as it is: may be refused for itself."""
    waiting: list[Callable[[], None]] = field(default_factory=list)


class Appender:
    """Appends under the leader epoch of `route`; `failed` is called once, with why.

    After that, and after `close`, nothing is called any more.
    """

    def __init__(
        self,
        runtime: Runtime,
        link: Link,
        route: Route,
        timeout_ms: int,
        failed: Callable[[Exception], None],
    ) -> None:
        self._runtime = runtime
        self._link = link
        self._route = route
        self._timeout_ms = timeout_ms
        self._told = failed
        self._in_flight: _Append | None = None
        self._queue: deque[_Append] = deque()
        """What comes behind it."""
        self._flush_is_due = False
        self._deadline: Timer | None = None

    def add(
        self, found: Sequence[LogRecord], stands_alone: Callable[[LogRecord], bool] | None = None
    ) -> None:
        """Append records together; a full batch may part them before one that stands alone."""
        queue = self._queue
        start = 0
        while start < len(found):
            if not queue or queue[-1].batch or len(queue[-1].records) >= APPEND_RECORDS_MAX:
                queue.append(_Append())
            last = queue[-1].records
            end = min(len(found), start + APPEND_RECORDS_MAX - len(last))
            while end < len(found) and not (stands_alone and stands_alone(found[end])):
                end += 1
            last.extend(found[start:end])
            start = end
        self._schedule()

    def add_batch(self, batch: bytearray, outcome: Outcome) -> None:
        """Append one batch as it is: a producer's, or a marker.

        `outcome` is called before those that wait for it, and after those of earlier appends.
        """
        self._queue.append(_Append(batch=batch, outcome=outcome))
        self._schedule()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Run `callback` once all that was added is below the high watermark: now, if it is."""
        last = self._queue[-1] if self._queue else self._in_flight
        if last is None:
            callback()
        else:
            last.waiting.append(callback)

    def close(self) -> None:
        """Nothing more is appended, and who waits is not told: the owner knows them."""
        self._in_flight = None
        self._queue.clear()
        self._settle_deadline()

    def _schedule(self) -> None:
        """Append when this turn of the event loop is over, with all that it brings."""
        if not self._flush_is_due and self._in_flight is None:
            self._flush_is_due = True
            self._runtime.call_later(0, self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._in_flight is not None or not self._queue:
            return
        append = self._in_flight = self._queue.popleft()
        batch = append.batch
        if batch is None:
            batch = bytearray(records.encode_all(append.records, self._runtime.now_ms()))
        self._deadline = self._runtime.call_later(
            self._timeout_ms + DEADLINE_GRACE_MS,
            lambda: self._failed(append, PeerTimeout("the append took too long")),
        )
        route = self._route
        part = ProducePart(route.topic_id, route.partition, route.leader_epoch, len(batch))
        self._link.request(
            PRODUCE,
            (ACKS_ALL, self._timeout_ms, [part]),
            (batch,),
            lambda outcomes, _payload: self._settled(append, outcomes),
            lambda failure: self._failed(append, failure),
        )

    def _settled(self, append: _Append, outcomes: list[Any]) -> None:
        if self._in_flight is not append:
            return  # given up meanwhile
        refusal: KafkaError | None = None
        try:
            produced(outcomes[0])
        except KafkaError as failure:
            if append.outcome is None or not isinstance(failure, REFUSALS):
                self._failed(append, failure)
                return
            refusal = failure
        self._in_flight = None
        self._settle_deadline()
        if append.outcome is not None:
            append.outcome(refusal)
        for callback in append.waiting:
            callback()
        if self._queue:
            self._schedule()

    def _failed(self, append: _Append, failure: Exception) -> None:
        if self._in_flight is append:
            log.warning("partition %d: an append failed: %s", self._route.partition, failure)
            self.close()
            self._told(failure)

    def _settle_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

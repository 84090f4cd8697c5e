"""Records waiting to be sent or acknowledged, by partition: a state machine without I/O.

Several threads may add records while another one sends: every method is atomic.

| a batch moves | when |
|---|---|
| open → sealed | it is full, its partition is drained, or a whole batch is queued behind it |
| sealed → in flight | `drain`: in order, with the next sequence numbers |
| in flight → gone | it is acknowledged, or fails for good |
| in flight → sealed | retriable error: to the front of its partition's queue, in sequence order |
| in flight → two sealed | too large: each gets half of its records, in the same place |
| any but in flight → gone | it was tried for too long, or its transaction failed |

After an error a partition sends nothing until all its batches in flight are answered, so that
retries go out in order. A batch that failed for good leaves a gap in its partition's sequence
numbers. Once nothing is in flight there, the producer needs a new identity (`needs_identity`), with
which the partition's sequence starts again. Partitions with batches in flight or being retried keep
their identity, as in Kafka's producer (KIP-360), so that brokers recognize the retries.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from raylog.client.cluster import TopicPartition
from raylog.client.errors import ClientError, RecordTooLarge
from raylog.client.producer.batch import (
    NO_IDENTITY,
    RECORD_OBJECTS_BYTES,
    RECORD_OVERHEAD,
    SEQUENCE_MASK,
    Batch,
    Body,
    Delivery,
    Headers,
    Listener,
    PlainRecord,
    ProducerIdentity,
    RowsReport,
    headers_size,
)
from raylog.client.producer.queue import PartitionQueue
from raylog.client.producer.schedule import Schedule
from raylog.wire.records import BATCH_OVERHEAD, NO_SEQUENCE

__all__ = [
    "COLLECTED",
    "ELSEWHERE",
    "NO_IDENTITY",
    "Accumulator",
    "Appended",
    "Batch",
    "Delivery",
    "Headers",
    "ProducerIdentity",
]


class Appended(IntEnum):
    """What happened to an added record."""

    COLLECTED = 0
    """Nothing needs to be done."""
    BEGUN = 1
    """A batch was started; it must be sent once it has lingered."""
    FULL = 2
    """A batch or the buffer is full."""
    ELSEWHERE = 3
    """Not added: the partition has had its share, and another must be chosen."""


COLLECTED = Appended.COLLECTED
ELSEWHERE = Appended.ELSEWHERE
"""Used for every record; looking them up in the enumeration would take 30 ns."""


class Accumulator:
    """The batches of all partitions of one producer."""

    def __init__(
        self,
        *,
        batch_bytes: int,
        record_bytes_max: int,
        buffer_bytes: int,
        idempotent: bool,
        now_ms: Callable[[], float],
        one_at_a_time: bool = False,
    ) -> None:
        """With `one_at_a_time`, a partition has at most one batch in flight.

        `now_ms` is a function because `append` needs the time only when it starts a batch.
        """
        self.batch_bytes = min(batch_bytes, record_bytes_max)
        self.record_bytes_max = record_bytes_max
        self.buffer_bytes = buffer_bytes
        self.idempotent = idempotent
        self.identity = NO_IDENTITY
        self.needs_identity = idempotent
        self.held_bytes = 0
        """Memory of all batches, waiting or in flight: their bytes and estimated object sizes."""
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._sequences: dict[tuple[str, int], tuple[ProducerIdentity, int]] = {}
        """Identity and next sequence number of partitions that were dropped while idle."""
        self._is_closed = False
        self._batch_count = 0
        self._in_flight = 0
        self._now_ms = now_ms
        self._one_at_a_time = one_at_a_time
        self._awaited: list[set[Batch]] = []
        """The batches that each caller of `await_all` still waits for."""
        self._schedule = Schedule()
        self._held_up: dict[PartitionQueue, float] = {}
        """Since when a partition cannot be sent to; all batches queued there count as tried."""

    # -- collecting ----------------------------------------------------------------------------

    def append(
        self,
        key: tuple[str, int],
        record: PlainRecord,
        listener: Listener | None = None,
        may_move: bool = False,
    ) -> Appended:
        """Add a record to a known partition and return the outcome.

        With `may_move`, a partition that has taken a batch's worth starts no other batch:
        ELSEWHERE. Raises KeyError before `open`, and RecordTooLarge.
        """
        size = RECORD_OVERHEAD
        if record[3] is not None:
            size += len(record[3])
        if record[2] is not None:
            size += len(record[2])
        if record[4]:
            size += headers_size(record[4])
        with self._lock:  # not `acquire`: an interrupt just after it would leave it locked
            queue = self._queues[key]
            batch = queue.open
            outcome = COLLECTED
            if batch is None or batch.size + size > self.batch_bytes:
                if size > self.record_bytes_max:
                    raise self.too_large(size)
                if may_move:
                    taken = queue.taken_bytes + (0 if batch is None else batch.size)
                    if taken + size > self.batch_bytes:
                        return ELSEWHERE
                outcome = Appended.BEGUN if batch is None else Appended.FULL
                batch = self._new_batch(queue)
            batch.records.append(record)
            batch.size += size
            if listener is not None:
                batch.listen(listener)
            self.held_bytes += size + RECORD_OBJECTS_BYTES
            if self.held_bytes >= self.buffer_bytes:
                outcome = Appended.FULL
        return outcome

    def extend(
        self,
        key: tuple[str, int],
        records: Sequence[PlainRecord],
        sizes: Sequence[int],
        start: int,
        rows_report: RowsReport | None = None,
    ) -> int:
        """Add records from `start` on, as many as fit into one batch; return their number.

        `sizes` are the estimates of `record_size`; a record larger than a batch gets its own batch.
        `rows_report` counts rows from `records[0]`. Raises KeyError before `open`.
        """
        with self._lock:
            queue = self._queues[key]
            batch = queue.open
            if batch is None or batch.size + sizes[start] > self.batch_bytes:
                batch = self._new_batch(queue)
            room = max(self.batch_bytes - batch.size, sizes[start])
            end, total = start, 0
            for size in itertools.islice(sizes, start, None):
                if total + size > room:
                    break
                total += size
                end += 1
            batch.records += records[start:end]
            batch.size += total
            if rows_report is not None:
                listener, first_row = rows_report
                batch.listen_to_rows(end - start, first_row + start, listener)
            self.held_bytes += total + RECORD_OBJECTS_BYTES * (end - start)
            return end - start

    def append_batch(
        self, key: tuple[str, int], body: Body, listener: Listener | None = None
    ) -> None:
        """Queue a whole batch behind the others; the listener is called for its last record.

        Raises KeyError before `open`, and RecordTooLarge.
        """
        size = BATCH_OVERHEAD + len(body.data)
        if size > self.record_bytes_max:
            raise self.too_large(size)
        with self._lock:
            queue = self._queues[key]
            queue.seal()
            batch = Batch(queue.key, self._now_ms(), size=size, body=body)
            if listener is not None:
                batch.listeners = [(body.record_count - 1, body.max_timestamp_ms, listener)]
            self._put(queue, batch)
            queue.taken_bytes += size

    def open(self, key: TopicPartition) -> None:
        """Make a partition known; raises ClientError after `close`."""
        with self._lock:
            if self._is_closed:
                raise ClientError("the producer is closed")
            if key not in self._queues:
                identity, sequence = self._sequences.pop(key, (self.identity, 0))
                queue = PartitionQueue(key, identity, is_ordered=self._one_at_a_time)
                queue.next_sequence = sequence
                self._queues[key] = queue

    def forget_idle(self, since_ms: float) -> set[str]:
        """Drop partitions of topics without new batches since a time; return the other topics."""
        with self._lock:
            queues = self._queues
            used = {key[0] for key, queue in queues.items() if not queue.is_idle(since_ms)}
            for key in [key for key in queues if key[0] not in used]:
                queue = queues.pop(key)
                self._held_up.pop(queue, None)
                if queue.next_sequence:
                    self._sequences[key] = queue.identity, queue.next_sequence
            return used

    def choose(self, key: tuple[str, int]) -> None:
        """Start counting the bytes a partition takes: it was chosen for the next records."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is not None:
                queue.taken_bytes = 0 if queue.open is None else -queue.open.size

    def waiting(self, topic: str) -> dict[int, int]:
        """Return the number of waiting batches by partition, if it is ready to send or held up."""
        with self._lock:
            return {
                queue.key.partition: len(queue.batches) + len(queue.refused)
                for queues in (self._schedule, self._held_up)
                for queue in queues
                if queue.key.topic == topic
            }

    def waiting_keys(self) -> set[TopicPartition]:
        """Return the partitions with waiting batches that are ready to send or held up."""
        with self._lock:
            return {
                queue.key
                for queues in (self._schedule, self._held_up)
                for queue in queues
                if queue.batches or queue.refused
            }

    def too_large(self, size: int) -> RecordTooLarge:
        """Return the error for a record of that size."""
        return RecordTooLarge(
            f"expected a record of at most {self.record_bytes_max} bytes "
            f"(record_bytes_max), found one of {size}: brokers close the connection on "
            "a request above their socket.request.max.bytes"
        )

    def _new_batch(self, queue: PartitionQueue) -> Batch:
        """Seal the open batch and start another."""
        queue.seal()
        queue.open = batch = Batch(queue.key, self._now_ms())
        self._put(queue, batch)
        return batch

    def _put(self, queue: PartitionQueue, batch: Batch) -> None:
        """Queue a batch behind the others of its partition."""
        queue.batches.append(batch)
        queue.used_ms = batch.created_ms
        self._batch_count += 1
        self.held_bytes += batch.held_bytes
        if len(queue.batches) <= 2:  # the first batch is new, or has just been sealed
            self._schedule.put(queue)

    @property
    def is_full(self) -> bool:
        """Whether new records should wait for acknowledgements."""
        return self.held_bytes >= self.buffer_bytes

    @property
    def is_empty(self) -> bool:
        """Whether every record was acknowledged or has failed."""
        return self._batch_count == 0

    @property
    def in_flight(self) -> int:
        """Number of batches sent and unanswered."""
        return self._in_flight

    @property
    def waiting_count(self) -> int:
        """Number of batches that are not in flight."""
        return self._batch_count - self._in_flight

    # -- when ----------------------------------------------------------------------------------

    def ready(self, now_ms: float, linger_ms: float) -> list[TopicPartition]:
        """Return the partitions with a batch that may be sent: full, or old enough."""
        with self._lock:
            return [queue.key for queue in self._schedule.ready(now_ms, linger_ms)]

    def next_ready_ms(self, linger_ms: float) -> float:
        """Return when the next batch becomes ready by itself; infinite if none will."""
        with self._lock:
            return self._schedule.next_ready_ms(linger_ms)

    # -- sending -------------------------------------------------------------------------------

    def drain(self, keys: Iterable[TopicPartition], max_bytes: int) -> list[Batch]:
        """Take the first batch of each partition: at most `max_bytes`, but at least one batch."""
        with self._lock:
            now_ms = self._now_ms()
            taken: list[Batch] = []
            size = 0
            for key in keys:
                queue = self._queues[key]
                if taken and size + queue.batches[0].size > max_bytes:
                    break
                batch = self._take_first(queue)
                batch.attempts += 1
                batch.drained_ms = batch.drained_ms or now_ms
                if self.idempotent and batch.sequence == NO_SEQUENCE:
                    assert queue.identity != NO_IDENTITY, "it is needed before batches are sent"
                    batch.sequence = queue.next_sequence
                    batch.identity = queue.identity
                    queue.next_sequence += batch.record_count
                    queue.next_sequence &= SEQUENCE_MASK
                queue.sent(batch)
                taken.append(batch)
                size += batch.size
                self._schedule.put_last(queue)
            self._in_flight += len(taken)
            return taken

    def _take_first(self, queue: PartitionQueue) -> Batch:
        batch = queue.batches.popleft()
        if batch is queue.open:
            queue.seal()
        return batch

    def postpone(self, key: TopicPartition, not_before_ms: float) -> None:
        """Send nothing to a partition for a while, for example because it has no leader."""
        with self._lock:
            queue = self._queues[key]
            self._held_up.setdefault(queue, self._now_ms())
            self._schedule.delay(queue, not_before_ms)

    def hold_up(self, keys: Iterable[TopicPartition] | None = None) -> None:
        """Record that sending to these partitions (None: to all) was tried but is impossible."""
        with self._lock:
            queues = self._queues.values() if keys is None else [self._queues[key] for key in keys]
            now_ms = self._now_ms()
            for queue in queues:
                if queue.batches:
                    self._held_up.setdefault(queue, now_ms)

    # -- answers -------------------------------------------------------------------------------

    def acknowledged(self, batch: Batch) -> None:
        """Remove a batch that was written."""
        with self._lock:
            queue = self._queues[batch.key]
            self._held_up.pop(queue, None)
            queue.is_known = True
            self._settle(queue, batch)
            self._gone(batch)

    def refused(self, batch: Batch, not_before_ms: float) -> None:
        """Queue a batch to be sent again, not before a time."""
        with self._lock:
            self._take_back(batch, (batch,), not_before_ms)

    def split(self, batch: Batch) -> None:
        """Replace a batch that is too large by its two halves, whose attempts count from 0."""
        parts = batch.split()
        with self._lock:
            self._take_back(batch, parts, 0.0)
            for awaited in self._awaited:
                if batch in awaited:
                    awaited.remove(batch)
                    awaited.update(parts)
            self._batch_count += len(parts) - 1
            self.held_bytes += sum(part.held_bytes for part in parts) - batch.held_bytes

    def _take_back(self, batch: Batch, again: Iterable[Batch], not_before_ms: float) -> None:
        """Move a batch, or its two halves, from in flight to the batches to be sent again."""
        queue = self._queues[batch.key]
        queue.refused += again
        if not_before_ms:
            self._held_up.setdefault(queue, self._now_ms())
            self._schedule.delay(queue, not_before_ms)
        self._settle(queue, batch)

    def resequence(self, batch: Batch, not_before_ms: float) -> None:
        """Queue a batch to be sent again under the next identity.

        It is known not to be written, and its sequence numbers will never be accepted.
        """
        with self._lock:
            self._open_gap(batch)
            batch.sequence = NO_SEQUENCE
            batch.may_be_written = False
            self._take_back(batch, (batch,), not_before_ms)

    def failed(self, batch: Batch) -> None:
        """Give up a batch in flight; its sequence numbers are lost."""
        with self._lock:
            self._lost(batch)
            self._settle(self._queues[batch.key], batch)

    def follows_unsettled(self, batch: Batch) -> bool:
        """Whether an earlier batch of the partition has not been acknowledged."""
        with self._lock:
            queue = self._queues[batch.key]
            return any(
                _is_before(other.sequence, batch.sequence)
                for other in (*queue.in_flight, *queue.refused)
                if other.sequence != NO_SEQUENCE
            )

    def next_expiry_ms(self, timeout_ms: float) -> float:
        """Return when `expire` gives up the next batch; infinite if no waiting batch was tried."""
        with self._lock:
            times = (_expiry_ms(*held, timeout_ms) for held in self._held_up.items())
            return min(times, default=float("inf"))

    def expire(self, now_ms: float, timeout_ms: float) -> list[Batch]:
        """Give up batches that are not in flight and have been tried for too long; return them.

        Batches queued behind one that cannot be sent count as tried. Batches that merely wait for
        their turn do not, even if the sender has not run for an hour.
        """
        with self._lock:
            expired = []
            for queue, since_ms in self._held_up.items():
                while _expiry_ms(queue, since_ms, timeout_ms) <= now_ms:
                    batch = self._take_first(queue)
                    expired.append(batch)
                    self._lost(batch)
                    self._schedule.put(queue)
            return expired

    def unanswered(self) -> list[Batch]:
        """Return all batches in flight."""
        with self._lock:
            return [batch for queue in self._queues.values() for batch in queue.in_flight]

    # -- flushing ------------------------------------------------------------------------------

    def await_all(self) -> set[Batch]:
        """Return all current batches. Each leaves the set when it ends, until `await_no_more`."""
        with self._lock:
            awaited = {
                batch
                for queue in self._queues.values()
                for batch in (*queue.in_flight, *queue.refused, *queue.batches)
            }
            self._awaited.append(awaited)
            return awaited

    def await_no_more(self, awaited: set[Batch]) -> None:
        """Stop updating a set returned by `await_all`."""
        with self._lock:
            self._awaited = [one for one in self._awaited if one is not awaited]

    # -- giving up -----------------------------------------------------------------------------

    def give_up(self) -> list[Batch]:
        """Give up all batches not in flight; return them. Those sent before may be written."""
        with self._lock:
            given_up: list[Batch] = []
            for queue in self._queues.values():
                given_up += (*queue.refused, *queue.batches)
                queue.refused.clear()
                queue.batches.clear()
                queue.seal()
            for batch in given_up:
                self._lost(batch)
            self._schedule.clear()
            return given_up

    def close(self) -> list[Batch]:
        """Give up batches added since `give_up`, and refuse more. Nothing may be in flight."""
        given_up = self.give_up()
        with self._lock:
            self._is_closed = True
            queues, self._queues = self._queues, {}
            for queue in queues.values():
                given_up += queue.batches
                for batch in queue.batches:
                    self._gone(batch)
            return given_up

    def renew(self, identity: ProducerIdentity) -> list[Batch]:
        """Set a new identity; sequences start at 0 where no batch needs the old one.

        Behind a gap, batches that may already be written are given up and returned.
        """
        with self._lock:
            given_up: list[Batch] = []
            for queue in self._queues.values():
                if queue.may_renew:
                    given_up += queue.renew(identity)
                    self._schedule.put(queue)
            self._sequences.clear()
            for batch in given_up:
                self._gone(batch)
            self.identity = identity
            self.needs_identity = False
            return given_up

    def _settle(self, queue: PartitionQueue, batch: Batch) -> None:
        """Remove an answered batch from in flight; after the last one, queue the refused ones."""
        queue.in_flight.remove(batch)
        self._in_flight -= 1
        if queue.refused and not queue.in_flight:
            next_sequence = queue.next_sequence
            queue.refused.sort(key=lambda again: _age(again, next_sequence))
            queue.batches.extendleft(reversed(queue.refused))
            queue.refused.clear()
        if queue.has_gap and not queue.in_flight:
            self.needs_identity = True
        self._schedule.put(queue)

    def _lost(self, batch: Batch) -> None:
        """Remove a batch that was not written, as far as is known."""
        self._gone(batch)
        if batch.sequence != NO_SEQUENCE:
            self._open_gap(batch)

    def _open_gap(self, batch: Batch) -> None:
        """Record that a batch's sequence numbers will never be written."""
        queue = self._queues[batch.key]
        if batch.identity == queue.identity:
            queue.has_gap = True
            if not queue.in_flight:
                self.needs_identity = True

    def _gone(self, batch: Batch) -> None:
        """Stop counting a batch that was acknowledged or has failed."""
        self._batch_count -= 1
        self.held_bytes -= batch.held_bytes
        for awaited in self._awaited:
            awaited.discard(batch)


def _expiry_ms(queue: PartitionQueue, since_ms: float, timeout_ms: float) -> float:
    """Return when the first batch expires in a partition that cannot be sent to since a time."""
    if not queue.batches:
        return float("inf")
    first = queue.batches[0]
    return first.due_ms(timeout_ms, first.drained_ms or since_ms)


def _age(batch: Batch, next_sequence: int) -> int:
    """Sort key for the order of first sending; batches that lost their sequences come first."""
    if batch.sequence == NO_SEQUENCE:
        return -1
    return (batch.sequence - next_sequence) & SEQUENCE_MASK


def _is_before(first: int, second: int) -> bool:
    """Whether a sequence number comes before another; they wrap to 0 after 2^31 - 1."""
    return 0 < (second - first) & SEQUENCE_MASK < 1 << 30

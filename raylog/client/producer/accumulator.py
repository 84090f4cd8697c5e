"""Records waiting to be sent or acknowledged, by partition: a machine without I/O.

Records may come from several threads while another one sends: every method is atomic.

| a batch moves | when |
|---|---|
| open → sealed | it is full, its partition is drained, or a whole batch comes behind it |
| sealed → in flight | `drain`: in order, with the next sequence numbers |
| in flight → gone | acknowledged, or refused for good |
| in flight → sealed | refused for now: in front of its partition's queue, in sequence order |
| in flight → two sealed | refused as too large: each has half of its records, in the same place |
| any but in flight → gone | it was tried for too long, or its transaction failed |

After a refusal a partition sends nothing until all that is in flight there is answered, so that
repeats go out in order. A batch that failed for good leaves a gap in the sequence: the producer
then needs a new identity (`needs_identity`), which is taken once nothing is in flight.

No method that is called for each request looks at partitions that have nothing to send: those that
may send are kept apart (`_ready`), those that wait for a time are in heaps, by that time.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
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
    headers_size,
)
from raylog.client.producer.queue import PartitionQueue
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


_OUTDATED_MAX = 64
"""So many entries of a heap may be out of date before it is cleared of them."""


class Appended(IntEnum):
    """What comes of a record."""

    COLLECTED = 0
    """Nothing is to be done."""
    BEGUN = 1
    """A batch begins: somebody has to send it when it has lingered."""
    FULL = 2
    """A batch is full, or the buffer is."""
    ELSEWHERE = 3
    """Not taken: this partition has had its share, another is to be chosen."""


COLLECTED = Appended.COLLECTED
ELSEWHERE = Appended.ELSEWHERE
"""Looked at for every record: an attribute of an enumeration takes 30 ns."""


class Accumulator:
    """All partitions' batches of one producer."""

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
        """`one_at_a_time`: no partition has two batches in flight.

        `now_ms` is only looked at when a batch begins: that is too seldom to be handed in.
        """
        self.batch_bytes = batch_bytes
        self.record_bytes_max = record_bytes_max
        self.buffer_bytes = buffer_bytes
        self.idempotent = idempotent
        self.identity = NO_IDENTITY
        self.needs_identity = idempotent
        self.held_bytes = 0
        """Of all batches, waiting or in flight: their bytes and what objects take beside them."""
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._is_closed = False
        self._batch_count = 0
        self._in_flight = 0
        self._now_ms = now_ms
        self._one_at_a_time = one_at_a_time
        self._awaited: list[set[Batch]] = []
        """Of each flush, the batches that it waits for."""
        self._ready: dict[PartitionQueue, None] = {}
        """May send now; who sent goes to the end, so that all have their turn."""
        self._lingering: list[tuple[float, int, PartitionQueue]] = []
        """By creation, partitions whose first batch is open; entries may be out of date."""
        self._delayed: list[tuple[float, int, PartitionQueue]] = []
        """By time, partitions that wait for it; entries may be out of date."""
        self._held_up: dict[PartitionQueue, None] = {}
        """The last try to send there failed: what waits behind that is as good as tried."""
        self._order = itertools.count()

    # -- collecting ----------------------------------------------------------------------------

    def append(
        self,
        key: tuple[str, int],
        record: PlainRecord,
        listener: Listener | None = None,
        may_move: bool = False,
    ) -> Appended:
        """Add a record to a known partition; returns what comes of it.

        With `may_move` a partition that has taken a batch's worth begins no other batch.
        Raises KeyError before `open`, and RecordTooLarge.
        """
        size = RECORD_OVERHEAD
        if record[3] is not None:
            size += len(record[3])
        if record[2] is not None:
            size += len(record[2])
        if record[4]:
            size += headers_size(record[4])
        self._lock.acquire()  # a `with` would cost as much as all else here
        try:
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
        finally:
            self._lock.release()
        return outcome

    def extend(
        self, key: tuple[str, int], records: Sequence[PlainRecord], sizes: Sequence[int], start: int
    ) -> int:
        """Add records from `start` on, as many as go into one batch; returns how many.

        `sizes` are their estimates (`record_size`); one that is larger than a batch has its own.
        Raises KeyError before `open`.
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
            self.held_bytes += total + RECORD_OBJECTS_BYTES * (end - start)
            return end - start

    def append_batch(
        self, key: tuple[str, int], body: Body, listener: Listener | None = None
    ) -> None:
        """Add a whole batch behind what is there; the listener is told of its last record.

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
        """Make a partition known; raises ClientError once this is closed."""
        with self._lock:
            if self._is_closed:
                raise ClientError("the producer is closed")
            self._queues.setdefault(key, PartitionQueue(key, is_ordered=self._one_at_a_time))

    def choose(self, key: tuple[str, int]) -> None:
        """A partition was chosen for the records to come: it has taken nothing of them yet."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is not None:
                queue.taken_bytes = 0 if queue.open is None else -queue.open.size

    def waiting(self, topic: str) -> dict[int, int]:
        """Partition to batches that wait to be sent, where there are any that could be."""
        with self._lock:
            return {
                queue.key.partition: len(queue.batches) + len(queue.refused)
                for queues in (self._ready, self._held_up)
                for queue in queues
                if queue.key.topic == topic
            }

    def too_large(self, size: int) -> RecordTooLarge:
        """The failure of a record of that size."""
        return RecordTooLarge(
            f"expected a record of at most {self.record_bytes_max} bytes "
            f"(record_bytes_max), found one of {size}: brokers close the connection on "
            "a request above their socket.request.max.bytes"
        )

    def _new_batch(self, queue: PartitionQueue) -> Batch:
        """Seal the open batch and begin another."""
        queue.seal()
        queue.open = batch = Batch(queue.key, self._now_ms())
        self._put(queue, batch)
        return batch

    def _put(self, queue: PartitionQueue, batch: Batch) -> None:
        """Add a batch behind the others of its partition."""
        queue.batches.append(batch)
        self._batch_count += 1
        self.held_bytes += batch.held_bytes
        if len(queue.batches) <= 2:  # the first is new, or sealed by now
            self._schedule(queue)

    @property
    def is_full(self) -> bool:
        """Whether new records should wait for acknowledgements."""
        return self.held_bytes >= self.buffer_bytes

    @property
    def is_empty(self) -> bool:
        """Whether every record has met its end."""
        return self._batch_count == 0

    @property
    def in_flight(self) -> int:
        """Batches sent and unanswered."""
        return self._in_flight

    @property
    def waiting_count(self) -> int:
        """Batches that are not in flight."""
        return self._batch_count - self._in_flight

    # -- when ----------------------------------------------------------------------------------

    def ready(self, now_ms: float, linger_ms: float) -> list[TopicPartition]:
        """Partitions with a batch that may be sent: full, or old enough."""
        with self._lock:
            while self._delayed and self._delayed[0][0] <= now_ms:
                at_ms, _, queue = heapq.heappop(self._delayed)
                if queue.not_before_ms == at_ms:
                    queue.not_before_ms = 0.0
                    self._schedule(queue)
            while self._lingering and self._lingering[0][0] + linger_ms <= now_ms:
                since_ms, _, queue = heapq.heappop(self._lingering)
                if queue.lingers_since_ms == since_ms:
                    self._ready[queue] = None
            return [queue.key for queue in self._ready]

    def next_ready_ms(self, linger_ms: float) -> float:
        """When the next batch becomes ready by itself; infinite if none will."""
        with self._lock:
            if self._ready:
                return 0.0
            self._forget_outdated()
            return min(
                self._delayed[0][0] if self._delayed else float("inf"),
                self._lingering[0][0] + linger_ms if self._lingering else float("inf"),
            )

    def _schedule(self, queue: PartitionQueue) -> None:
        """Note when a partition may send next; to be called when that may have changed."""
        if not queue.may_send:
            self._ready.pop(queue, None)
        elif queue.is_sealed:
            self._ready[queue] = None
        else:
            self._ready.pop(queue, None)
            if len(self._lingering) > 2 * len(self._queues) + _OUTDATED_MAX:
                self._lingering = [one for one in self._lingering if _is_current(one)]
                heapq.heapify(self._lingering)
            created_ms = queue.batches[0].created_ms
            heapq.heappush(self._lingering, (created_ms, next(self._order), queue))

    def _delay(self, queue: PartitionQueue, not_before_ms: float) -> None:
        """Let a partition send nothing for a while."""
        if not_before_ms > queue.not_before_ms:
            queue.not_before_ms = not_before_ms
            heapq.heappush(self._delayed, (not_before_ms, next(self._order), queue))
        self._schedule(queue)

    def _forget_outdated(self) -> None:
        """Drop what is first in a heap and means nothing any more."""
        while self._delayed and self._delayed[0][2].not_before_ms != self._delayed[0][0]:
            heapq.heappop(self._delayed)
        while self._lingering and not _is_current(self._lingering[0]):
            heapq.heappop(self._lingering)

    # -- sending -------------------------------------------------------------------------------

    def drain(self, keys: Iterable[TopicPartition], max_bytes: int) -> list[Batch]:
        """Take the first batch of each partition, at most `max_bytes` but at least one."""
        with self._lock:
            assert not self.needs_identity, "batches need an identity before they are sent"
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
                    batch.sequence = queue.next_sequence
                    batch.identity = self.identity
                    queue.next_sequence += batch.record_count
                    queue.next_sequence &= SEQUENCE_MASK
                queue.in_flight.append(batch)
                taken.append(batch)
                size += batch.size
                self._ready.pop(queue, None)
                self._schedule(queue)
            self._in_flight += len(taken)
            return taken

    def _take_first(self, queue: PartitionQueue) -> Batch:
        batch = queue.batches.popleft()
        if batch is queue.open:
            queue.seal()
        return batch

    def postpone(self, key: TopicPartition, not_before_ms: float) -> None:
        """Send nothing to a partition for a while: it has no leader."""
        with self._lock:
            queue = self._queues[key]
            self._held_up[queue] = None
            self._delay(queue, not_before_ms)

    def hold_up(self, keys: Iterable[TopicPartition] | None = None) -> None:
        """Nothing can be sent to these partitions (None: to any), though it was tried."""
        with self._lock:
            queues = self._queues.values() if keys is None else [self._queues[key] for key in keys]
            self._held_up.update({queue: None for queue in queues if queue.batches})

    # -- answers -------------------------------------------------------------------------------

    def acknowledged(self, batch: Batch) -> None:
        """The batch is written."""
        with self._lock:
            queue = self._queues[batch.key]
            self._held_up.pop(queue, None)
            self._settle(queue, batch)
            self._gone(batch)

    def refused(self, batch: Batch, not_before_ms: float) -> None:
        """The batch is to be sent again, not before a time."""
        with self._lock:
            self._take_back(batch, (batch,), not_before_ms)

    def split(self, batch: Batch) -> None:
        """The batch was too large: it is sent again as two, each as if it were new."""
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
        """Move a batch from those in flight to those that are sent again, perhaps in parts."""
        queue = self._queues[batch.key]
        queue.refused += again
        if not_before_ms:
            self._held_up[queue] = None
            self._delay(queue, not_before_ms)
        self._settle(queue, batch)

    def resequence(self, batch: Batch, not_before_ms: float) -> None:
        """The batch is known not to be written, and its sequence numbers will never fit.

        It is sent again under the next identity.
        """
        with self._lock:
            if batch.identity == self.identity:
                self.needs_identity = True
            batch.sequence = NO_SEQUENCE
            self._take_back(batch, (batch,), not_before_ms)

    def failed(self, batch: Batch) -> None:
        """The batch is given up; its sequence numbers are lost."""
        with self._lock:
            self._settle(self._queues[batch.key], batch)
            self._lost(batch)

    def follows_unsettled(self, batch: Batch) -> bool:
        """Whether an earlier batch of the partition has not been acknowledged."""
        with self._lock:
            queue = self._queues[batch.key]
            return any(
                _is_before(other.sequence, batch.sequence)
                for other in (*queue.in_flight, *queue.refused)
                if other.sequence != NO_SEQUENCE
            )

    def oldest_held_up_ms(self) -> float:
        """When the oldest batch was begun that `expire` would look at; infinite if none."""
        with self._lock:
            firsts = (queue.batches[0].created_ms for queue in self._held_up if queue.batches)
            return min(firsts, default=float("inf"))

    def expire(self, is_overdue: Callable[[Batch], bool]) -> list[Batch]:
        """Give up batches that are not in flight and were tried for too long.

        What waits behind a batch that cannot be sent counts as tried. What waits for nothing but
        its turn, be it that nobody has looked for an hour, does not.
        """
        with self._lock:
            expired = []
            for queue in self._held_up:
                while queue.batches and is_overdue(queue.batches[0]):
                    batch = self._take_first(queue)
                    expired.append(batch)
                    self._lost(batch)
                    self._schedule(queue)
            return expired

    def unanswered(self) -> list[Batch]:
        """All batches in flight."""
        with self._lock:
            return [batch for queue in self._queues.values() for batch in queue.in_flight]

    # -- flushing ------------------------------------------------------------------------------

    def await_all(self) -> set[Batch]:
        """All batches of now. Each leaves the set when it ends, until `await_no_more`."""
        with self._lock:
            awaited = {
                batch
                for queue in self._queues.values()
                for batch in (*queue.in_flight, *queue.refused, *queue.batches)
            }
            self._awaited.append(awaited)
            return awaited

    def await_no_more(self, awaited: set[Batch]) -> None:
        """Whoever called `await_all` waits no more."""
        with self._lock:
            self._awaited = [one for one in self._awaited if one is not awaited]

    # -- giving up -----------------------------------------------------------------------------

    def give_up(self) -> list[Batch]:
        """Give up all that is not in flight; returns it. What was sent before may be written."""
        with self._lock:
            given_up: list[Batch] = []
            for queue in self._queues.values():
                given_up += (*queue.refused, *queue.batches)
                queue.refused.clear()
                queue.batches.clear()
                queue.seal()
            for batch in given_up:
                self._lost(batch)
            self._ready.clear()
            return given_up

    def close(self) -> list[Batch]:
        """Take no more; returns what came since `give_up`. Nothing may be in flight."""
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
        """Take a new identity; sequences start at 0.

        Batches that were sent under the old one are given up and returned: whether they were
        written is unknown, and only the old identity could have told.
        """
        with self._lock:
            assert self._in_flight == 0, "an identity is renewed when nothing is in flight"
            given_up: list[Batch] = []
            for queue in self._queues.values():
                queue.next_sequence = 0
                for batch in queue.batches:
                    if batch.attempts == 0:  # a part of one that was refused
                        batch.sequence = NO_SEQUENCE
                if any(batch.sequence != NO_SEQUENCE for batch in queue.batches):
                    batches, queue.batches = queue.batches, deque()
                    for batch in batches:
                        (queue.batches if batch.sequence == NO_SEQUENCE else given_up).append(batch)
                    self._schedule(queue)
            for batch in given_up:
                self._gone(batch)
            self.identity = identity
            self.needs_identity = False
            return given_up

    def _settle(self, queue: PartitionQueue, batch: Batch) -> None:
        """Take an answered batch out of flight; the last one lets the repeats go."""
        queue.in_flight.remove(batch)
        self._in_flight -= 1
        if queue.refused and not queue.in_flight:
            next_sequence = queue.next_sequence
            queue.refused.sort(key=lambda again: _age(again, next_sequence))
            queue.batches.extendleft(reversed(queue.refused))
            queue.refused.clear()
        self._schedule(queue)

    def _lost(self, batch: Batch) -> None:
        """A batch has ended without being written, as far as is known."""
        self._gone(batch)
        if batch.sequence != NO_SEQUENCE and batch.identity == self.identity:
            self.needs_identity = True

    def _gone(self, batch: Batch) -> None:
        """A batch has met its end."""
        self._batch_count -= 1
        self.held_bytes -= batch.held_bytes
        for awaited in self._awaited:
            awaited.discard(batch)


def _is_current(lingering: tuple[float, int, PartitionQueue]) -> bool:
    """Whether an entry of `Accumulator._lingering` is not out of date."""
    return lingering[2].lingers_since_ms == lingering[0]


def _age(batch: Batch, next_sequence: int) -> int:
    """Sorts batches as they were sent first; those that lost their sequences go before all."""
    if batch.sequence == NO_SEQUENCE:
        return -1
    return (batch.sequence - next_sequence) & SEQUENCE_MASK


def _is_before(first: int, second: int) -> bool:
    """Order of sequence numbers, which wrap to 0 after 2^31 - 1."""
    return 0 < (second - first) & SEQUENCE_MASK < 1 << 30

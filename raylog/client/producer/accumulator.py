"""Records waiting to be sent or acknowledged, by partition: a machine without I/O.

Records may come from several threads while another one sends: every method is atomic.

| a batch moves | when |
|---|---|
| open → sealed | it is full, or its partition is drained for lingering or a flush |
| sealed → in flight | `drain`: in order, with the next sequence numbers |
| in flight → gone | acknowledged, or refused for good |
| in flight → sealed | refused for now: in front of its partition's queue, in sequence order |
| any but in flight → gone | it was tried for too long, or its transaction failed |

After a refusal a partition sends nothing until all that is in flight there is answered, so that
repeats go out in order. A batch that failed for good leaves a gap in the sequence: the producer
then needs a new identity (`needs_identity`), which is taken once nothing is in flight.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from raylog.client.cluster import TopicPartition
from raylog.client.errors import RecordTooLarge
from raylog.wire.records import (
    BATCH_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Record,
)

RECORD_OVERHEAD = 20
"""Upper estimate of a record's own lengths, attributes and deltas."""
_HEADER_OVERHEAD = 6
_SEQUENCE_MASK = 0x7FFFFFFF

Headers = Sequence[tuple[str, bytes | None]]


class Appended(IntEnum):
    """What comes of a record."""

    COLLECTED = 0
    """Nothing is to be done."""
    BEGUN = 1
    """A batch begins: somebody has to send it when it has lingered."""
    FULL = 2
    """A batch is full, or the buffer is."""


COLLECTED = Appended.COLLECTED
"""Looked at for every record: an attribute of an enumeration takes 30 ns."""


class ProducerIdentity(NamedTuple):
    """What sequence numbers count for."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The end of one batch."""

    topic: str
    partition: int
    base_offset: int
    """Offset of the first record; -1 if unknown (acks=0, a repeat of old) or failed."""
    record_count: int
    failure: Exception | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that travel together."""

    key: TopicPartition
    created_ms: float
    records: list[Record] = field(default_factory=list)
    size: int = BATCH_OVERHEAD
    """Bytes, estimated from above and without compression."""
    sequence: int = NO_SEQUENCE
    identity: ProducerIdentity = NO_IDENTITY
    encoded: bytes | None = None
    attempts: int = 0


@dataclass(slots=True, eq=False)
class _Queue:
    """One partition's batches."""

    key: TopicPartition
    open: Batch | None = None
    """The batch that takes records; the last of `batches`."""
    batches: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    refused: list[Batch] = field(default_factory=list)
    next_sequence: int = 0
    not_before_ms: float = 0.0
    is_held_up: bool = False
    """Whether the last try to send something failed: what waits behind that is as good as tried."""

    @property
    def is_sealed(self) -> bool:
        """Whether the first batch takes no more records."""
        return self.batches[0] is not self.open

    @property
    def settling(self) -> bool:
        """Whether repeats wait for the answers to what is still in flight."""
        return bool(self.refused)


def _headers_size(headers: Headers) -> int:
    """Upper estimate of headers' bytes in a record."""
    return sum(len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD for name, value in headers)


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
    ) -> None:
        """`now_ms` is only looked at when a batch begins: that is too seldom to be handed in."""
        self.batch_bytes = batch_bytes
        self.record_bytes_max = record_bytes_max
        self.buffer_bytes = buffer_bytes
        self.idempotent = idempotent
        self.identity = NO_IDENTITY
        self.needs_identity = idempotent
        self.held_bytes = 0
        """Of all batches, waiting or in flight."""
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._in_flight = 0
        self._now_ms = now_ms

    # -- collecting ----------------------------------------------------------------------------

    def append(self, key: tuple[str, int], record: Record) -> Appended:
        """Add a record to a known partition; returns what comes of it.

        Raises KeyError before `open`, and RecordTooLarge.
        """
        size = RECORD_OVERHEAD
        if record[3] is not None:
            size += len(record[3])
        if record[2] is not None:
            size += len(record[2])
        if record[4]:
            size += _headers_size(record[4])
        with self._lock:
            queue = self._queues[key]
            batch = queue.open
            outcome = COLLECTED
            if batch is None or batch.size + size > self.batch_bytes:
                if size > self.record_bytes_max:
                    raise RecordTooLarge(
                        f"expected a record of at most {self.record_bytes_max} bytes "
                        f"(record_bytes_max), found one of {size}: brokers close the connection on "
                        "a request above their socket.request.max.bytes"
                    )
                outcome = Appended.BEGUN if batch is None else Appended.FULL
                batch = self._new_batch(queue)
            batch.records.append(record)
            batch.size += size
            self.held_bytes += size
            if self.held_bytes >= self.buffer_bytes:
                outcome = Appended.FULL
        return outcome

    def open(self, key: TopicPartition) -> None:
        """Make a partition known."""
        with self._lock:
            self._queues.setdefault(key, _Queue(key))

    def _new_batch(self, queue: _Queue) -> Batch:
        """Seal the open batch and begin another."""
        queue.open = batch = Batch(queue.key, self._now_ms())
        queue.batches.append(batch)
        self.held_bytes += batch.size
        return batch

    @property
    def is_full(self) -> bool:
        """Whether new records should wait for acknowledgements."""
        return self.held_bytes >= self.buffer_bytes

    @property
    def is_empty(self) -> bool:
        """Whether every record has met its end."""
        with self._lock:
            return self._in_flight == 0 and all(
                not queue.batches and not queue.refused for queue in self._queues.values()
            )

    @property
    def in_flight(self) -> int:
        """Batches sent and unanswered."""
        return self._in_flight

    # -- sending -------------------------------------------------------------------------------

    def ready(self, now_ms: float, linger_ms: float) -> list[TopicPartition]:
        """Partitions with a batch that may be sent: full, or old enough."""
        with self._lock:
            return [
                queue.key
                for queue in self._queues.values()
                if queue.batches
                and not queue.settling
                and queue.not_before_ms <= now_ms
                and (queue.is_sealed or queue.batches[0].created_ms + linger_ms <= now_ms)
            ]

    def next_ready_ms(self, linger_ms: float) -> float:
        """When the next batch becomes ready by itself; infinite if none will."""
        with self._lock:
            return min(
                (
                    max(
                        queue.not_before_ms,
                        0.0 if queue.is_sealed else queue.batches[0].created_ms + linger_ms,
                    )
                    for queue in self._queues.values()
                    if queue.batches and not queue.settling
                ),
                default=float("inf"),
            )

    def drain(self, keys: Iterable[TopicPartition], max_bytes: int) -> list[Batch]:
        """Take the first batch of each partition, at most `max_bytes` but at least one."""
        with self._lock:
            assert not self.needs_identity, "batches need an identity before they are sent"
            taken: list[Batch] = []
            size = 0
            for key in keys:
                queue = self._queues[key]
                if taken and size + queue.batches[0].size > max_bytes:
                    break
                batch = queue.batches.popleft()
                if batch is queue.open:
                    queue.open = None
                batch.attempts += 1
                if self.idempotent and batch.sequence == NO_SEQUENCE:
                    batch.sequence = queue.next_sequence
                    batch.identity = self.identity
                    queue.next_sequence += len(batch.records)
                    queue.next_sequence &= _SEQUENCE_MASK
                queue.in_flight.append(batch)
                taken.append(batch)
                size += batch.size
            self._in_flight += len(taken)
            return taken

    def postpone(self, key: TopicPartition, not_before_ms: float) -> None:
        """Send nothing to a partition for a while: it has no leader."""
        with self._lock:
            queue = self._queues[key]
            queue.not_before_ms = not_before_ms
            queue.is_held_up = True

    def hold_up(self) -> None:
        """Nothing at all can be sent, though it was tried."""
        with self._lock:
            for queue in self._queues.values():
                queue.is_held_up = bool(queue.batches)

    # -- answers -------------------------------------------------------------------------------

    def acknowledged(self, batch: Batch) -> None:
        """The batch is written."""
        with self._lock:
            self._queues[batch.key].is_held_up = False
            self._settle(batch)
            self.held_bytes -= batch.size

    def refused(self, batch: Batch, not_before_ms: float) -> None:
        """The batch is to be sent again, not before a time."""
        with self._lock:
            self._take_back(batch, not_before_ms)

    def _take_back(self, batch: Batch, not_before_ms: float) -> None:
        queue = self._queues[batch.key]
        queue.refused.append(batch)
        queue.is_held_up = True
        queue.not_before_ms = max(queue.not_before_ms, not_before_ms)
        self._settle(batch)

    def resequence(self, batch: Batch, not_before_ms: float) -> None:
        """The batch is known not to be written, and its sequence numbers will never fit.

        It is sent again under the next identity.
        """
        with self._lock:
            if batch.identity == self.identity:
                self.needs_identity = True
            batch.sequence = NO_SEQUENCE
            batch.encoded = None
            self._take_back(batch, not_before_ms)

    def failed(self, batch: Batch) -> None:
        """The batch is given up; its sequence numbers are lost."""
        with self._lock:
            self._settle(batch)
            self.held_bytes -= batch.size
            if batch.sequence != NO_SEQUENCE and batch.identity == self.identity:
                self.needs_identity = True

    def follows_unsettled(self, batch: Batch) -> bool:
        """Whether an earlier batch of the partition has not been acknowledged."""
        with self._lock:
            queue = self._queues[batch.key]
            return any(
                _is_before(other.sequence, batch.sequence)
                for other in (*queue.in_flight, *queue.refused)
                if other.sequence != NO_SEQUENCE
            )

    def expire(self, is_overdue: Callable[[Batch], bool]) -> list[Batch]:
        """Give up batches that are not in flight and were tried for too long.

        What waits behind a batch that cannot be sent counts as tried. What waits for nothing but
        its turn, be it that nobody has looked for an hour, does not.
        """
        with self._lock:
            expired = []
            for queue in self._queues.values():
                while queue.batches and queue.is_held_up and is_overdue(queue.batches[0]):
                    batch = queue.batches.popleft()
                    if batch is queue.open:
                        queue.open = None
                    expired.append(batch)
                    self.held_bytes -= batch.size
                    if batch.sequence != NO_SEQUENCE and batch.identity == self.identity:
                        self.needs_identity = True
            return expired

    def give_up(self) -> list[Batch]:
        """Give up all that is not in flight; returns it. What was sent before may be written."""
        with self._lock:
            given_up: list[Batch] = []
            for queue in self._queues.values():
                given_up += (*queue.refused, *queue.batches)
                queue.refused.clear()
                queue.batches.clear()
                queue.open = None
            for batch in given_up:
                self.held_bytes -= batch.size
                if batch.sequence != NO_SEQUENCE and batch.identity == self.identity:
                    self.needs_identity = True
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
                kept: deque[Batch] = deque()
                for batch in queue.batches:
                    (kept if batch.sequence == NO_SEQUENCE else given_up).append(batch)
                queue.batches = kept
            self.held_bytes -= sum(batch.size for batch in given_up)
            self.identity = identity
            self.needs_identity = False
            return given_up

    def _settle(self, batch: Batch) -> None:
        """Take an answered batch out of flight; the last one lets the repeats go."""
        queue = self._queues[batch.key]
        queue.in_flight.remove(batch)
        self._in_flight -= 1
        if queue.refused and not queue.in_flight:
            queue.refused.sort(key=lambda again: again.sequence)
            queue.batches.extendleft(reversed(queue.refused))
            queue.refused.clear()


def _is_before(first: int, second: int) -> bool:
    """Order of sequence numbers, which wrap to 0 after 2^31 - 1."""
    return 0 < (second - first) & _SEQUENCE_MASK < 1 << 30

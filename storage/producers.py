"""Producer states of one partition: idempotence (KIP-98, KIP-360) and open transactions.

A producer's batch passes through `check` before it is appended and `update` after. The log itself
calls `update` on leader appends, follower appends and recovery, so that all three agree.

| event | producer | transaction |
|---|---|---|
| data batch, known epoch | sequence continues | opens with the first transactional batch |
| data batch, higher epoch | history of the old epoch is dropped | as above |
| marker (commit, abort) | takes over a higher epoch | ends; stable once the high watermark passes |
| expiry | forgotten unless a transaction is open | - |
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack

from raylog.storage.checkpoint import PRODUCERS_KIND, decode, encode_parts
from raylog.storage.disk import Writable
from raylog.storage.index import AbortedTransaction
from raylog.wire.control import EndTxnMarker, decode_end_txn_marker
from raylog.wire.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from raylog.wire.records import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_batch,
)

BATCHES_KEPT = 5  # the number of batches that a producer may have in flight
_SEQUENCE_MASK = 0x7FFFFFFF
SNAPSHOT_VERSION = 1
NO_OFFSET = -1

_new = tuple.__new__  # half the cost of the generated constructor


class Duplicate(NamedTuple):
    """A batch that the log already holds; answer with it once the high watermark has passed it."""

    base_offset: int
    last_offset: int  # inclusive
    append_time_ms: int  # -1 where the topic keeps the producer's timestamps


class ProducerInfo(NamedTuple):
    """One producer as reported by DescribeProducers; -1 where there is no value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_seen_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


class LastOfProducers(NamedTuple):
    """Each producer's last entry in the log, by id, which the cleaner must keep."""

    offsets: dict[int, int]  # of their last data batches, inclusive
    epochs: dict[int, int]  # of producers that have only markers


class _Batch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_time_ms: int


class _Producer:
    """Changed in place by the states that created it; other states that share it copy it first."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "seen_ms", "version")

    def __init__(self, epoch: int, version: int) -> None:
        self.epoch = epoch
        self.version = version
        self.coordinator_epoch = -1
        self.seen_ms = 0
        self.batches: list[_Batch] = []  # of this epoch, newest last

    def copy(self, version: int) -> "_Producer":
        """Copy that can be changed while this one is being read."""
        other = _Producer(self.epoch, version)
        other.coordinator_epoch = self.coordinator_epoch
        other.seen_ms = self.seen_ms
        other.batches = self.batches.copy()
        return other


class ProducerSnapshot:
    """Producer states at one moment: they never change, so any thread may encode them."""

    __slots__ = ("_ended", "_open", "_producers")

    def __init__(
        self,
        producers: dict[int, _Producer],
        transactions: dict[int, int],
        ended: list[tuple[int, int]],
    ) -> None:
        self._producers = producers
        self._open = transactions
        self._ended = ended

    def __len__(self) -> int:
        return len(self._producers)

    def describe(self) -> Iterator[ProducerInfo]:
        """Every producer, for DescribeProducers (KIP-664)."""
        for producer_id, producer in self._producers.items():
            yield ProducerInfo(
                producer_id,
                producer.epoch,
                producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE,
                producer.seen_ms,
                producer.coordinator_epoch,
                self._open.get(producer_id, NO_OFFSET),
            )

    def encode(self) -> bytes:
        """Encode the file. This may take long, but does not keep other threads from running."""
        return encode_parts(PRODUCERS_KIND, SNAPSHOT_VERSION, list(self._parts()))

    def _parts(self) -> Iterator[bytes]:
        """Yield the contents one producer at a time; a single call would block other threads."""
        packer = msgpack.Packer()
        yield packer.pack_map_header(3)
        yield packer.pack("producers")
        yield packer.pack_array_header(len(self._producers))
        for producer_id, producer in self._producers.items():
            yield packer.pack(
                [
                    producer_id,
                    producer.epoch,
                    producer.coordinator_epoch,
                    producer.seen_ms,
                    producer.batches,
                ]
            )
        yield packer.pack("open")
        yield packer.pack(list(self._open.items()))
        yield packer.pack("ended")
        yield packer.pack(self._ended)


def is_behind(sequence: int, other: int) -> bool:
    """Whether a sequence number is after another; numbers wrap to 0 after 2^31 - 1."""
    return 0 < (sequence - other & _SEQUENCE_MASK) <= _SEQUENCE_MASK >> 1


def marker_in(batch: Writable) -> EndTxnMarker | None:
    """Parse the marker in a control batch; INVALID_RECORD if malformed.

    None for another kind of batch, or if the cleaner emptied it because its transaction is gone.
    """
    records = decode_batch(batch)
    return decode_end_txn_marker(records[0]) if records else None


class ProducerStates:
    """State of every producer that wrote to the partition, and of their transactions.

    `_open` maps producer ids to the first offset of the open transaction, in rising order of
    offsets, since the log only grows. `_ended` holds (first offset, marker offset) of transactions
    whose marker the high watermark has not passed yet: read_committed consumers must not see them
    yet. Producers with a version below `_version` are shared with snapshots.
    """

    __slots__ = ("_ended", "_open", "_producers", "_version")

    def __init__(self) -> None:
        self._version = 0
        self._producers: dict[int, _Producer] = {}
        self._open: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._producers)

    # -- data batches --------------------------------------------------------------------------

    def check(self, header: BatchHeader, *, must_start_at: int = NO_SEQUENCE) -> Duplicate | None:
        """Check that a produced batch may be appended; return the stored one if it is a repeat.

        An unknown producer may start at any sequence, because it may have expired or the topic may
        have been recreated; but not after `must_start_at`, if given. A new epoch starts at 0.
        Batches without a sequence come from a coordinator, which repeats none, so only epochs are
        checked. Raises INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if must_start_at != NO_SEQUENCE and is_behind(header.base_sequence, must_start_at):
                raise self._out_of_order(header, must_start_at)
            return None
        if header.base_sequence == NO_SEQUENCE:
            self._check_epoch(header, producer)
            return None
        if header.producer_epoch != producer.epoch:
            self._check_new_epoch(header, producer)
            return None
        last = header.last_sequence
        for batch in producer.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == last:
                return Duplicate(batch.base_offset, batch.last_offset, batch.append_time_ms)
        if producer.batches:
            expected = (producer.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
        else:
            expected = 0  # only a marker of this epoch has been seen
        if header.base_sequence != expected:
            raise self._out_of_order(header, expected)
        if self._open:
            self._check_transaction(header)
        return None

    def _check_new_epoch(self, header: BatchHeader, producer: _Producer) -> None:
        self._check_epoch(header, producer)
        if header.base_sequence != 0:
            raise self._out_of_order(header, 0)
        self._check_transaction(header)

    def _check_epoch(self, header: BatchHeader, producer: _Producer) -> None:
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {header.producer_epoch}, "
                f"the partition has seen {producer.epoch}"
            )

    def _check_transaction(self, header: BatchHeader) -> None:
        if not header.is_transactional and header.producer_id in self._open:
            raise InvalidTxnState(
                f"producer {header.producer_id} has an open transaction and wrote outside of it"
            )

    def _out_of_order(self, header: BatchHeader, expected: int) -> OutOfOrderSequenceNumber:
        return OutOfOrderSequenceNumber(
            f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence "
            f"{header.base_sequence}, expected {expected}"
        )

    def apply(
        self, header: BatchHeader, base_offset: int, batch: Writable, now_ms: int
    ) -> AbortedTransaction | None:
        """Record a producer's batch of any kind; return the transaction that it aborted, if any.

        `batch` is read only if it is a control batch.
        """
        if not header.attributes & CONTROL_BIT:
            self.update(header, base_offset, now_ms)
            return None
        marker = marker_in(batch)
        if marker is None:
            return None
        return self.end_transaction(
            header,
            base_offset,
            now_ms,
            coordinator_epoch=marker.coordinator_epoch,
            committed=marker.is_commit,
        )

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Record that the log now holds a producer's data batch at `base_offset`."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self._own(producer_id, epoch)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        batches = producer.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        attributes, delta, sequence = (
            header.attributes,
            header.last_offset_delta,
            header.base_sequence,
        )
        append_time_ms = header.max_timestamp if attributes & LOG_APPEND_TIME_BIT else -1
        last_sequence = sequence + delta & _SEQUENCE_MASK if sequence != NO_SEQUENCE else sequence
        batches.append(
            _new(
                _Batch,
                (sequence, last_sequence, base_offset, base_offset + delta, append_time_ms),
            )
        )
        producer.seen_ms = now_ms
        if attributes & TRANSACTIONAL_BIT and producer_id not in self._open:
            self._open[producer_id] = base_offset

    def _own(self, producer_id: int, epoch: int) -> _Producer:
        """The producer in a form that may be changed: new, or copied if a snapshot shares it."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(epoch, self._version)
        elif producer.version != self._version:
            producer = self._producers[producer_id] = producer.copy(self._version)
        return producer

    # -- transactions --------------------------------------------------------------------------

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Check that a marker may be appended.

        Raises INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if it is older than what the
        partition has seen.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"marker for producer {header.producer_id} has epoch {header.producer_epoch}, "
                f"the partition has seen {producer.epoch}"
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"marker of coordinator epoch {coordinator_epoch}, "
                f"the partition has seen {producer.coordinator_epoch}"
            )

    def end_transaction(
        self,
        header: BatchHeader,
        base_offset: int,
        now_ms: int,
        *,
        coordinator_epoch: int,
        committed: bool,
    ) -> AbortedTransaction | None:
        """Record a marker at `base_offset`; return the aborted transaction if it ended one.

        A marker for a producer without an open transaction only changes the producer's epoch.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self._own(producer_id, epoch)
        if epoch > producer.epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.coordinator_epoch = coordinator_epoch
        producer.seen_ms = now_ms
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        self._ended.append((first_offset, base_offset))
        if committed:
            return None
        last_stable = next(iter(self._open.values()), base_offset + 1)
        return AbortedTransaction(producer_id, first_offset, base_offset, last_stable)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Exclusive end of decided records, at most the high watermark. Never moves back."""
        stable = high_watermark
        if self._open:
            stable = min(stable, next(iter(self._open.values())))
        if self._ended:
            self._ended = [each for each in self._ended if each[1] >= high_watermark]
            stable = min([stable, *(first for first, _ in self._ended)])
        return stable

    def forget_below(self, offset: int) -> None:
        """Forget ended transactions whose marker is below the log start or the high watermark."""
        self._ended = [each for each in self._ended if each[1] >= offset]

    # -- expiry and queries ----------------------------------------------------------------------

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for `expiration_ms` without open transaction; return how many."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now_ms - producer.seen_ms >= expiration_ms and producer_id not in self._open
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def describe(self) -> list[ProducerInfo]:
        """Describe all producers in one list."""
        return list(ProducerSnapshot(self._producers, self._open, self._ended).describe())

    def last_batches(self) -> LastOfProducers:
        """The last data batch of every producer."""
        offsets: dict[int, int] = {}
        epochs: dict[int, int] = {}
        for producer_id, producer in self._producers.items():
            if producer.batches:
                offsets[producer_id] = producer.batches[-1].last_offset
            else:
                epochs[producer_id] = producer.epoch
        return LastOfProducers(offsets, epochs)

    def epoch_of(self, producer_id: int) -> int:
        """The newest epoch that the partition has seen; -1 for an unknown producer."""
        producer = self._producers.get(producer_id)
        return NO_PRODUCER_EPOCH if producer is None else producer.epoch

    def transaction_start(self, producer_id: int) -> int:
        """First offset of the producer's open transaction; -1 if it has none."""
        return self._open.get(producer_id, NO_OFFSET)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> ProducerSnapshot:
        """The present states, to be encoded later; producers are shared until they change."""
        self._version += 1
        return ProducerSnapshot(self._producers.copy(), self._open.copy(), self._ended.copy())

    @classmethod
    def restore(cls, data: bytes, path: str = "") -> "ProducerStates | None":
        """Restore the states of the file at `path`; None if damaged. Raises NewerVersion."""
        contents = decode(PRODUCERS_KIND, SNAPSHOT_VERSION, data, path)
        try:
            return None if contents is None else cls._of(contents.value)
        except (LookupError, TypeError, ValueError):
            return None  # wrong structure despite a right checksum

    @classmethod
    def _of(cls, contents: Any) -> "ProducerStates":
        states = cls()
        for producer_id, epoch, coordinator_epoch, seen_ms, batches in contents["producers"]:
            producer = states._own(int(producer_id), int(epoch))
            producer.coordinator_epoch = int(coordinator_epoch)
            producer.seen_ms = int(seen_ms)
            producer.batches = [_Batch(*map(int, batch)) for batch in batches]
        states._open = {int(producer_id): int(first) for producer_id, first in contents["open"]}
        states._ended = [(int(first), int(last)) for first, last in contents["ended"]]
        return states

"""Loads a shard from its partition's log.

Most of the log consists of committed offsets, of which only the last for each key counts. They are
kept as bytes until the end of the log is reached; those of transactions are kept separately until
their marker. All other records are replayed in order. Reading runs in a thread, on objects that
nothing else accesses yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raylog.actors.common_messages import Route
from raylog.actors.coordination.reading import read_claimed
from raylog.actors.coordination.rules import records
from raylog.actors.group.rules.offset_store import OffsetStore, Partitions
from raylog.actors.group.rules.pending import Producer, StoredOffset
from raylog.actors.group.rules.shard import Shard
from raylog.actors.runtime.base import Link, Runtime
from raylog.wire.bulk import BulkRecord, batches
from raylog.wire.collecting import without_collector
from raylog.wire.control import ControlType, decode_control_key
from raylog.wire.internal.blobs import OFFSETS_TOPIC
from raylog.wire.internal.commits import decode_commit_key, decode_commit_value, is_commit_key
from raylog.wire.records import NO_PRODUCER_ID, BatchHeader

COMMITS_AT_ONCE = 20_000
PARTITION_AT = -4
"""A commit's key ends with the partition, as a big-endian int32."""


async def load(runtime: Runtime, link: Link, route: Route, shard: Shard) -> int:
    """Load a new shard from the log; return the offset at which the log ended.

    Raises the replica's errors, PeerLost, and OSError.
    """
    loading = Loading(shard)
    offset = await read_claimed(runtime, link, route, loading.take)
    while loading.commits:
        await runtime.run_blocking(loading.place_some)
    loading.place_pending()
    return offset


@dataclass(slots=True, eq=False)
class _Pending:
    """One offset of a transaction that is open at this point of the log."""

    number: int
    """Increases with its position in the log."""
    producer: Producer
    key: bytes
    value: bytes
    is_overtaken: bool = False


class _Transactions:
    """Offsets that wait for their marker, by producer id and by key; see `PendingOffsets`."""

    def __init__(self) -> None:
        self.keys: dict[bytes, dict[int, _Pending]] = {}
        """Key to producer id to offset; no entry is empty."""
        self._producers: dict[int, dict[bytes, _Pending]] = {}
        self._next_number = 0

    def add(self, producer: Producer, key: bytes, value: bytes) -> None:
        """Add an offset, which replaces the transaction's earlier one for the key."""
        one = _Pending(self._next_number, producer, key, value)
        self._next_number += 1
        self.keys.setdefault(key, {})[producer.producer_id] = one
        self._producers.setdefault(producer.producer_id, {})[key] = one

    def overtake(self, key: bytes, before: int | None = None) -> None:
        """Mark offsets before `before` as overtaken, or with None all offsets so far."""
        for one in self.keys.get(key, {}).values():
            if before is None or one.number < before:
                one.is_overtaken = True

    def forget(self, key: bytes) -> None:
        """Drop offsets because of a tombstone."""
        for producer_id in self.keys.pop(key, {}):
            del self._producers[producer_id][key]

    def end(self, producer_id: int) -> list[_Pending]:
        """Remove and return the offsets of a transaction. The caller skips overtaken ones."""
        ended = list(self._producers.pop(producer_id, {}).values())
        for one in ended:
            here = self.keys[one.key]
            del here[producer_id]
            if not here:
                del self.keys[one.key]
        return ended

    def left(self) -> Iterable[_Pending]:
        """Return what is still open, in the order of the log."""
        found = [one for here in self.keys.values() for one in here.values()]
        return sorted(found, key=lambda one: one.number)


class Loading:
    """The state of a load, for a new shard.

    Names and topic ids, which occur millions of times, are shared objects.
    """

    def __init__(self, shard: Shard) -> None:
        self.commits: dict[bytes, bytes | None] = {}
        """The last value of each key; None for a tombstone."""
        self._shard = shard
        self._offsets: OffsetStore = shard.offsets
        self._transactions = _Transactions()
        self._topic_ids: dict[bytes, bytes] = {}
        self._places: dict[bytes, Partitions] = {}
        """The partitions of a group and topic, by a key without its last bytes."""
        self._topics: dict[str, str] = {}

    def take(self, data: memoryview, offset: int) -> int:
        """Process the records of some batches from `offset` on; return the next offset."""
        commits, shard, pending = self.commits, self._shard, self._transactions.keys
        for header, found in batches(data):
            if header.producer_id != NO_PRODUCER_ID:
                self._take_producers(header, (one for one in found if one[0] >= offset))
            else:
                for at, key, value, _ in self._overtaking(found, offset) if pending else found:
                    if at < offset:
                        continue
                    if is_commit_key(key):
                        commits[key] = value
                    elif (record := records.decode(OFFSETS_TOPIC, key, value)) is not None:
                        shard.replay(record).commit()
            offset = header.next_offset
        return offset

    def _take_producers(self, header: BatchHeader, found: Iterator[BulkRecord]) -> None:
        """Process offsets of a transaction, or the marker that ends it."""
        producer = Producer(header.producer_id, header.producer_epoch)
        for _, key, value, _ in found:
            if header.is_control:
                self._end(producer.producer_id, decode_control_key(key))
            elif is_commit_key(key):
                if value is None:
                    self.commits[key] = None
                    self._transactions.forget(key)
                else:
                    self._transactions.add(producer, key, value)

    def _end(self, producer_id: int, control: ControlType | None) -> None:
        if control not in (ControlType.COMMIT, ControlType.ABORT):
            return
        for one in self._transactions.end(producer_id):
            if control is ControlType.COMMIT and not one.is_overtaken:
                self.commits[one.key] = one.value
                self._transactions.overtake(one.key, one.number)

    def _overtaking(self, found: Iterator[BulkRecord], offset: int) -> Iterator[BulkRecord]:
        """Yield ordinary records; they overtake what transactions wrote to the same partitions."""
        pending = self._transactions.keys
        for one in found:
            at, key, value, _ = one
            if at >= offset and key in pending:
                if value is None:
                    self._transactions.forget(key)
                else:
                    self._transactions.overtake(key)
            yield one

    def place_pending(self) -> None:
        """Move the offsets that are still pending at the end of the log into the shard."""
        pending = self._offsets.pending
        for one in self._transactions.left():
            group_id, topic, partition = decode_commit_key(one.key)
            stored = StoredOffset(*decode_commit_value(one.value))
            self._offsets.groups.setdefault(group_id, {})
            placed = pending.add(one.producer, group_id, topic, partition, stored)
            placed.is_overtaken, placed.is_open = one.is_overtaken, True

    def place_some(self) -> None:
        """Move some of the commits into the shard.

        Keys of the same group and topic differ only in their last bytes, the partition, so the rest
        is decoded once.
        """
        commits, known, one_id = self.commits, self._places.get, self._topic_ids.setdefault
        new, number = tuple.__new__, int.from_bytes  # half the cost of the generated constructor
        with without_collector():
            for _ in range(min(len(commits), COMMITS_AT_ONCE)):
                key, value = commits.popitem()
                if value is None:
                    continue
                offset, epoch, metadata, at_ms, until_ms, topic_id = decode_commit_value(value)
                fields = (offset, epoch, metadata, at_ms, until_ms, one_id(topic_id, topic_id))
                place = known(key[:PARTITION_AT])
                if place is None:
                    place = self._new_place(key)
                place[number(key[PARTITION_AT:])] = new(StoredOffset, fields)

    def _new_place(self, key: bytes) -> Partitions:
        """Decode a new key and remember where its offsets belong."""
        group_id, topic, _ = decode_commit_key(key)
        place = self._offsets.place(group_id, self._topics.setdefault(topic, topic))
        self._places[key[:PARTITION_AT]] = place
        return place

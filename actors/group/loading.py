"""Reading a shard back from its partition's log.

Committed offsets are most of what there is, and of one key the last alone counts: they are kept
as bytes until the end is reached, those of transactions apart until their marker comes. Everything
else is replayed in order. What is read runs in a thread, on objects that nobody else sees yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raylog.actors.coordination import records
from raylog.actors.coordination.reading import read_claimed
from raylog.actors.group.offset_store import OffsetStore, Partitions
from raylog.actors.group.pending import Producer, StoredOffset
from raylog.actors.group.shard import Shard
from raylog.actors.ports import Route
from raylog.actors.runtime.base import Link, Runtime
from raylog.wire.bulk import BulkRecord, batches
from raylog.wire.collecting import without_collector
from raylog.wire.control import ControlType, decode_control_key
from raylog.wire.internal.blobs import OFFSETS_TOPIC
from raylog.wire.internal.commits import decode_commit_key, decode_commit_value, is_commit_key
from raylog.wire.records import NO_PRODUCER_ID, BatchHeader

COMMITS_AT_ONCE = 20_000
PARTITION_AT = -4
"""From here on a key of a commit is the partition, big-endian."""


async def load(runtime: Runtime, link: Link, route: Route, shard: Shard) -> int:
    """Bring a new shard to the end of the log as it is now; returns that offset.

    Raises what the replica answers, PeerLost, and OSError.
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
    """Rises with its place in the log."""
    producer: Producer
    key: bytes
    value: bytes
    is_overtaken: bool = False


class _Transactions:
    """Offsets that wait for their marker, by producer id and by key; as `PendingOffsets`."""

    def __init__(self) -> None:
        self.keys: dict[bytes, dict[int, _Pending]] = {}
        """Key to producer id to offset; no key has none."""
        self._producers: dict[int, dict[bytes, _Pending]] = {}
        self._next_number = 0

    def add(self, producer: Producer, key: bytes, value: bytes) -> None:
        """An offset of a transaction replaces what it wrote there before."""
        one = _Pending(self._next_number, producer, key, value)
        self._next_number += 1
        self.keys.setdefault(key, {})[producer.producer_id] = one
        self._producers.setdefault(producer.producer_id, {})[key] = one

    def overtake(self, key: bytes, before: int | None = None) -> None:
        """What stands before an offset that counts will not count; None: all that is here."""
        for one in self.keys.get(key, {}).values():
            if before is None or one.number < before:
                one.is_overtaken = True

    def forget(self, key: bytes) -> None:
        """A tombstone takes them away."""
        for producer_id in self.keys.pop(key, {}):
            del self._producers[producer_id][key]

    def end(self, producer_id: int) -> list[_Pending]:
        """Take away what a transaction wrote; of those that are not overtaken the caller knows."""
        ended = list(self._producers.pop(producer_id, {}).values())
        for one in ended:
            here = self.keys[one.key]
            del here[producer_id]
            if not here:
                del self.keys[one.key]
        return ended

    def left(self) -> Iterable[_Pending]:
        """What is still open, in the order of the log."""
        found = [one for here in self.keys.values() for one in here.values()]
        return sorted(found, key=lambda one: one.number)


class Loading:
    """What was read so far, for a new shard.

    Names and topic ids that recur by the million are one object each.
    """

    def __init__(self, shard: Shard) -> None:
        self.commits: dict[bytes, bytes | None] = {}
        """The last value of each key; None where a tombstone is the last."""
        self._shard = shard
        self._offsets: OffsetStore = shard.offsets
        self._transactions = _Transactions()
        self._topic_ids: dict[bytes, bytes] = {}
        self._places: dict[bytes, Partitions] = {}
        """By all of a key but its last bytes, the partition."""
        self._topics: dict[str, str] = {}

    def take(self, data: memoryview, offset: int) -> int:
        """Take in the records of some batches from `offset` on; returns the offset behind them."""
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
        """Take in offsets of a transaction, or the marker that ends it."""
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
        """Records from outside of transactions, which have written to the same partitions."""
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
        """Move what is open at the end of the log into the shard."""
        pending = self._offsets.pending
        for one in self._transactions.left():
            group_id, topic, partition = decode_commit_key(one.key)
            stored = StoredOffset(*decode_commit_value(one.value))
            self._offsets.groups.setdefault(group_id, {})
            placed = pending.add(one.producer, group_id, topic, partition, stored)
            placed.is_overtaken, placed.is_open = one.is_overtaken, True

    def place_some(self) -> None:
        """Move some of the commits into the shard.

        Keys of one group's topic differ in their last bytes, the partition: the rest is decoded
        once.
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
        """The place of a key that is not known, which it is then."""
        group_id, topic, _ = decode_commit_key(key)
        place = self._offsets.place(group_id, self._topics.setdefault(topic, topic))
        self._places[key[:PARTITION_AT]] = place
        return place

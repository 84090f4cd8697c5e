"""Reading a shard back from its partition's log.

Committed offsets are most of what there is, and of one key the last alone counts: they are kept
as bytes until the end is reached. Everything else is replayed in order. What is read runs in a
thread, on objects that nobody else sees yet.
"""

from __future__ import annotations

from raylog.actors.coordination import records
from raylog.actors.coordination.reading import read_claimed, without_collector
from raylog.actors.group.offsets import OffsetStore, Partitions, StoredOffset
from raylog.actors.group.shard import Shard
from raylog.actors.ports import Route
from raylog.actors.runtime.base import Link, Runtime
from raylog.wire.bulk import batches
from raylog.wire.internal.blobs import OFFSETS_TOPIC
from raylog.wire.internal.commits import decode_commit_key, decode_commit_value, is_commit_key

COMMITS_AT_ONCE = 20_000
PARTITION_AT = -4
"""From here on a key of a commit is the partition, big-endian."""


async def load(runtime: Runtime, link: Link, route: Route, shard: Shard) -> int:
    """Bring a new shard to the end of the log as it is now; returns that offset.

    Raises what the replica answers, PeerLost, and OSError.
    """
    loading = _Loading(shard)
    offset = await read_claimed(runtime, link, route, loading.take)
    while loading.commits:
        await runtime.run_blocking(loading.place_some)
    return offset


class _Loading:
    """What was read so far. Names and topic ids that recur by the million are one object each."""

    def __init__(self, shard: Shard) -> None:
        self.commits: dict[bytes, bytes | None] = {}
        """The last value of each key; None where a tombstone is the last."""
        self._shard = shard
        self._offsets: OffsetStore = shard.offsets
        self._topic_ids: dict[bytes, bytes] = {}
        self._places: dict[bytes, Partitions] = {}
        """By all of a key but its last bytes, the partition."""
        self._topics: dict[str, str] = {}

    def take(self, data: memoryview, offset: int) -> int:
        """Take in the records of some batches from `offset` on; returns the offset behind them."""
        commits, shard = self.commits, self._shard
        for header, found in batches(data):
            if not header.is_control:
                for at, key, value, _ in found:
                    if at < offset:
                        continue
                    if is_commit_key(key):
                        commits[key] = value
                    elif (record := records.decode(OFFSETS_TOPIC, key, value)) is not None:
                        shard.replay(record)
            offset = header.next_offset
        return offset

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

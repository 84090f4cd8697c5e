"""Reading a shard back from its partition's log.

Committed offsets are most of what there is, and of one key the last alone counts: they are kept
as bytes until the end is reached. Everything else is replayed in order. What is read runs in a
thread, on objects that nobody else sees yet.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from raylog.actors.group import records
from raylog.actors.group.offsets import OffsetStore, Partitions, StoredOffset
from raylog.actors.group.shard import Shard
from raylog.actors.ports import Route
from raylog.actors.replica.api import (
    CLAIM,
    EARLIEST_TIMESTAMP,
    FETCH,
    OFFSET_FOR,
    FetchAsk,
    FetchedPartition,
    Interest,
)
from raylog.actors.runtime.base import Link, Runtime
from raylog.wire.bulk import batches
from raylog.wire.errors import CorruptMessage, error_of
from raylog.wire.internal.commits import decode_commit_key, decode_commit_value, is_commit_key

CHUNK_BYTES = 4 << 20
WAIT_S = 0.01
COMMITS_AT_ONCE = 20_000
PARTITION_AT = -4
"""From here on a key of a commit is the partition, big-endian."""
Commits = dict[bytes, bytes | None]
"""The last value of each key; None where a tombstone is the last."""


async def load(runtime: Runtime, link: Link, route: Route, shard: Shard) -> int:
    """Bring a new shard to the end of the log as it is now; returns that offset.

    What was appended before is waited for: once it is below the high watermark it counts. Raises
    what the replica answers, PeerLost, and OSError.
    """
    key = (route.topic_id, route.partition)
    epoch = route.leader_epoch
    end: int = await link.ask(CLAIM, (*key, epoch))
    offset: int
    offset, _, _ = await link.ask(OFFSET_FOR, (*key, epoch, EARLIEST_TIMESTAMP, 0))
    commits: Commits = {}
    session_id = 0
    while offset < end:
        session_id += 1
        part = await _fetch(link, route, offset, session_id)
        if not part.length:
            await runtime.sleep(WAIT_S)
            continue
        path = f"{route.directory}/{part.segment_id}"
        offset = await runtime.run_blocking(
            _read_slice, path, part.position, part.length, offset, shard, commits
        )
    places = _Places(shard.offsets)
    while commits:
        await runtime.run_blocking(_take_commits, places, commits)
    return offset


class _Places:
    """Where offsets go. Names and topic ids that recur by the million are one object each."""

    def __init__(self, offsets: OffsetStore) -> None:
        self.topic_ids: dict[bytes, bytes] = {}
        self.known: dict[bytes, Partitions] = {}
        """By all of a key but its last bytes, the partition."""
        self._offsets = offsets
        self._topics: dict[str, str] = {}

    def new(self, key: bytes) -> Partitions:
        """The place of a key that is not in `known`, which it is then."""
        group_id, topic, _ = decode_commit_key(key)
        place = self._offsets.place(group_id, self._topics.setdefault(topic, topic))
        self.known[key[:PARTITION_AT]] = place
        return place


async def _fetch(link: Link, route: Route, offset: int, session_id: int) -> FetchedPartition:
    """Where the next records are."""
    interest = Interest(
        route.topic_id, route.partition, offset, CHUNK_BYTES, route.leader_epoch, -1
    )
    asked = FetchAsk(
        session_id=session_id,
        once=True,
        complete=True,
        isolation_level=0,
        max_bytes=CHUNK_BYTES,
        min_bytes=1,
        wait=False,
        changes=[interest],
        forgotten=[],
    )
    (found,) = await link.ask(FETCH, asked)
    part = FetchedPartition(*found)
    if part.error_code:
        raise error_of(part.error_code, f"partition {route.partition} from offset {offset}")
    return part


def _read_slice(
    path: str, position: int, length: int, offset: int, shard: Shard, commits: Commits
) -> int:
    """Take in the records of a slice from `offset` on; returns the offset behind them."""
    try:
        data = _read(path, position, length)
    except FileNotFoundError:
        return offset  # compacted meanwhile: the replica is asked again
    with _no_collector():
        for header, found in batches(data):
            if not header.is_control:
                for at, key, value, _ in found:
                    if at < offset:
                        continue
                    if is_commit_key(key):
                        commits[key] = value
                    elif (record := records.decode(key, value)) is not None:
                        shard.replay(record)
            offset = header.next_offset
    return offset


def _take_commits(places: _Places, commits: Commits) -> None:
    """Move some of the commits into the shard.

    Keys of one group's topic differ in their last bytes, the partition: the rest is decoded once.
    """
    known, new_place, one_id = places.known.get, places.new, places.topic_ids.setdefault
    new, number = tuple.__new__, int.from_bytes  # half the cost of the generated constructor
    with _no_collector():
        for _ in range(min(len(commits), COMMITS_AT_ONCE)):
            key, value = commits.popitem()
            if value is None:
                continue
            offset, epoch, metadata, at_ms, until_ms, topic_id = decode_commit_value(value)
            fields = (offset, epoch, metadata, at_ms, until_ms, one_id(topic_id, topic_id))
            place = known(key[:PARTITION_AT])
            if place is None:
                place = new_place(key)
            place[number(key[PARTITION_AT:])] = new(StoredOffset, fields)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Millions of objects that all stay: the garbage collector would look at them over and over."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(path: str, position: int, length: int) -> memoryview:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(fd, length, position)
    finally:
        os.close(fd)
    if len(data) < length:
        raise CorruptMessage(f"{path} ends {length - len(data)} bytes early")
    return memoryview(data)

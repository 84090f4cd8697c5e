"""Reads a shard's partition, up to the end that the log had when the shard claimed it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from raylog.actors.common_messages import Route
from raylog.actors.message import taken
from raylog.actors.replica.messages import (
    CLAIM,
    EARLIEST_TIMESTAMP,
    FETCH,
    OFFSET_FOR,
    FetchAsk,
    FetchedPartition,
    Interest,
)
from raylog.actors.runtime.base import Link, Runtime
from raylog.storage.disk import Disk
from raylog.wire.collecting import without_collector
from raylog.wire.errors import CorruptMessage, error_of

CHUNK_BYTES = 4 << 20
WAIT_S = (0.01, 0.5)
"""Shortest and longest delay before asking again for records that are not yet committed."""
_session_ids = itertools.count(1)
"""Shards share links, and a replica keeps one session per id while a thread reads for it."""
Take = Callable[[memoryview, int], int]
"""Takes whole batches, some below the offset and already known; returns the next offset."""


async def read_claimed(runtime: Runtime, link: Link, route: Route, take: Take) -> int:
    """Pass the whole log to `take`, which runs in a thread; return the end offset.

    It waits until everything that was appended before is below the high watermark. Raises the
    replica's errors, PeerLost, and OSError.
    """
    key = (route.topic_id, route.partition)
    epoch = route.leader_epoch
    end: int = await link.ask(CLAIM, (*key, epoch))
    offset: int
    offset, *_ = await link.ask(OFFSET_FOR, (*key, epoch, EARLIEST_TIMESTAMP, 0))
    wait_s, longest_s = WAIT_S
    while offset < end:
        part = await _fetch(link, route, offset)
        if not part.length:
            await runtime.sleep(wait_s)
            wait_s = min(wait_s * 2, longest_s)
            continue
        path = f"{route.directory}/{part.segment_id}"
        offset = await runtime.run_blocking(
            _take_slice, runtime.disk, path, part.position, part.length, offset, take
        )
        wait_s = WAIT_S[0]
    return offset


async def _fetch(link: Link, route: Route, offset: int) -> FetchedPartition:
    """Fetch the position of the next records."""
    interest = Interest(
        route.topic_id, route.partition, offset, CHUNK_BYTES, route.leader_epoch, -1
    )
    asked = FetchAsk(
        session_id=next(_session_ids),
        once=True,
        complete=True,
        isolation_level=0,
        max_bytes=CHUNK_BYTES,
        min_bytes=1,
        wait=False,
        changes=[interest],
        forgotten=[],
    )
    found, *_ = await link.ask(FETCH, asked)
    part = taken(FetchedPartition, found)
    if part.error_code:
        raise error_of(part.error_code, f"partition {route.partition} from offset {offset}")
    return part


def _take_slice(disk: Disk, path: str, position: int, length: int, offset: int, take: Take) -> int:
    try:
        data = _read(disk, path, position, length)
    except FileNotFoundError:
        return offset  # compacted meanwhile: ask the replica again
    with without_collector():
        return take(data, offset)


def _read(disk: Disk, path: str, position: int, length: int) -> memoryview:
    fd = disk.open(path)
    try:
        data = disk.pread(fd, length, position)
    finally:
        disk.close(fd)
    if len(data) < length:
        raise CorruptMessage(f"{path} ends {length - len(data)} bytes early")
    return memoryview(data)

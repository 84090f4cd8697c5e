"""Reading a claimed log to its end, though not all of it may be below the high watermark yet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.common_messages import Route, TopicId
from raylog.actors.coordination.reading import CHUNK_BYTES, read_claimed
from raylog.actors.replica import messages as api
from raylog.actors.replica.messages import FetchAsk, Interest
from raylog.storage.disk import OsDisk
from raylog.wire.errors import CorruptMessage, NotLeaderOrFollower, OffsetOutOfRange
from raylog.wire.records import assign, iter_batches
from tests.worlds.decorators import in_loop
from tests.worlds.runtime import FakeLink, FakeRequest, FakeRuntime, settle
from tests.worlds.storage.logs import batch

SEGMENT = "log"
OUTAGE_MS = 60_000


@dataclass
class World:
    """A log of six batches with one record each, some of which are below the high watermark."""

    directory: Path
    high_watermark: int = 6
    start: int = 0
    taken: list[int] = field(default_factory=list)
    """Base offsets, in the order they were taken in."""
    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    link: FakeLink = field(default_factory=FakeLink)

    def __post_init__(self) -> None:
        data = bytearray()
        for offset in range(6):
            one = bytearray(batch(1))
            assign(one, offset, 0)
            self.size = len(one)
            data += one
        (self.directory / SEGMENT).write_bytes(data)
        self.link.answering = self._answer

    def read(self) -> asyncio.Task[int]:
        """Read all."""
        route = Route(TopicId(b"t" * 16), 0, 3, "replica", "replica", str(self.directory))
        reading = read_claimed(self.runtime, self.link, route, self._take)  # type: ignore[arg-type]  # fakes
        return asyncio.get_running_loop().create_task(reading)

    def _take(self, data: memoryview, offset: int) -> int:
        for header, _ in iter_batches(bytes(data)):
            self.taken.append(header.base_offset)
            offset = header.next_offset
        return offset

    def _answer(self, request: FakeRequest) -> Any:
        match request.kind:
            case api.CLAIM:
                return 6
            case api.OFFSET_FOR:
                return (self.start, -1, 0)
            case api.FETCH:
                topic_id, index, offset, *_ = request.header.changes[0]
                length = max(0, min(self.high_watermark, offset + 2) - offset) * self.size
                here = (SEGMENT, offset * self.size, length)
                return [(topic_id, index, 0, self.high_watermark, 6, self.start, *here)]
        raise AssertionError(request.kind)


@in_loop
async def test_all_of_the_log_is_read_once(tmp_path: Path) -> None:
    world = World(tmp_path, start=1)
    assert await world.read() == 6
    assert world.taken == [1, 2, 3, 4, 5]
    assert world.link.kinds()[:2] == [api.CLAIM, api.OFFSET_FOR], "the claim comes first"


@pytest.mark.parametrize("high_watermark", [0, 3, 5])
@in_loop
async def test_loading_waits_until_the_predecessors_records_are_committed(
    tmp_path: Path, high_watermark: int
) -> None:
    """It was acknowledged, perhaps: the high watermark of a new leader is behind at first."""

    world = World(tmp_path, high_watermark)
    reading = world.read()
    await world.runtime.advance(5_000)
    assert world.taken == list(range(high_watermark))
    assert not reading.done()
    world.high_watermark = 6
    await world.runtime.advance(1_000)
    assert await reading == 6
    assert world.taken == [0, 1, 2, 3, 4, 5]


@in_loop
async def test_nothing_is_asked_in_a_hurry_while_nothing_happens(tmp_path: Path) -> None:
    world = World(tmp_path, 3)
    reading = world.read()
    await world.runtime.advance(100)
    quick = len(world.link.requests)
    assert quick >= 5, "usually it is a matter of milliseconds"
    await world.runtime.advance(OUTAGE_MS)
    assert len(world.link.requests) - quick < 150
    reading.cancel()
    await settle()


@in_loop
async def test_leadership_that_ends_meanwhile_ends_it(tmp_path: Path) -> None:
    world = World(tmp_path, 3)
    reading = world.read()
    await world.runtime.advance(100)

    def refuse(_: FakeRequest) -> Any:
        raise NotLeaderOrFollower("it leads no longer")

    world.link.answering = refuse
    await world.runtime.advance(1_000)
    with pytest.raises(NotLeaderOrFollower):
        await reading


@in_loop
async def test_partition_error_of_the_replica_ends_the_loading(tmp_path: Path) -> None:
    world = World(tmp_path)
    answering = world.link.answering
    assert answering is not None

    def refuse(request: FakeRequest) -> Any:
        if request.kind != api.FETCH:
            return answering(request)
        topic_id, index, *_ = request.header.changes[0]
        return [(topic_id, index, int(OffsetOutOfRange.code), -1, -1, -1, "", 0, 0)]

    world.link.answering = refuse
    with pytest.raises(OffsetOutOfRange, match="partition 0 from offset 0"):
        await world.read()
    assert world.taken == []


@in_loop
async def test_a_segment_that_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    """It was compacted after the replica had said where it is."""

    world = World(tmp_path)
    answering = world.link.answering
    assert answering is not None
    gone = ["gone", "gone"]

    def answer(request: FakeRequest) -> Any:
        found = answering(request)
        if request.kind != api.FETCH or not gone:
            return found
        ((*place, _, position, length),) = found
        return [(*place, gone.pop(), position, length)]

    world.link.answering = answer
    reading = world.read()
    await world.runtime.advance(1_000)
    assert await reading == 6
    assert world.taken == [0, 1, 2, 3, 4, 5]


@in_loop
async def test_a_segment_that_ends_early_is_damaged(tmp_path: Path) -> None:
    world = World(tmp_path)
    whole = (tmp_path / SEGMENT).read_bytes()
    (tmp_path / SEGMENT).write_bytes(whole[:-1])
    with pytest.raises(CorruptMessage, match="ends 1 bytes early"):
        await world.read()
    assert world.taken == [0, 1, 2, 3]


@in_loop
async def test_the_replica_is_asked_for_all_that_is_committed_in_the_claimed_epoch(
    tmp_path: Path,
) -> None:
    """Offsets of open transactions as well: the marker decides about them."""

    world = World(tmp_path, start=2)
    assert await world.read() == 6
    claim, first, *fetches = world.link.requests
    key = (TopicId(b"t" * 16), 0)
    assert claim.header == (*key, 3)
    assert first.header == (*key, 3, api.EARLIEST_TIMESTAMP, 0)
    for fetch, offset in zip(fetches, (2, 4), strict=True):
        assert fetch.header == FetchAsk(
            session_id=fetch.header.session_id,
            once=True,
            complete=True,
            isolation_level=0,
            max_bytes=CHUNK_BYTES,
            min_bytes=1,
            wait=False,
            changes=[Interest(*key, offset, CHUNK_BYTES, 3, -1)],
            forgotten=[],
        )


@in_loop
async def test_reads_have_sessions_of_their_own(tmp_path: Path) -> None:
    """Shards share a link: a newer ask of the same session would answer an older one."""

    world = World(tmp_path)
    await asyncio.gather(world.read(), world.read())
    sessions = [one.header.session_id for one in world.link.requests if one.kind == api.FETCH]
    assert len({*sessions}) == len(sessions) == 6


@in_loop
async def test_after_something_has_come_the_next_is_not_waited_for_as_long(tmp_path: Path) -> None:
    world = World(tmp_path, 2)
    reading = world.read()
    await world.runtime.advance(OUTAGE_MS)
    world.high_watermark = 4
    while world.taken != [0, 1, 2, 3]:
        await world.runtime.advance(1)
    asked = len(world.link.requests)
    await world.runtime.advance(100)
    assert len(world.link.requests) - asked >= 3, "it is a matter of milliseconds again"
    reading.cancel()
    await settle()


class CountingDisk(OsDisk):
    """A disk that tracks open files."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0

    def open(self, path: Any, *args: Any, **kwargs: Any) -> int:
        fd = super().open(path, *args, **kwargs)
        self.opened += 1
        return fd

    def close(self, fd: int) -> None:
        self.closed += 1
        super().close(fd)


@pytest.mark.parametrize("is_damaged", [False, True])
@in_loop
async def test_no_segment_stays_open(tmp_path: Path, *, is_damaged: bool) -> None:
    world = World(tmp_path)
    disk = world.runtime.disk = CountingDisk()
    if is_damaged:
        whole = (tmp_path / SEGMENT).read_bytes()
        (tmp_path / SEGMENT).write_bytes(whole[:-1])
        with pytest.raises(CorruptMessage):
            await world.read()
    else:
        await world.read()
    assert disk.opened == disk.closed == 3

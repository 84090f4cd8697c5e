"""A voter with a slow disk keeps voting while it writes a snapshot."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raylog.actors.broker.voter import Voter
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.log_copy import Promise
from raylog.actors.metadata.voting import JoinVoters, NewEpoch, VoterAppend, VoterAppended
from raylog.wire.errors import FencedLeaderEpoch, KafkaStorageError
from tests.worlds.broker.voters import voter
from tests.worlds.decorators import in_loop
from tests.worlds.runtime import settle
from tests.worlds.storage.disk import FaultyDisk

SNAPSHOT = LogSnapshot(2, 1, (b"both",))


def entry(offset: int, epoch: int) -> LogEntry:
    return LogEntry(offset, epoch, (b"%d@%d" % (offset, epoch),))


def append(epoch: int, previous: tuple[int, int], *entries: LogEntry) -> VoterAppend:
    return VoterAppend(epoch, previous[0], previous[1], list(entries))


class SlowSnapshots:
    """Blocking calls; those that write a snapshot wait until they are released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.begun = 0

    async def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        if "write_snapshot" in repr(function):
            self.begun += 1
            await self.released.wait()
        return function(*args)


async def installing(disk: FaultyDisk) -> tuple[Voter, SlowSnapshots, asyncio.Future[None]]:
    """A voter with entries 0 to 2 that writes a snapshot of the first two."""
    slow = SlowSnapshots()
    one = voter(disk, run=slow)
    one._log.write([Promise(1, "c")])
    await one.append(append(1, (0, 0), *(entry(at, 1) for at in range(3))))
    install = asyncio.ensure_future(one.install(1, SNAPSHOT, "c"))
    await settle()
    assert (slow.begun, install.done()) == (1, False)
    return one, slow, install


@in_loop
async def test_entries_are_taken_while_a_snapshot_is_written() -> None:
    disk = FaultyDisk()
    one, slow, install = await installing(disk)
    assert await one.append(append(1, (1, 3), entry(3, 1))) == VoterAppended(True, 4)
    slow.released.set()
    await install
    disk.kill()
    for copy in (one, voter(disk)):
        fetched = copy.fetch(1, 0)
        assert (fetched.snapshot, fetched.entries) == (SNAPSHOT, [entry(2, 1), entry(3, 1)])


@in_loop
async def test_entries_taken_while_a_snapshot_is_written_are_there_if_it_never_is() -> None:
    disk = FaultyDisk()
    one, _, install = await installing(disk)
    await one.append(append(1, (1, 3), entry(3, 1)))
    install.cancel()
    disk.kill()
    assert voter(disk).fetch(1, 0).entries == [entry(at, 1) for at in range(4)]


ASKED: dict[str, Callable[[Voter], Awaitable[object]]] = {
    "a promise": lambda one: one.new_epoch(NewEpoch(2, "c")),
    "joining": lambda one: one.join(JoinVoters(2, "c", "d0")),
    "entries": lambda one: one.append(append(2, (1, 3), entry(3, 2))),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@in_loop
async def test_a_controller_that_lost_its_epoch_meanwhile_puts_no_snapshot_in_place(
    ask: Callable[[Voter], Awaitable[object]],
) -> None:
    disk = FaultyDisk()
    one, slow, install = await installing(disk)
    await ask(one)
    slow.released.set()
    with pytest.raises(FencedLeaderEpoch, match="epoch 2 is promised, 1 is over"):
        await install
    assert one.state().start_offset == 0
    before = one.state()
    disk.kill()
    again = voter(disk)
    assert again.state() == before
    await again.install(2, SNAPSHOT, "c")
    assert again.state().start_offset == 2


@in_loop
async def test_a_snapshot_that_is_sent_twice_is_written_once() -> None:
    one, slow, install = await installing(FaultyDisk())
    again = asyncio.ensure_future(one.install(1, SNAPSHOT, "c"))
    await settle()
    slow.released.set()
    await asyncio.gather(install, again)
    assert (slow.begun, one.state().start_offset) == (1, 2)


@in_loop
async def test_snapshots_are_written_one_after_the_other() -> None:
    disk = FaultyDisk()
    one, slow, install = await installing(disk)
    later = asyncio.ensure_future(one.install(1, LogSnapshot(3, 1, (b"all",)), "c"))
    await settle()
    assert slow.begun == 1
    slow.released.set()
    await asyncio.gather(install, later)
    disk.kill()
    assert voter(disk).fetch(1, 0).snapshot == LogSnapshot(3, 1, (b"all",))


@pytest.mark.parametrize("skip", [0, 1])
@in_loop
async def test_a_disk_that_fails_while_it_takes_a_snapshot_ends_the_copys_part(skip: int) -> None:
    """In the snapshot's file, and in that of the log beside it."""

    disk = FaultyDisk()
    one, slow, install = await installing(disk)
    disk.fail("fdatasync", errno.EIO, skip=skip)
    slow.released.set()
    with pytest.raises(KafkaStorageError, match="cannot be written"):
        await install
    with pytest.raises(KafkaStorageError, match="cannot be written"):
        await one.append(append(1, (1, 3), entry(3, 1)))
    disk.heal()
    disk.kill()
    assert voter(disk).state().next_offset == 3


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
@in_loop
async def test_copy_whose_disk_has_no_room_for_a_snapshot_takes_part_all_the_same(
    call: str,
) -> None:
    disk = FaultyDisk()
    one, slow, install = await installing(disk)
    disk.fail(call, errno.ENOSPC)
    slow.released.set()
    with pytest.raises(KafkaStorageError, match="cannot be written"):
        await install
    disk.heal()
    assert (one.trouble, one.state().start_offset) == ("", 0)
    assert await one.append(append(1, (1, 3), entry(3, 1))) == VoterAppended(True, 4)
    await one.install(1, SNAPSHOT, "c")
    assert one.state().start_offset == 2
    disk.kill()
    assert voter(disk).state() == one.state()


@in_loop
async def test_a_copy_that_broke_meanwhile_puts_no_snapshot_in_place() -> None:
    disk = FaultyDisk()
    one, slow, install = await installing(disk)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(KafkaStorageError):
        await one.append(append(1, (1, 3), entry(3, 1)))
    disk.heal()
    slow.released.set()
    with pytest.raises(KafkaStorageError, match="cannot be written"):
        await install
    assert one.state().start_offset == 0

"""A voter: promises, appends behind what is agreed on, snapshots."""

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from raylog.actors.metadata.log import LogEntry, LogSnapshot
from raylog.actors.metadata.voting import VoterAppend, VoterAppended, VoterLog
from raylog.wire.errors import FencedLeaderEpoch, KafkaStorageError
from tests.support.disk import FaultyDisk
from tests.support.voters import voter

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def entry(offset: int, epoch: int) -> LogEntry:
    return LogEntry(offset, epoch, (b"%d@%d" % (offset, epoch),))


def append(epoch: int, previous: tuple[int, int], *entries: LogEntry) -> VoterAppend:
    return VoterAppend(epoch, previous[0], previous[1], list(entries))


def test_a_promise_is_durable_and_lower_epochs_are_refused() -> None:
    disk = FaultyDisk()

    async def scenario() -> None:
        first = voter(disk)
        state = await first.new_epoch(5)
        assert (state.promised_epoch, state.next_offset, state.directory_id) == (5, 0, "d0")
        assert "fdatasync" in disk.calls
        for epoch in (4, 5):
            with pytest.raises(FencedLeaderEpoch, match="5 is promised"):
                await first.new_epoch(epoch)
        disk.kill()
        again = voter(disk)
        with pytest.raises(FencedLeaderEpoch):
            await again.append(append(4, (0, 0), entry(0, 4)))
        with pytest.raises(FencedLeaderEpoch):
            again.fetch(4, 0)
        with pytest.raises(FencedLeaderEpoch):
            await again.install(4, LogSnapshot(1, 1, ()))

    run(scenario())


def test_entries_go_behind_what_is_agreed_on() -> None:
    async def scenario() -> None:
        one = voter(FaultyDisk())
        await one.new_epoch(1)
        assert await one.append(append(1, (0, 0), entry(0, 1), entry(1, 1))) == VoterAppended(
            True, 2
        )
        assert await one.append(append(1, (1, 2), entry(2, 1))) == VoterAppended(True, 3)
        assert await one.append(append(1, (1, 2), entry(2, 1))) == VoterAppended(True, 3)
        assert one.fetch(1, 1) == VoterLog(None, [entry(1, 1), entry(2, 1)])

    run(scenario())


def test_a_gap_is_answered_with_this_copys_end() -> None:
    async def scenario() -> None:
        one = voter(FaultyDisk())
        await one.new_epoch(1)
        assert await one.append(append(1, (1, 9), entry(9, 1))) == VoterAppended(False, 0)

    run(scenario())


def test_entries_of_another_epoch_are_replaced() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = voter(disk)
        await one.append(append(1, (0, 0), entry(0, 1), entry(1, 1), entry(2, 1)))
        await one.new_epoch(3)
        assert await one.append(append(3, (2, 3), entry(3, 3))) == VoterAppended(False, 2)
        assert await one.append(append(3, (1, 1), entry(1, 3))) == VoterAppended(True, 2)
        disk.kill()
        state = voter(disk).state()
        assert (state.last_epoch, state.next_offset, state.promised_epoch) == (3, 2, 3)

    run(scenario())


def test_a_controller_learns_how_far_a_copy_agrees_without_new_entries() -> None:
    async def scenario() -> None:
        one = voter(FaultyDisk())
        await one.append(append(1, (0, 0), entry(0, 1)))
        assert await one.append(append(1, (1, 1))) == VoterAppended(True, 1)

    run(scenario())


def test_below_the_entries_there_is_the_snapshot() -> None:
    async def scenario() -> None:
        one = voter(FaultyDisk())
        await one.append(append(1, (0, 0), *(entry(at, 1) for at in range(4))))
        snapshot = LogSnapshot(3, 1, (b"all",))
        await one.install(1, snapshot)
        await one.install(1, snapshot)
        assert one.state().start_offset == 3
        assert one.fetch(1, 0) == VoterLog(snapshot, [entry(3, 1)])
        assert one.fetch(1, 3) == VoterLog(None, [entry(3, 1)])

    run(scenario())


@pytest.mark.parametrize("call", ["fdatasync", "fsync_dir"])
def test_a_failed_sync_ends_the_voters_part(call: str) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = voter(disk)
        disk.fail(call, errno.EIO)
        with pytest.raises(KafkaStorageError, match="cannot be written"):
            await one.append(append(1, (0, 0), entry(0, 1)))
        with pytest.raises(KafkaStorageError):
            await one.new_epoch(9)
        with pytest.raises(KafkaStorageError):
            one.fetch(9, 0)

    run(scenario())


def test_a_failed_snapshot_ends_the_voters_part() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = voter(disk)
        disk.fail("rename", errno.EIO)
        with pytest.raises(KafkaStorageError):
            await one.install(1, LogSnapshot(1, 1, (b"all",)))
        with pytest.raises(KafkaStorageError):
            await one.append(append(1, (0, 0), entry(0, 1)))

    run(scenario())


def test_a_full_disk_is_passed_on_and_passes() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = voter(disk)
        disk.fail("pwritev", errno.ENOSPC)
        with pytest.raises(KafkaStorageError):
            await one.append(append(1, (0, 0), entry(0, 1)))
        assert await one.append(append(1, (0, 0), entry(0, 1))) == VoterAppended(True, 1)

    run(scenario())


def test_writes_wait_for_one_another() -> None:
    async def scenario() -> None:
        order: list[str] = []

        async def slowly(function: Any, *args: Any) -> Any:
            order.append("begin")
            await asyncio.sleep(0)
            result = function(*args)
            order.append("end")
            return result

        one = voter(FaultyDisk(), run=slowly)
        await asyncio.gather(
            one.append(append(1, (0, 0), entry(0, 1))),
            one.append(append(1, (1, 1), entry(1, 1))),
            one.new_epoch(2),
        )
        assert order == ["begin", "end"] * 3

    run(scenario())

"""A voter: promises, appends after the agreed prefix, snapshots."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from raylog.actors.broker.voter import Voter
from raylog.actors.controller.messages import BrokerHeartbeat, BrokerHeartbeatAnswer
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.log_copy import Promise
from raylog.actors.metadata.records import VotersChanged, encode_record
from raylog.actors.metadata.voting import (
    JoinVoters,
    NewEpoch,
    VoterAppend,
    VoterAppended,
    VoterLog,
)
from raylog.wire.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidVoterKey,
    KafkaStorageError,
    NotController,
)
from tests.worlds.broker.voters import voter
from tests.worlds.storage.disk import FaultyDisk

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def entry(offset: int, epoch: int) -> LogEntry:
    return LogEntry(offset, epoch, (b"%d@%d" % (offset, epoch),))


def append(epoch: int, previous: tuple[int, int], *entries: LogEntry) -> VoterAppend:
    return VoterAppend(epoch, previous[0], previous[1], list(entries))


def founded(disk: FaultyDisk, **options: Any) -> Voter:
    """A voter that has promised epoch 1 to the controller `c`."""
    one = voter(disk, **options)
    one._log.write([Promise(1, "c")])
    return one


def test_a_promise_is_durable_and_lower_epochs_are_refused() -> None:
    disk = FaultyDisk()

    async def scenario() -> None:
        first = voter(disk)
        state = await first.new_epoch(NewEpoch(5, "c", founds=True))
        assert (state.promised_epoch, state.next_offset, state.directory_id) == (5, 0, "d0")
        assert "fdatasync" in disk.calls
        for epoch in (4, 5):
            with pytest.raises(FencedLeaderEpoch, match="5 is promised"):
                await first.new_epoch(NewEpoch(epoch, "c", founds=True))
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
        await one.new_epoch(NewEpoch(1, "c", founds=True))
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
        await one.new_epoch(NewEpoch(1, "c", founds=True))
        assert await one.append(append(1, (1, 9), entry(9, 1))) == VoterAppended(False, 0)

    run(scenario())


def test_entries_of_another_epoch_are_replaced() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = founded(disk)
        await one.append(append(1, (0, 0), entry(0, 1), entry(1, 1), entry(2, 1)))
        await one.new_epoch(NewEpoch(3, "c", founds=True))
        assert await one.append(append(3, (2, 3), entry(3, 3))) == VoterAppended(False, 2)
        assert await one.append(append(3, (1, 1), entry(1, 3))) == VoterAppended(True, 2)
        disk.kill()
        state = voter(disk).state()
        assert (state.last_epoch, state.next_offset, state.promised_epoch) == (3, 2, 3)

    run(scenario())


def test_a_controller_learns_how_far_a_copy_agrees_without_new_entries() -> None:
    async def scenario() -> None:
        one = founded(FaultyDisk())
        await one.append(append(1, (0, 0), entry(0, 1)))
        assert await one.append(append(1, (1, 1))) == VoterAppended(True, 1)

    run(scenario())


def test_below_the_entries_there_is_the_snapshot() -> None:
    async def scenario() -> None:
        one = founded(FaultyDisk())
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
        one = founded(disk)
        disk.fail(call, errno.EIO)
        with pytest.raises(KafkaStorageError, match="cannot be written"):
            await one.append(append(1, (0, 0), entry(0, 1)))
        with pytest.raises(KafkaStorageError):
            await one.new_epoch(NewEpoch(9, "c", founds=True))
        with pytest.raises(KafkaStorageError):
            one.fetch(9, 0)

    run(scenario())


def test_a_failed_snapshot_ends_the_voters_part() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = founded(disk)
        disk.fail("rename", errno.EIO)
        with pytest.raises(KafkaStorageError):
            await one.install(1, LogSnapshot(1, 1, (b"all",)))
        with pytest.raises(KafkaStorageError):
            await one.append(append(1, (0, 0), entry(0, 1)))

    run(scenario())


def test_a_full_disk_is_passed_on_and_passes() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = founded(disk)
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

        one = founded(FaultyDisk(), run=slowly)
        await asyncio.gather(
            one.append(append(1, (0, 0), entry(0, 1))),
            one.append(append(1, (1, 1), entry(1, 1))),
            one.new_epoch(NewEpoch(2, "c", founds=True)),
        )
        assert order == ["begin", "end"] * 3

    run(scenario())


# ---- copies that are blank, promises that come late, the lease -------------------------------

THREE = ((0, "d0"), (1, "d1"), (2, "d2"))


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def test_a_blank_copy_takes_no_part_unless_the_cluster_is_new() -> None:
    async def scenario() -> None:
        one = voter(FaultyDisk())
        assert one.state().is_blank
        with pytest.raises(InvalidRequest, match="is blank"):
            await one.new_epoch(NewEpoch(5, "c"))
        with pytest.raises(InvalidRequest, match="is blank"):
            await one.append(append(5, (0, 0), entry(0, 5)))
        with pytest.raises(InvalidRequest, match="is blank"):
            await one.install(5, LogSnapshot(1, 1, (b"all",)))
        state = await one.new_epoch(NewEpoch(1, "c", founds=True))
        assert (state.is_blank, state.controller) == (False, "c")

    run(scenario())


def test_an_append_of_a_controller_that_won_without_this_voter_is_a_promise_too() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = founded(disk)
        won = append(5, (0, 0), entry(0, 5))._replace(controller="later")
        assert await one.append(won) == VoterAppended(True, 1)
        disk.kill()
        again = voter(disk)
        assert (again.state().promised_epoch, again.state().controller) == (5, "later")
        with pytest.raises(FencedLeaderEpoch):
            await again.append(append(4, (0, 0), entry(0, 4)))
        await again.install(6, LogSnapshot(1, 5, (b"all",)), "latest")
        assert (again.state().promised_epoch, again.state().controller) == (6, "latest")

    run(scenario())


def test_controller_that_writes_first_has_won_a_contested_epoch() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = voter(disk)
        await one.new_epoch(NewEpoch(2, "lost", founds=True))
        won = append(2, (0, 0), entry(0, 2))._replace(controller="won")
        assert await one.append(won) == VoterAppended(True, 1)
        assert (one.state().promised_epoch, one.state().controller) == (2, "won")
        disk.kill()
        state = voter(disk).state()
        assert (state.promised_epoch, state.controller) == (2, "won")

    run(scenario())


def test_no_rival_comes_up_while_the_controller_is_heard() -> None:
    async def scenario() -> None:
        clock = Clock()
        one = founded(FaultyDisk(), voters=THREE, clock_ms=clock)
        await one.append(append(1, (0, 0), entry(0, 1)))
        clock.now_ms = 1_999
        with pytest.raises(NotController, match="c was heard 1999 ms ago"):
            await one.new_epoch(NewEpoch(2, "rival"))
        answer = BrokerHeartbeatAnswer(False, False, 1, controller_epoch=1, sent_ms=77)
        one.heartbeat_answered(answer)
        one.heartbeat_answered(answer._replace(controller_epoch=9, sent_ms=99))
        asked = BrokerHeartbeat(0, 1, 1)
        assert one.signed(asked) == asked._replace(promised_epoch=1, heard_ms=77)
        clock.now_ms = 3_998
        with pytest.raises(NotController):
            await one.new_epoch(NewEpoch(2, "rival"))
        clock.now_ms = 3_999
        assert (await one.new_epoch(NewEpoch(2, "rival"))).controller == "rival"
        assert one.signed(asked) == asked._replace(promised_epoch=2, heard_ms=-1)

    run(scenario())


def test_epoch_promise_reports_how_long_the_controller_was_silent() -> None:
    async def scenario() -> None:
        clock = Clock()
        clock.now_ms = 1_000
        one = founded(FaultyDisk(), voters=THREE, clock_ms=clock)
        clock.now_ms = 1_500
        assert (await one.new_epoch(NewEpoch(2, "b"))).silent_ms == 500
        await one.append(append(2, (0, 0), entry(0, 2))._replace(controller="b"))
        clock.now_ms = 4_000
        one.heartbeat_answered(
            BrokerHeartbeatAnswer(False, False, 1, controller_epoch=2, sent_ms=1)
        )
        clock.now_ms = 7_000
        assert (await one.new_epoch(NewEpoch(3, "c"))).silent_ms == 3_000
        clock.now_ms = 7_100
        assert (await one.new_epoch(NewEpoch(4, "d"))).silent_ms == 3_100

    run(scenario())


def test_a_restarted_controller_need_not_wait_for_its_own_lease() -> None:
    async def scenario() -> None:
        one = founded(FaultyDisk(), voters=THREE)
        await one.append(append(1, (0, 0), entry(0, 1)))
        assert (await one.new_epoch(NewEpoch(2, "c"))).promised_epoch == 2

    run(scenario())


# ---- copies that join ------------------------------------------------------------------------


def test_a_blank_copy_follows_whoever_has_it_join() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = voter(disk, broker_id=3, voters=THREE)
        asked = JoinVoters(4, "c", "d3")
        state = await one.join(asked)
        assert (state.promised_epoch, state.controller, state.next_offset) == (4, "c", 0)
        assert await one.join(asked) == state
        assert await one.append(append(4, (0, 0), entry(0, 4))) == VoterAppended(True, 1)
        disk.kill()
        again = voter(disk, broker_id=3, voters=THREE)
        with pytest.raises(FencedLeaderEpoch):
            await again.join(asked._replace(epoch=3))
        assert (await again.join(asked._replace(epoch=5))).next_offset == 1

    run(scenario())


def test_request_for_another_directory_id_is_refused() -> None:
    async def scenario() -> None:
        one = founded(FaultyDisk())
        with pytest.raises(InvalidVoterKey, match="broker 0 has the directory d0, not lost"):
            await one.join(JoinVoters(4, "c", "lost"))
        with pytest.raises(InvalidVoterKey):
            await one.append(append(1, (0, 0), entry(0, 1))._replace(directory_id="lost"))
        with pytest.raises(InvalidVoterKey):
            await one.install(1, LogSnapshot(1, 1, (b"all",)), "c", "lost")
        own = append(1, (0, 0), entry(0, 1))._replace(directory_id="d0")
        assert await one.append(own) == VoterAppended(True, 1)

    run(scenario())


def test_the_voters_are_those_the_copy_names_last() -> None:
    async def scenario() -> None:
        one = founded(FaultyDisk(), voters=THREE)
        assert one.rules.voters == THREE
        changed = LogEntry(0, 1, (encode_record(VotersChanged(THREE[:2])),))
        await one.append(append(1, (0, 0), changed))
        assert one.state().voters == THREE[:2]
        await one.append(append(2, (0, 0), entry(0, 2)))
        assert one.state().voters == THREE

    run(scenario())


def test_the_last_voter_lets_nobody_win_while_it_hears_its_controller_either() -> None:
    async def scenario() -> None:
        clock = Clock()
        one = founded(FaultyDisk(), clock_ms=clock)
        await one.append(append(1, (0, 0), entry(0, 1)))
        with pytest.raises(NotController):
            await one.new_epoch(NewEpoch(2, "started by a broker that votes no more"))
        clock.now_ms = 2_000
        assert (await one.new_epoch(NewEpoch(2, "rival"))).controller == "rival"

    run(scenario())


async def fetched(one: Voter, epoch: int) -> None:
    one.fetch(epoch, 0)


ASKING: dict[str, Callable[[Voter, Any], Coroutine[Any, Any, object]]] = {
    "new_epoch": lambda one, epoch: one.new_epoch(NewEpoch(epoch, "evil")),
    "join": lambda one, epoch: one.join(JoinVoters(epoch, "evil", "d0")),
    "append": lambda one, epoch: one.append(append(epoch, (1, 1), entry(1, 2))),
    "install": lambda one, epoch: one.install(epoch, LogSnapshot(9, 2, ()), "evil"),
    "fetch": fetched,
}


@pytest.mark.parametrize("epoch", [2**63 - 1, -(2**63), 2**31 - 1, -1, 0, "7", 7.0, True, None])
@pytest.mark.parametrize("asked_by", ASKING)
def test_an_epoch_that_cannot_be_is_refused_and_changes_nothing(asked_by: str, epoch: Any) -> None:
    """The last one that there is would leave none for the next controller."""

    async def scenario() -> None:
        one = founded(FaultyDisk())
        await one.append(append(1, (0, 0), entry(0, 1)))
        before = one.state()
        with pytest.raises((InvalidRequest, FencedLeaderEpoch)):
            await ASKING[asked_by](one, epoch)
        assert one.state() == before
        assert (await one.append(append(1, (1, 1), entry(1, 1)))).matched

    run(scenario())


@pytest.mark.parametrize(
    ("previous", "offsets"),
    [((0, -1), ()), ((1, 2**63 - 1), ()), ((None, 9), (9,)), ((1, 1), (7,)), ((1, 1), (1, 1))],
)
def test_entries_that_follow_on_nothing_change_nothing(
    previous: tuple[Any, int], offsets: tuple[int, ...]
) -> None:
    async def scenario() -> None:
        one = founded(FaultyDisk())
        await one.append(append(1, (0, 0), entry(0, 1)))
        before = one.state()
        try:
            answer = await one.append(append(1, previous, *(entry(at, 1) for at in offsets)))
        except InvalidRequest:
            assert previous == (1, 1)
        else:
            assert not answer.matched
        assert one.state() == before

    run(scenario())

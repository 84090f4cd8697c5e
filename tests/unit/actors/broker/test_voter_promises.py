"""Rules that keep two controllers apart: a voter's answers are durable, and its promises hold."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raylog.actors.broker.voter import Voter
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.log_copy import Promise
from raylog.actors.metadata.voting import (
    JoinVoters,
    NewEpoch,
    VoterAppend,
    VoterAppended,
    VoterState,
)
from raylog.wire.errors import FencedLeaderEpoch, KafkaStorageError, NotController
from tests.worlds.broker.voters import voter
from tests.worlds.decorators import in_loop
from tests.worlds.runtime import settle
from tests.worlds.storage.disk import FaultyDisk

THREE = ((0, "d0"), (1, "d1"), (2, "d2"))


def entry(offset: int, epoch: int) -> LogEntry:
    return LogEntry(offset, epoch, (b"%d@%d" % (offset, epoch),))


def append(epoch: int, previous: tuple[int, int], *entries: LogEntry) -> VoterAppend:
    return VoterAppend(epoch, previous[0], previous[1], list(entries))


def founded(disk: FaultyDisk, **options: Any) -> Voter:
    """A voter that has promised epoch 1 to the controller `c`, on disk too."""
    one = voter(disk, **options)
    one._log.write([Promise(1, "c")])
    one._log.sync()
    return one


ASKED: dict[str, Callable[[Voter], Awaitable[object]]] = {
    "a promise": lambda one: one.new_epoch(NewEpoch(2, "c")),
    "joining": lambda one: one.join(JoinVoters(2, "c", "d0")),
    "entries": lambda one: one.append(append(1, (0, 0), entry(0, 1))),
    "following": lambda one: one.append(append(2, (0, 0))),
    "a snapshot": lambda one: one.install(1, LogSnapshot(1, 1, (b"all",))),
}
of_each_kind = pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)


@of_each_kind
def test_an_answer_waits_until_it_is_durable(ask: Callable[[Voter], Awaitable[object]]) -> None:
    async def scenario() -> None:
        released = asyncio.Event()

        async def slowly(function: Any, *args: Any) -> Any:
            await released.wait()
            return function(*args)

        disk = FaultyDisk()
        one = founded(disk, run=slowly)
        answered = asyncio.ensure_future(ask(one))
        await settle()
        assert not answered.done()
        released.set()
        await answered
        state = one.state()
        disk.kill()
        assert voter(disk).state() == state

    asyncio.run(scenario())


@of_each_kind
def test_failed_sync_fails_the_request(ask: Callable[[Voter], Awaitable[object]]) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one = founded(disk)
        assert one.trouble == ""
        disk.fail("fdatasync", errno.EIO)
        with pytest.raises(KafkaStorageError, match="cannot be written"):
            await ask(one)
        assert one.trouble.startswith("the metadata log cannot be written: ")
        for later in ASKED.values():
            with pytest.raises(KafkaStorageError, match="cannot be written"):
                await later(one)

    asyncio.run(scenario())


@pytest.mark.parametrize("in_contact", [False, True])
@in_loop
async def test_an_epoch_is_promised_to_one_controller_only(in_contact: bool) -> None:
    now_ms = 0.0
    one = founded(FaultyDisk(), voters=THREE, clock_ms=lambda: now_ms)
    await one.new_epoch(NewEpoch(5, "first"))
    if in_contact:
        await one.append(append(5, (0, 0))._replace(controller="first"))
    now_ms = 10_000.0  # no lease holds the rival back
    for controller in ("rival", "first"):
        with pytest.raises(FencedLeaderEpoch, match="epoch 5 is promised, 5 is too low"):
            await one.new_epoch(NewEpoch(5, controller))
    state = one.state()
    assert (state.promised_epoch, state.controller) == (5, "first")
    assert (await one.new_epoch(NewEpoch(6, "rival"))).controller == "rival"


@in_loop
async def test_a_refusal_changes_nothing() -> None:
    disk = FaultyDisk()
    one = founded(disk, voters=THREE)
    await one.append(append(3, (0, 0), entry(0, 3))._replace(controller="c"))
    state, size = one.state(), one._log.size_bytes
    with pytest.raises(NotController):
        await one.new_epoch(NewEpoch(9, "rival"))
    with pytest.raises(FencedLeaderEpoch):
        await one.new_epoch(NewEpoch(3, "rival"))
    with pytest.raises(FencedLeaderEpoch):
        await one.join(JoinVoters(2, "rival", "d0"))
    with pytest.raises(FencedLeaderEpoch):
        await one.append(append(2, (3, 1), entry(1, 2))._replace(controller="rival"))
    with pytest.raises(FencedLeaderEpoch):
        await one.install(2, LogSnapshot(1, 3, (b"all",)), "rival")
    assert (one.state(), one._log.size_bytes) == (state, size)


@in_loop
async def test_an_append_that_comes_late_takes_away_nothing_that_follows_it() -> None:
    one = founded(FaultyDisk())
    await one.append(append(1, (0, 0), entry(0, 1), entry(1, 1), entry(2, 1)))
    late = append(1, (0, 0), entry(0, 1))
    assert await one.append(late) == VoterAppended(True, 1)
    assert await one.append(append(1, (0, 0))) == VoterAppended(True, 0)
    assert one.rules.copy.next_offset == 3
    longer = append(1, (1, 1), entry(1, 1), entry(2, 1), entry(3, 1))
    assert await one.append(longer) == VoterAppended(True, 4)
    assert one.fetch(1, 0).entries == [entry(at, 1) for at in range(4)]


@in_loop
async def test_append_without_controller_name_keeps_the_promised_name() -> None:
    one = founded(FaultyDisk())
    size = one._log.size_bytes
    for controller in ("", "c"):
        await one.append(append(1, (0, 0))._replace(controller=controller))
    assert one.state().controller == "c"
    assert one._log.size_bytes == size, "the same promise is not written again"


@in_loop
async def test_a_voter_tells_all_that_it_has() -> None:
    one = founded(FaultyDisk(), broker_id=2, voters=THREE)
    await one.append(append(4, (0, 0), *(entry(at, 4) for at in range(3))))
    await one.install(4, LogSnapshot(2, 4, (b"all",)), "later", "d2")
    assert one.state() == VoterState(2, "d2", THREE, 4, 4, 3, 2, "later")
    assert (one.rules.copy.promised_epoch, one.rules.copy.next_offset, one.rules.is_blank) == (
        4,
        3,
        False,
    )
    assert one.fetch(4, 0).snapshot == LogSnapshot(2, 4, (b"all",))
    assert one.fetch(4, 1).snapshot is not None
    assert one.fetch(4, 2).snapshot is None


@in_loop
async def test_a_snapshot_says_that_its_controller_is_there() -> None:
    one = founded(FaultyDisk(), voters=THREE)
    await one.install(1, LogSnapshot(0, 0, ()), "c")  # there is nothing new in it
    with pytest.raises(NotController, match="c was heard 0 ms ago"):
        await one.new_epoch(NewEpoch(2, "rival"))


@in_loop
async def test_joining_again_is_no_new_promise() -> None:
    one = founded(FaultyDisk(), voters=THREE)
    asked = JoinVoters(2, "c", "d0")
    await one.join(asked)
    await one.append(append(2, (0, 0))._replace(controller="c"))
    await one.join(asked)
    with pytest.raises(NotController, match="c was heard 0 ms ago"):
        await one.new_epoch(NewEpoch(3, "rival"))

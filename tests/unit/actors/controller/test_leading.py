"""How a controller tries to win an epoch: how often, with which voters, and when it gives up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raylog.actors.controller import actor as controller_actor
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import Follow
from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.controller.rules.quorum import QuorumLost
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.followed import MetadataLost
from raylog.actors.names import CONTROLLER
from raylog.actors.runtime.base import ActorGone, ActorSpec
from raylog.wire.errors import NotController
from tests.worlds.broker.voters import CLUSTER, VoterWorld
from tests.worlds.decorators import in_loop


class Enough(Exception):
    """Raised to end the test."""


class Tries:
    """A controller whose quorums fail one after another, and that never waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failures: Exception) -> None:
        self.asked: list[tuple[int, int]] = []
        """(ms for a voter that hangs, epoch to be above) of each quorum."""
        self.waited: list[float] = []
        self.spread: set[tuple[float, float]] = set()
        self._failures = list(failures)
        self.runtime = VoterWorld(0).runtime
        self.controller = ControllerActor(
            self.runtime, cluster_id=CLUSTER, broker_ids=[0], settings={}
        )
        monkeypatch.setattr(controller_actor, "VoterQuorum", self._quorum)
        monkeypatch.setattr(self.runtime, "sleep", self._sleep)
        monkeypatch.setattr(self.runtime.random, "uniform", self._uniform)

    def _quorum(self, *args: Any, moment_ms: int, above_epoch: int) -> Tries:
        self.asked.append((moment_ms, above_epoch))
        return self

    async def take_over(self) -> None:
        raise self._failures.pop(0) if self._failures else Enough

    async def _sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    def _uniform(self, least: float, most: float) -> float:
        self.spread.add((least, most))
        return most

    def run(self) -> None:
        """Until the failures are used up, or the controller gives up."""
        asyncio.run(self.controller._lead_forever())


def test_a_controller_that_cannot_win_tries_again_later_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = Tries(monkeypatch, *(QuorumLost("no voter answers") for _ in range(8)))
    with pytest.raises(Enough):
        tries.run()
    assert tries.waited == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1]
    assert tries.spread == {(0.5, 1)}, "two that came up at once differ in step"


def test_a_voter_that_hangs_is_waited_for_longer_by_who_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = Tries(monkeypatch, QuorumLost("late"), QuorumLost("late"))
    with pytest.raises(Enough):
        tries.run()
    assert [moment_ms for moment_ms, _ in tries.asked] == [250, 1_500, 1_500]


def test_why_no_epoch_was_won_is_reported_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = Tries(monkeypatch, MetadataLost("all is lost"), QuorumLost("no voter answers"))
    lost: list[str] = []

    async def look(_: float) -> None:
        try:
            await tries.controller.follow(Follow(1, 0, 0))
        except (MetadataLost, NotController) as why:
            lost.append(f"{type(why).__name__}: {why}")

    monkeypatch.setattr(tries.runtime, "sleep", look)
    with pytest.raises(Enough):
        tries.run()
    first, second = lost
    assert first == "MetadataLost: all is lost"
    assert second.startswith("NotController: ")
    assert second.endswith("does not serve: no voter answers")


async def is_gone(world: VoterWorld, name: str) -> bool:
    try:
        await world.runtime.find(name)
    except ActorGone:
        return True
    return False


@in_loop
async def test_a_controller_ends_for_good_when_another_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = VoterWorld(1, {CONTROLLER: ControllerActor})
    await world.up(0)
    monkeypatch.setattr(world.hosts[0].voter, "_clock_ms", lambda: 0.0)  # its lease never ends
    args = {"cluster_id": CLUSTER, "broker_ids": [0], "settings": {}, "name": "first"}
    await world.runtime.spawn(ActorSpec("first", CONTROLLER, args))
    while not world.hosts[0].appends:  # noqa: ASYNC110 - it raises no event for it
        await asyncio.sleep(0.001)
    await world.runtime.spawn(ActorSpec("second", CONTROLLER, {**args, "name": "second"}))
    while not await is_gone(world, "second"):  # noqa: ASYNC110 - nobody is told of it
        await asyncio.sleep(0.001)
    assert not await is_gone(world, "first")
    assert world.hosts[0].voter.state().controller == "first"
    assert world.world.failures == []


@pytest.mark.parametrize("voters", [1, 3])
@in_loop
async def test_voters_that_take_long_to_write_a_snapshot_do_not_end_the_term(
    monkeypatch: pytest.MonkeyPatch, voters: int
) -> None:
    """Their disks are slow: they take entries meanwhile, and nobody takes them for lost."""

    released, writing = asyncio.Event(), asyncio.Event()

    async def slowly(function: Any, *args: Any) -> Any:
        if "write_snapshot" in repr(function):
            writing.set()
            await released.wait()
        return function(*args)

    world = VoterWorld(voters)
    await world.up(*range(voters))
    for host in world.hosts.values():
        monkeypatch.setattr(host.voter, "_run_blocking", slowly)
    limits_ms = []
    call = world.runtime.call

    async def noted(name: str, method: str, *args: Any, timeout_ms: int) -> Any:
        if method == "voter_install":
            limits_ms.append(timeout_ms)
        return await call(name, method, *args, timeout_ms=timeout_ms)

    monkeypatch.setattr(world.runtime, "call", noted)
    quorum = VoterQuorum(world.runtime, CLUSTER, range(voters))
    await quorum.take_over()
    await quorum.append([LogEntry(0, 1, (b"0",))])
    installing = asyncio.ensure_future(quorum.install_snapshot(LogSnapshot(1, 1, (b"all",))))
    await writing.wait()
    for at in range(1, 4):
        await quorum.append([LogEntry(at, 1, (b"1",))])
    assert not installing.done()
    released.set()
    await installing
    assert [host.voter.state().start_offset for host in world.hosts.values()] == [1] * voters
    assert limits_ms == [30_000] * voters
    assert not quorum.rules.is_deposed


@in_loop
async def test_a_voter_that_gets_a_snapshot_while_a_later_one_is_taken_gets_that_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    quorum = VoterQuorum(world.runtime, CLUSTER, range(3))
    await quorum.take_over()
    await world.down(2)
    await quorum.append([LogEntry(at, 1, (b"1",)) for at in range(5)])
    await quorum.install_snapshot(LogSnapshot(2, 1, (b"two",)))
    await world.up(2)
    late = world.hosts[2].voter
    install = late.install

    async def slowly(epoch: int, snapshot: LogSnapshot, *args: str) -> None:
        await install(epoch, snapshot, *args)
        if snapshot.offset == 2:
            await quorum.install_snapshot(LogSnapshot(4, 1, (b"four",)))

    monkeypatch.setattr(late, "install", slowly)
    await quorum.append([LogEntry(5, 1, (b"1",))])
    while late.rules.copy.next_offset < 6:  # noqa: ASYNC110 - it raises no event for it
        await asyncio.sleep(0)
    assert late.state().start_offset == 4
    assert world.world.failures == []

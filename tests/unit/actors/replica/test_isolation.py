"""A leader that hears nobody serves no client; one that only misses the controller serves all."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.replica import isolation
from raylog.actors.replica.api import ProduceAnswer
from raylog.actors.replica.config import ReplicationSettings
from raylog.actors.replica.isolation import LOOK_MS, Hearing
from raylog.actors.replica.machine import (
    Appended,
    CutOff,
    FollowerFetched,
    HeardAgain,
    LeadershipChanged,
    PartitionMachine,
    ReleaseUpTo,
    StopLeading,
)
from raylog.wire.errors import ErrorCode, NotLeaderOrFollower
from tests.support.replica_world import ReplicaWorld, run_world
from tests.support.replicas import leadership

SESSION_MS = 6_000
SETTINGS = ReplicationSettings(lag_ms_max=60_000, backoff_ms=100, session_ms=SESSION_MS)
LATER_MS = SESSION_MS + 2 * LOOK_MS + 1_000
REFUSED = [ErrorCode.NOT_LEADER_OR_FOLLOWER]


class TestHearing:
    def test_both_must_be_silent_at_two_looks(self) -> None:
        hearing = Hearing(SESSION_MS)
        hearing.heard(0)
        assert not hearing.looked(SESSION_MS - 1, SESSION_MS)
        assert not hearing.looked(SESSION_MS, SESSION_MS - 1), "the controller was heard"
        assert not hearing.looked(SESSION_MS, SESSION_MS)
        assert hearing.looked(SESSION_MS + 1_000, SESSION_MS + 1_000)
        assert hearing.is_cut_off

    def test_a_process_that_stood_still_is_not_cut_off_at_its_first_look(self) -> None:
        hearing = Hearing(SESSION_MS)
        hearing.heard(0)
        assert not hearing.looked(10**9, 10**9)
        assert not hearing.heard(10**9 + 1)
        assert not hearing.looked(10**9 + 2, 10**9)
        assert not hearing.is_cut_off

    def test_a_follower_or_the_controller_ends_it(self) -> None:
        hearing = Hearing(SESSION_MS, is_cut_off=True)
        assert hearing.heard(1)
        assert not hearing.is_cut_off
        hearing = Hearing(SESSION_MS, is_cut_off=True)
        assert hearing.looked(10**9, 0)
        assert not hearing.is_cut_off


def leader(isr: tuple[int, ...]) -> PartitionMachine:
    machine = PartitionMachine(1, 0)
    machine.handle(LeadershipChanged(leadership(1, 3, 7, isr=isr), 0, 0))
    return machine


class TestMachine:
    def test_who_waits_is_told_and_no_client_is_served(self) -> None:
        machine = leader((1, 2, 3))
        assert machine.handle(CutOff()) == [StopLeading()]
        assert machine.handle(CutOff()) == [], "once"
        with pytest.raises(NotLeaderOrFollower):
            machine.require_leader()
        machine.require_leader_for_follower(3)

    def test_whoever_is_alone_in_sync_goes_on(self) -> None:
        machine = leader((1,))
        assert machine.handle(CutOff()) == []
        machine.require_leader()

    def test_a_follower_is_not_concerned(self) -> None:
        machine = PartitionMachine(1, 0)
        machine.handle(LeadershipChanged(leadership(2, 3, 7), 0, 0))
        assert machine.handle(CutOff()) == []

    def test_it_leads_on_when_it_hears_others_again(self) -> None:
        machine = leader((1, 2))
        machine.handle(Appended(1, 0))
        machine.handle(CutOff())
        assert machine.handle(HeardAgain()) == []
        machine.require_leader()
        assert machine.handle(FollowerFetched(2, "a", 1, 5)) == [ReleaseUpTo(1)]

    def test_another_epoch_ends_it(self) -> None:
        machine = leader((1, 2))
        machine.handle(CutOff())
        machine.handle(LeadershipChanged(leadership(1, 4, 8, isr=(1, 2)), 0, 0))
        machine.require_leader()


def test_a_leader_that_hears_nobody_tells_writers_and_readers_to_look_elsewhere() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        await world.kill(3)
        world.controller_silent_ms = 10**9
        written = world.produce(1)
        waiting = asyncio.ensure_future(world.fetch(1, wait=True))
        await world.pass_ms(SESSION_MS - 1_000)
        assert not written.done()
        await world.pass_ms(LATER_MS - SESSION_MS + 1_000)
        assert await written == REFUSED
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await world.produce(1) == REFUSED
        await world.start(2)
        await world.start(3)
        await world.pass_ms(1_000)
        written = world.produce(1)
        await world.pass_ms(1_000)
        assert written.result() == [ProduceAnswer(1, -1, 0)], "behind the one that was refused"

    run_world(scenario, settings=SETTINGS)


def test_leaders_go_on_without_a_controller_as_long_as_a_follower_fetches() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(3)
        world.controller_silent_ms = 10**9
        for _ in range(600):
            await world.pass_ms(1_000)
        assert not world.nodes[1].actor.partition(*world.keys[0]).machine.is_cut_off

    run_world(scenario, settings=SETTINGS)


def test_leaders_go_on_without_followers_as_long_as_the_controller_answers() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        await world.kill(3)
        written = world.produce(1)
        await world.pass_ms(3 * LATER_MS)
        assert not written.done()

    run_world(scenario, settings=SETTINGS)


def test_the_broker_is_found_before_it_may_be_out_of_reach() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.pass_ms(1_000)
        found = world.silence_asked
        assert found
        await world.pass_ms(10 * SESSION_MS)
        assert world.silence_asked == found, "nobody is silent"

    run_world(scenario, settings=SETTINGS)


def test_a_broker_that_does_not_say_is_no_reason() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        await world.kill(3)
        leader = world.nodes[1]
        world.controller_silent_ms = 10**9
        del world.nodes[1]  # nobody answers under the name of its broker
        await world.pass_ms(3 * LATER_MS)
        assert not leader.actor.partition(*world.keys[0]).machine.is_cut_off

    run_world(scenario, settings=SETTINGS)


def test_many_partitions_are_told_in_turns_and_told_again_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "TOLD_AT_ONCE", 2)

    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        await world.kill(3)
        world.controller_silent_ms = 10**9
        actor = world.nodes[1].actor
        await world.pass_ms(LATER_MS)
        assert all(actor.partition(*key).machine.is_cut_off for key in world.keys)
        world.controller_silent_ms = 0
        await world.pass_ms(2 * LOOK_MS)
        assert not any(actor.partition(*key).machine.is_cut_off for key in world.keys)

    run_world(scenario, settings=SETTINGS, partitions=5)


def test_a_silent_process_looks_again_and_again() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.pass_ms(1_000)
        await world.kill(2)
        await world.kill(3)
        asked = world.silence_asked
        await world.pass_ms(SESSION_MS - LOOK_MS)
        assert world.silence_asked == asked
        await world.pass_ms(LOOK_MS + 5 * LOOK_MS)
        assert 5 <= world.silence_asked - asked <= 6

    run_world(scenario, settings=SETTINGS)


def test_whoever_is_alone_in_sync_looks_no_more_until_a_follower_fetches() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        await world.kill(3)
        await world.produce(1, acks=1)
        await world.pass_ms(SETTINGS.lag_ms_max + 10_000)
        assert world.isr() == (1,)
        asked = world.silence_asked
        await world.pass_ms(10 * SESSION_MS)
        assert world.silence_asked == asked
        await world.start(2)
        await world.pass_ms(2_000)
        assert world.silence_asked == asked + 1
        assert world.isr() == (1, 2)
        await world.kill(2)
        world.controller_silent_ms = 10**9
        await world.pass_ms(LATER_MS)
        assert world.nodes[1].actor.partition(*world.keys[0]).machine.is_cut_off

    run_world(scenario, settings=SETTINGS)

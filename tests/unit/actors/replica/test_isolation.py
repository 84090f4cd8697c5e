"""An isolated leader serves no client; one that only misses the controller serves all."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.replica import isolation
from raylog.actors.replica.isolation import LOOK_MS
from raylog.actors.replica.messages import ProduceAnswer
from raylog.actors.replica.rules.config import ReplicationSettings
from raylog.actors.replica.rules.contact import Contact
from raylog.actors.replica.rules.machine import (
    Appended,
    CutOff,
    FollowerFetched,
    LeadershipChanged,
    PartitionMachine,
    Reconnected,
    ReleaseUpTo,
    StopLeading,
)
from raylog.wire.errors import ErrorCode, NotLeaderOrFollower
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, run_world
from tests.worlds.replica.fake_host import leadership

SESSION_MS = 6_000
SETTINGS = ReplicationSettings(lag_ms_max=60_000, backoff_ms=100, session_ms=SESSION_MS)
LATER_MS = SESSION_MS + 2 * LOOK_MS + 1_000
REFUSED = [ErrorCode.NOT_LEADER_OR_FOLLOWER]


class TestHearing:
    def test_both_must_be_silent_at_two_looks(self) -> None:
        contact = Contact(SESSION_MS)
        contact.follower_fetched(0)
        assert not contact.looked(SESSION_MS - 1, SESSION_MS)
        assert not contact.looked(SESSION_MS, SESSION_MS - 1), "the controller was heard"
        assert not contact.looked(SESSION_MS, SESSION_MS)
        assert contact.looked(SESSION_MS + 1_000, SESSION_MS + 1_000)
        assert contact.is_cut_off

    def test_a_process_that_stood_still_is_not_cut_off_at_its_first_look(self) -> None:
        contact = Contact(SESSION_MS)
        contact.follower_fetched(0)
        assert not contact.looked(10**9, 10**9)
        assert not contact.follower_fetched(10**9 + 1)
        assert not contact.looked(10**9 + 2, 10**9)
        assert not contact.is_cut_off

    def test_a_follower_or_the_controller_ends_it(self) -> None:
        contact = Contact(SESSION_MS, is_cut_off=True)
        assert contact.follower_fetched(1)
        assert not contact.is_cut_off
        contact = Contact(SESSION_MS, is_cut_off=True)
        assert contact.looked(10**9, 0)
        assert not contact.is_cut_off


def leader(isr: tuple[int, ...]) -> PartitionMachine:
    machine = PartitionMachine(1, 0)
    machine.handle(LeadershipChanged(leadership(1, 3, 7, isr=isr), 0, 0))
    return machine


class TestMachine:
    def test_cut_off_leader_stops_leading_and_serves_only_followers(self) -> None:
        machine = leader((1, 2, 3))
        assert machine.handle(CutOff()) == [StopLeading()]
        assert machine.handle(CutOff()) == [], "once"
        with pytest.raises(NotLeaderOrFollower):
            machine.require_leader()
        machine.require_leader_for_follower(3)

    def test_sole_isr_member_keeps_leading_when_cut_off(self) -> None:
        machine = leader((1,))
        assert machine.handle(CutOff()) == []
        machine.require_leader()

    def test_a_follower_is_not_concerned(self) -> None:
        machine = PartitionMachine(1, 0)
        machine.handle(LeadershipChanged(leadership(2, 3, 7), 0, 0))
        assert machine.handle(CutOff()) == []

    def test_reconnected_leader_continues_leading(self) -> None:
        machine = leader((1, 2))
        machine.handle(Appended(1, 0))
        machine.handle(CutOff())
        assert machine.handle(Reconnected()) == []
        machine.require_leader()
        assert machine.handle(FollowerFetched(2, "a", 1, 5)) == [ReleaseUpTo(1)]

    def test_another_epoch_ends_it(self) -> None:
        machine = leader((1, 2))
        machine.handle(CutOff())
        machine.handle(LeadershipChanged(leadership(1, 4, 8, isr=(1, 2)), 0, 0))
        machine.require_leader()


@in_world(run_world, settings=SETTINGS)
async def test_a_leader_that_hears_nobody_tells_writers_and_readers_to_look_elsewhere(
    world: ReplicaWorld,
) -> None:
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


@in_world(run_world, settings=SETTINGS)
async def test_leaders_go_on_without_a_controller_as_long_as_a_follower_fetches(
    world: ReplicaWorld,
) -> None:
    await world.kill(3)
    world.controller_silent_ms = 10**9
    for _ in range(600):
        await world.pass_ms(1_000)
    assert not world.nodes[1].actor._partitions[world.keys[0]].machine.is_cut_off


@in_world(run_world, settings=SETTINGS)
async def test_leaders_go_on_without_followers_as_long_as_the_controller_answers(
    world: ReplicaWorld,
) -> None:
    await world.kill(2)
    await world.kill(3)
    written = world.produce(1)
    await world.pass_ms(3 * LATER_MS)
    assert not written.done()


@in_world(run_world, settings=SETTINGS)
async def test_the_broker_is_found_before_it_may_be_out_of_reach(world: ReplicaWorld) -> None:
    await world.pass_ms(1_000)
    found = world.silence_asked
    assert found
    await world.pass_ms(10 * SESSION_MS)
    assert world.silence_asked == found, "nobody is silent"


@in_world(run_world, settings=SETTINGS)
async def test_a_leader_is_cut_off_if_its_broker_does_not_answer_and_nobody_fetches(
    world: ReplicaWorld,
) -> None:
    await world.pass_ms(1_000)
    leader = world.nodes[1]
    machine = leader.actor._partitions[world.keys[0]].machine
    del world.nodes[1]  # nobody answers under the name of its broker
    await world.pass_ms(3 * LATER_MS)
    assert not machine.is_cut_off, "followers fetch"
    world.nodes[1] = leader
    await world.kill(2)
    await world.kill(3)
    await world.pass_ms(SESSION_MS - LOOK_MS)
    del world.nodes[1]
    await world.pass_ms(SESSION_MS - 2 * LOOK_MS)
    assert not machine.is_cut_off, "a controller has answered it until then"
    await world.pass_ms(4 * LOOK_MS)
    assert machine.is_cut_off


def test_many_partitions_are_notified_in_turns_and_again_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "NOTIFIED_AT_ONCE", 2)

    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        await world.kill(3)
        world.controller_silent_ms = 10**9
        actor = world.nodes[1].actor
        await world.pass_ms(LATER_MS)
        assert all(actor._partitions[key].machine.is_cut_off for key in world.keys)
        world.controller_silent_ms = 0
        await world.pass_ms(2 * LOOK_MS)
        assert not any(actor._partitions[key].machine.is_cut_off for key in world.keys)

    run_world(scenario, settings=SETTINGS, partitions=5)


@in_world(run_world, settings=SETTINGS)
async def test_a_silent_process_looks_again_and_again(world: ReplicaWorld) -> None:
    await world.pass_ms(1_000)
    await world.kill(2)
    await world.kill(3)
    asked = world.silence_asked
    await world.pass_ms(SESSION_MS / 2 - LOOK_MS)
    assert world.silence_asked == asked
    await world.pass_ms(LOOK_MS + 5 * LOOK_MS)
    assert 5 <= world.silence_asked - asked <= 6


@in_world(run_world, settings=SETTINGS)
async def test_sole_isr_member_stops_asking_until_a_follower_fetches(
    world: ReplicaWorld,
) -> None:
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
    assert world.nodes[1].actor._partitions[world.keys[0]].machine.is_cut_off

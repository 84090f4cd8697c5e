"""The controller's lease: it serves only while a majority of its voters answered recently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import AddVoter, BrokerHeartbeat, RegisterBroker
from raylog.actors.controller.term import Term
from raylog.actors.metadata.voting import JoinVoters, lease_ms
from raylog.actors.names import CONTROLLER, controller_name
from raylog.actors.runtime.base import ActorSpec
from raylog.wire.errors import NotController, RequestTimedOut
from tests.worlds.broker.voters import CLUSTER, VoterWorld
from tests.worlds.decorators import Fixture, in_world

NAME = controller_name(CLUSTER)
TIMEOUT_MS = 60_000
LEASE_MS = 400_000


class World(VoterWorld):
    """Voters, a controller that checks its lease only on request, and its clock."""

    def __init__(self, voters: int, brokers: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(brokers, {CONTROLLER: ControllerActor})
        self.voters = self.voters[:voters]
        self.now_ms = 0.0
        self._monkeypatch = monkeypatch

    async def start(self) -> None:
        await self.up(*range(len(self.disks)))
        args = {
            "cluster_id": CLUSTER,
            "broker_ids": list(range(len(self.disks))),
            "settings": {
                "broker.heartbeat.interval.ms": str(LEASE_MS // 4),
                "broker.session.timeout.ms": str(LEASE_MS * 4),
            },
        }
        await self.runtime.spawn(ActorSpec(NAME, CONTROLLER, args))
        actor = self.world.resident(NAME).actor
        assert isinstance(actor, ControllerActor)
        self.controller = actor
        while self.controller._term is None:  # noqa: ASYNC110 - it raises no event for it
            await asyncio.sleep(0.001)
        self.now_ms = self.controller._runtime.monotonic_ms()
        self._monkeypatch.setattr(self.controller._runtime, "monotonic_ms", lambda: self.now_ms)
        await self.rest()

    @property
    def term(self) -> Term:
        term = self.controller._term
        assert term is not None
        return term

    async def rest(self) -> None:
        """Until all voters are level, and nobody sends."""
        for _ in range(200):
            await asyncio.sleep(0)

    def contact(self, ago_ms: float) -> None:
        """All voters have heard the controller this long ago."""
        for voter in self.term.quorum.rules.followers:
            voter.contact_ms = self.now_ms - ago_ms

    def probes(self) -> list[int]:
        """The voters that were asked whether they follow."""
        return [
            broker_id
            for broker_id, host in self.hosts.items()
            if any(one.entries == [] for one in host.appends)
        ]

    async def call(self, method: str, *args: object) -> object:
        return await self.runtime.call(NAME, method, *args, timeout_ms=TIMEOUT_MS)


def play(
    story: Callable[[World], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
    voters: int = 3,
    *,
    brokers: int = 3,
) -> None:
    async def main() -> None:
        world = World(voters, brokers, monkeypatch)
        await world.start()
        await story(world)
        assert world.world.failures == []

    asyncio.run(main())


def test_the_lease_is_four_heartbeats_and_two_seconds_at_least() -> None:
    assert [lease_ms(interval_ms) for interval_ms in (1, 500, 501, 3_000)] == [
        2_000,
        2_000,
        2_004,
        12_000,
    ]


@in_world(play, Fixture("monkeypatch"))
async def test_a_controller_serves_until_its_lease_is_over(world: World) -> None:
    term = world.term
    world.contact(LEASE_MS)
    assert world.controller._serving() is term
    world.now_ms += 1
    with pytest.raises(NotController, match="has not been heard for too long"):
        world.controller._serving()
    assert world.controller._term is None


@in_world(play, Fixture("monkeypatch"), 1)
async def test_the_only_voter_needs_no_lease(world: World) -> None:
    world.now_ms += 10 * LEASE_MS
    assert world.controller._serving() is world.term
    world.controller._check_lease()
    assert world.controller._serving() is world.term


@pytest.mark.parametrize(
    ("ago_ms", "probed"),
    [(LEASE_MS // 2, []), (LEASE_MS // 2 + 1, [0, 1, 2]), (LEASE_MS, [0, 1, 2])],
)
@in_world(play, Fixture("monkeypatch"))
async def test_voters_are_asked_when_half_of_the_lease_is_over(
    world: World, *, ago_ms: int, probed: list[int]
) -> None:
    world.contact(ago_ms)
    world.controller._check_lease()
    await world.rest()
    assert world.probes() == probed
    expected = world.now_ms if probed else world.now_ms - ago_ms
    assert world.term.quorum.supported_ms == expected


@pytest.mark.parametrize(
    ("ago_ms", "probed"), [(LEASE_MS // 4, []), (LEASE_MS // 4 + 1, [0, 1, 2])]
)
@in_world(play, Fixture("monkeypatch"))
async def test_voters_are_asked_earlier_while_the_log_is_loaded(
    world: World, *, ago_ms: int, probed: list[int]
) -> None:
    world.contact(ago_ms)
    await world.controller._keep_lease(world.term)
    await world.rest()
    assert world.probes() == probed


@in_world(play, Fixture("monkeypatch"))
async def test_a_controller_whose_lease_is_over_ends_its_term_without_being_asked(
    world: World,
) -> None:
    term = world.term
    waiting = asyncio.ensure_future(term.until_committed(term.committed + 1))
    await asyncio.sleep(0)
    world.contact(LEASE_MS + 1)
    world.controller._check_lease()
    with pytest.raises(NotController, match="follow another controller, or none"):
        await waiting
    assert world.controller._term is None
    world.controller._check_lease()  # there is nothing to look at


@in_world(play, Fixture("monkeypatch"))
async def test_a_controller_that_a_voter_has_refused_ends_its_term(world: World) -> None:
    await world.hosts[2].voter.join(JoinVoters(99, "later", "d2"))
    world.contact(LEASE_MS // 2 + 1)
    world.controller._check_lease()
    await world.rest()
    assert world.term.quorum.rules.is_deposed
    world.controller._check_lease()
    assert world.controller._term is None


@pytest.mark.parametrize(
    ("promised", "directory_id", "counts"),
    [(0, "d1", True), (-1, "d1", False), (0, "another", False)],
    ids=["this controller", "an earlier one", "no voter"],
)
@in_world(play, Fixture("monkeypatch"))
async def test_the_heartbeat_of_a_voters_broker_says_when_it_heard_its_controller(
    world: World, *, promised: int, directory_id: str, counts: bool
) -> None:
    asked = RegisterBroker(1, CLUSTER, directory_id, "i1", "h", 1)
    broker_epoch = await world.call("register_broker", asked)
    assert isinstance(broker_epoch, int)
    await world.rest()
    world.contact(1_000)
    heard_ms = world.now_ms - 100
    epoch = world.term.quorum.epoch
    beat = BrokerHeartbeat(1, broker_epoch, 0)
    beat = beat._replace(promised_epoch=epoch + promised, heard_ms=heard_ms)
    world.now_ms += 50
    answer = await world.controller.heartbeat(beat)
    assert (answer.controller_epoch, answer.sent_ms) == (epoch, world.now_ms)
    assert world.term.quorum.rules.in_contact_since(heard_ms) == (((1, "d1"),) if counts else ())


@in_world(play, Fixture("monkeypatch"))
async def test_only_voters_heard_within_the_lease_follow(world: World) -> None:
    world.contact(LEASE_MS)
    world.term.quorum.rules.followers[2].contact_ms -= 1
    assert world.controller._following(world.term) == ((0, "d0"), (1, "d1"))


@in_world(play, Fixture("monkeypatch"), 1, brokers=2)
async def test_a_copy_that_joins_too_slowly_makes_room_for_another(world: World) -> None:
    asked = RegisterBroker(1, CLUSTER, "d1", "i1", "h", 1)
    await world.call("register_broker", asked)

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    world.hosts[1].gate = never
    for _ in range(2):
        with pytest.raises(RequestTimedOut, match="since it is lagging behind"):
            await world.call("add_voter", AddVoter(1, "d1", 1))
    assert world.term.quorum.voters == ((0, "d0"),)

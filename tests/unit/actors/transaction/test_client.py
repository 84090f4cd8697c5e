"""How leaders reach the coordinator of a transactional id."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from raylog.actors.coordination.rules.placement import KEPT_CHARACTERS_MAX
from raylog.actors.transaction import client
from raylog.actors.transaction.client import DEADLINE_MS, TransactionCoordinators
from raylog.actors.transaction.messages import ADD_PARTITIONS, AddPartitions, TopicPartitions
from raylog.wire.errors import CoordinatorNotAvailable, ErrorCode, KafkaError, NotCoordinator
from tests.worlds.decorators import in_world
from tests.worlds.runtime import FakeLink, FakeRuntime, settle

Outcome = list[int] | KafkaError


@dataclass
class World:
    """A client, and brokers that say where ids are coordinated."""

    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    places: dict[str, str] = field(default_factory=lambda: {"x": "one", "y": "one", "z": "two"})
    lookups: list[str] = field(default_factory=list)
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runtime.peers["broker"] = self
        for address in ("one", "two"):
            self.runtime.links[address] = FakeLink()
        self.client = TransactionCoordinators(
            self.runtime,  # type: ignore[arg-type]  # a fake
            "broker",
        )

    async def find_transaction_coordinator(self, transactional_id: str) -> tuple[int, str]:
        self.lookups.append(transactional_id)
        if transactional_id not in self.places:
            raise CoordinatorNotAvailable("there is no topic yet")
        return 1, self.places[transactional_id]

    def ask(self, transactional_id: str) -> None:
        found = self.outcomes.setdefault(transactional_id, [])
        topics = [TopicPartitions("t", [0, 1])]
        asked = AddPartitions(transactional_id, 7, 3, verify_only=False, topics=topics)
        self.client.add_partitions(asked, found.append)

    def link(self, address: str) -> FakeLink:
        return self.runtime.links[address]

    async def turn(self) -> None:
        await self.runtime.advance(0)
        await settle()


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        await scenario(world)
        assert not world.runtime.failures

    asyncio.run(main())


def asked_ids(request: Any) -> list[str]:
    assert request.kind == ADD_PARTITIONS
    return [AddPartitions.of(one).transactional_id for one in request.header]


def code_of(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, KafkaError)
    return outcome.code


@in_world(run)
async def test_requests_of_one_turn_share_a_frame(world: World) -> None:
    for name in "xyz":
        world.ask(name)
    await world.turn()
    for request in [*world.link("one").requests, *world.link("two").requests]:
        request.reply([[0, 0]] * len(request.header))
    for name in "xyzx":
        world.ask(name)
    await world.turn()
    again = world.link("one").requests[-1]
    assert asked_ids(again) == ["x", "y", "x"]
    again.reply([[0, 0], [1, 2], [3, 4]])
    assert world.outcomes["y"] == [[0, 0], [1, 2]]
    assert world.outcomes["x"] == [[0, 0], [0, 0], [3, 4]]
    assert sorted(world.lookups) == ["x", "y", "z"]


@in_world(run)
async def test_a_coordinator_that_has_moved_is_looked_for_next_time(world: World) -> None:
    world.ask("x")
    await world.turn()
    moved = int(ErrorCode.NOT_COORDINATOR)
    world.link("one").take().reply([[moved, moved]])
    assert world.outcomes["x"] == [[moved, moved]]
    world.places["x"] = "two"
    world.ask("x")
    await world.turn()
    world.link("two").take().reply([[0, 0]])
    assert world.outcomes["x"][-1] == [0, 0]


@in_world(run)
async def test_coordinators_of_long_ids_are_not_remembered(world: World) -> None:
    """Any client may name ten thousand ids of 32 KiB."""
    kept, long = "k" * KEPT_CHARACTERS_MAX, "l" * (KEPT_CHARACTERS_MAX + 1)
    world.places |= {kept: "one", long: "one"}
    for name in (kept, long) * 2:
        world.ask(name)
        await world.turn()
        world.link("one").take().reply([[0, 0]])
    assert world.lookups == [kept, long, long]
    assert world.outcomes == {kept: [[0, 0]] * 2, long: [[0, 0]] * 2}


@in_world(run)
async def test_a_link_that_breaks_fails_what_waits(world: World) -> None:
    world.ask("x")
    await world.turn()
    world.link("one").lose()
    assert code_of(world.outcomes["x"][0]) is ErrorCode.NOT_COORDINATOR
    world.runtime.links["one"] = FakeLink()
    world.ask("x")
    await world.turn()
    world.link("one").take().reply([[0, 0]])
    assert world.outcomes["x"][-1] == [0, 0]
    assert world.lookups == ["x", "x"]


@in_world(run)
async def test_nobody_to_be_found(world: World) -> None:
    world.ask("unknown")
    world.places["x"] = ""
    world.ask("x")
    await world.turn()
    for name in ("unknown", "x"):
        assert code_of(world.outcomes[name][0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    del world.runtime.peers["broker"]
    world.ask("y")
    await world.turn()
    assert code_of(world.outcomes["y"][0]) is ErrorCode.NOT_COORDINATOR


@in_world(run)
async def test_silent_coordinator_times_out_at_the_deadline(world: World) -> None:
    world.ask("x")
    await world.runtime.advance(DEADLINE_MS - 1)
    assert world.outcomes["x"] == []
    await world.runtime.advance(1)
    assert code_of(world.outcomes["x"][0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.link("one").take().reply([[0, 0]])
    assert len(world.outcomes["x"]) == 1
    world.client.close()


@in_world(run)
async def test_unreachable_coordinator_fails_waiting_calls_and_is_looked_up_again(
    world: World,
) -> None:
    del world.runtime.links["one"]
    world.ask("x")
    world.ask("y")
    await world.turn()
    for name in ("x", "y"):
        (failure,) = world.outcomes[name]
        assert isinstance(failure, NotCoordinator)
    assert world.runtime.pending_timers() == 0, "what is settled has no deadline"
    world.runtime.links["one"] = FakeLink()
    world.ask("x")
    await world.turn()
    assert world.lookups == ["x", "y", "x"]
    world.link("one").take(ADD_PARTITIONS).reply([[0, 0]])
    assert world.outcomes["x"][1:] == [[0, 0]]


def test_known_coordinator_addresses_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "KNOWN_MAX", 2)

    async def scenario(world: World) -> None:
        for name in ("x", "y", "x", "z", "z", "x"):
            world.ask(name)
            await world.turn()
        assert world.lookups == ["x", "y", "z", "x"]

    run(scenario)


@in_world(run)
async def test_the_end_of_a_former_link_takes_none_of_the_next_one(world: World) -> None:
    connected: list[str] = []
    connect = world.runtime.connect

    async def recording(address: str) -> FakeLink:
        connected.append(address)
        return await connect(address)

    world.runtime.connect = recording  # type: ignore[method-assign]  # to count
    world.ask("x")
    await world.turn()
    former = world.link("one")
    former.take().reply([[0, 0]])
    former.is_open = False  # who waits for its end is told later
    world.runtime.links["one"] = FakeLink()
    world.ask("x")
    await world.turn()
    world.link("one").take().reply([[0, 0]])
    former.lose()
    world.ask("x")
    await world.turn()
    world.link("one").take().reply([[0, 0]])
    assert connected == ["one", "one"]
    assert world.outcomes["x"] == [[0, 0]] * 3


@in_world(run)
async def test_links_are_closed_at_the_end(world: World) -> None:
    for name in "xz":
        world.ask(name)
    await world.turn()
    world.client.close()
    assert [world.link(one).is_open for one in ("one", "two")] == [False, False]

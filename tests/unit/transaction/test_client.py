"""The way of leaders to the coordinator of a transactional id."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from raylog.actors.transaction import client
from raylog.actors.transaction.api import ADD_PARTITIONS, AddPartitions, TopicPartitions
from raylog.actors.transaction.client import DEADLINE_MS, TransactionCoordinators
from raylog.wire.errors import CoordinatorNotAvailable, ErrorCode, KafkaError, NotCoordinator
from tests.support.gateway_world import FakeLink, FakeRuntime, settle

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


def test_what_one_turn_brings_goes_in_one_frame() -> None:
    async def scenario(world: World) -> None:
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

    run(scenario)


def test_a_coordinator_that_has_moved_is_looked_for_next_time() -> None:
    async def scenario(world: World) -> None:
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

    run(scenario)


def test_a_link_that_breaks_fails_what_waits() -> None:
    async def scenario(world: World) -> None:
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

    run(scenario)


def test_nobody_to_be_found() -> None:
    async def scenario(world: World) -> None:
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

    run(scenario)


def test_who_is_silent_is_waited_for_no_longer_than_the_deadline() -> None:
    async def scenario(world: World) -> None:
        world.ask("x")
        await world.runtime.advance(DEADLINE_MS - 1)
        assert world.outcomes["x"] == []
        await world.runtime.advance(1)
        assert code_of(world.outcomes["x"][0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.link("one").take().reply([[0, 0]])
        assert len(world.outcomes["x"]) == 1
        world.client.close()

    run(scenario)


def test_one_that_cannot_be_reached_fails_what_waits_and_is_looked_for_again() -> None:
    async def scenario(world: World) -> None:
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

    run(scenario)


def test_so_many_addresses_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "KNOWN_MAX", 2)

    async def scenario(world: World) -> None:
        for name in ("x", "y", "x", "z", "z", "x"):
            world.ask(name)
            await world.turn()
        assert world.lookups == ["x", "y", "z", "x"]

    run(scenario)


def test_the_end_of_a_former_link_takes_none_of_the_next_one() -> None:
    async def scenario(world: World) -> None:
        connected: list[str] = []
        connect = world.runtime.connect

        async def noting(address: str) -> FakeLink:
            connected.append(address)
            return await connect(address)

        world.runtime.connect = noting  # type: ignore[method-assign]  # to count
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

    run(scenario)


def test_links_are_closed_at_the_end() -> None:
    async def scenario(world: World) -> None:
        for name in "xz":
            world.ask(name)
        await world.turn()
        world.client.close()
        assert [world.link(one).is_open for one in ("one", "two")] == [False, False]

    run(scenario)

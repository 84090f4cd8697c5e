"""A gateway's links to Replica actors: one that breaks while both are alive is reopened."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raylog.actors.common_messages import Route, RouteUpdate
from raylog.actors.gateway.cluster import ClusterView, LeaderStarting
from raylog.actors.metadata.records import (
    ConfigChanged,
    PartitionCreated,
    TopicCreated,
)
from raylog.actors.reopening import REOPEN_MS, REOPEN_MS_MAX
from raylog.actors.runtime.base import PeerLost
from raylog.wire.errors import UnknownTopicOrPartition
from tests.worlds.gateway.actor import topic_id
from tests.worlds.metadata import snapshot_of
from tests.worlds.runtime import FakeLink, FakeRuntime, settle

TOPIC = topic_id("t")
HERE = 0


class Runtime(FakeRuntime):
    """Records connection attempts; refuses while `hanging`."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging = False
        self.tried_ms: list[float] = []

    async def connect(self, address: str) -> FakeLink:
        self.tried_ms.append(self.monotonic_ms())
        if self.hanging:
            raise PeerLost(f"{address} does not answer")
        self.links[address] = FakeLink()
        return self.links[address]


class World:
    """A gateway's view of two partitions served by one process."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.view = ClusterView(self.runtime, HERE)  # type: ignore[arg-type]  # a part of one

    async def begin(self) -> None:
        created = [TopicCreated(TOPIC, "t")]
        parts = [PartitionCreated(TOPIC, index, (HERE,), (HERE,), HERE) for index in (0, 1)]
        await self.view.apply_metadata(*snapshot_of(3, [*created, *parts]))
        await self.route("old", 0, 1)

    async def route(self, address: str, *partitions: int) -> None:
        added = [Route(TOPIC, index, 0, address, address, "/none") for index in partitions]
        await self.view.apply_routes(RouteUpdate(added))

    def link(self, partition: int = 0) -> FakeLink:
        link = self.view.route(self.view.topic(TOPIC), partition).link
        assert isinstance(link, FakeLink)
        return link


@pytest.fixture
def play() -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]:
    def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            world = World()
            await world.begin()
            await scenario(world)
            assert world.runtime.failures == []

        asyncio.run(whole())

    return run


Play = Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]


def test_a_broken_link_is_opened_again_for_all_its_partitions(play: Play) -> None:
    async def scenario(world: World) -> None:
        broken = world.link()
        broken.lose()
        with pytest.raises(LeaderStarting):
            world.link()
        await world.runtime.advance(REOPEN_MS)
        assert world.link(0) is world.link(1)
        assert world.link() is not broken

    play(scenario)


def test_reopened_link_calls_the_change_listeners(play: Play) -> None:
    async def scenario(world: World) -> None:
        changes: list[bool] = []
        world.view.on_change(lambda: changes.append(world.link().is_open))
        world.link().lose()
        await world.runtime.advance(REOPEN_MS)
        assert changes == [True]

    play(scenario)


def test_a_process_that_hangs_is_tried_again_ever_more_slowly(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.runtime.hanging = True
        world.link().lose()
        world.runtime.tried_ms.clear()
        await world.runtime.advance(10_000)
        waits = [b - a for a, b in itertools.pairwise(world.runtime.tried_ms)]
        assert waits == [100, 200, 400, 800, *[REOPEN_MS_MAX] * 8]
        world.runtime.hanging = False
        await world.runtime.advance(REOPEN_MS_MAX)
        assert world.link().is_open

    play(scenario)


def test_a_route_to_a_process_that_hangs_is_opened_once_it_answers(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.runtime.hanging = True
        await world.route("new", 0)
        with pytest.raises(LeaderStarting):
            world.link(0)
        assert world.link(1).is_open
        world.runtime.hanging = False
        await world.runtime.advance(REOPEN_MS)
        assert world.link(0) is world.runtime.links["new"]

    play(scenario)


def test_the_successor_s_route_ends_the_search_for_the_lost_process(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.runtime.hanging = True
        world.link().lose()
        await world.runtime.advance(500)
        world.runtime.hanging = False
        await world.route("new", 0, 1)
        world.runtime.tried_ms.clear()
        await world.runtime.advance(10_000)
        assert world.runtime.tried_ms == []
        assert world.link(0) is world.link(1) is world.runtime.links["new"]

    play(scenario)


def test_partitions_no_longer_served_are_not_searched_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.link().lose()
        gone = await world.view.apply_routes(RouteUpdate([], [(TOPIC, 0), (TOPIC, 1)]))
        world.runtime.tried_ms.clear()
        await world.runtime.advance(10_000)
        assert gone == ["/none", "/none"]
        assert world.runtime.tried_ms == []

    play(scenario)


def test_nothing_is_opened_again_at_the_end(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.view.close()
        world.runtime.tried_ms.clear()
        await world.runtime.advance(10_000)
        await settle()
        assert world.runtime.tried_ms == []

    play(scenario)


def test_a_partition_that_moves_between_processes_is_gone_from_the_one_before(play: Play) -> None:
    """The Broker tells of both at once."""

    async def scenario(world: World) -> None:
        added = [Route(TOPIC, 0, 1, "new", "new", "/new")]
        gone = await world.view.apply_routes(RouteUpdate(added, [(TOPIC, 0)]))
        assert gone == ["/none"]
        route = world.view.route(world.view.topic(TOPIC), 0)
        assert (route.link, route.directory) == (world.runtime.links["new"], "/new")
        assert route.leader_epoch == 1
        assert world.link(1) is world.runtime.links["old"]
        gone = await world.view.apply_routes(RouteUpdate([], [(TOPIC, 0), (TOPIC, 7)]))
        assert gone == ["/new"], "the other was never here"
        with pytest.raises(LeaderStarting):
            world.link(0)
        assert world.link(1).is_open

    play(scenario)


def test_a_leader_that_follows_now_is_no_way_to_the_leader(play: Play) -> None:
    async def scenario(world: World) -> None:
        topic = world.view.topic(TOPIC)
        assert world.view.serves(topic)
        follows = Route(TOPIC, 0, 1, "old", "old", "/none", leads=False)
        await world.view.apply_routes(RouteUpdate([follows]))
        assert not world.view.serves(topic)
        assert not world.view.any_route(topic, 0).leads
        with pytest.raises(LeaderStarting):
            world.view.route(topic, 0)

    play(scenario)


def test_partitions_beyond_the_topic_s_are_unknown(play: Play) -> None:
    async def scenario(world: World) -> None:
        topic = world.view.topic(TOPIC)
        for index in (-1, 2):
            for look in (world.view.route, world.view.any_route, world.view.check_held):
                with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1"):
                    look(topic, index)
        for index in (0, 1):
            world.view.check_held(topic, index)

    play(scenario)


def test_removed_change_listener_is_not_called(play: Play) -> None:
    async def scenario(world: World) -> None:
        changes: list[str] = []
        forget = world.view.on_change(lambda: changes.append("first"))
        world.view.on_change(lambda: changes.append("second"))
        await world.route("old", 0)
        forget()
        await world.route("old", 0)
        assert changes == ["first", "second", "second"]

    play(scenario)


def test_old_updates_do_not_call_change_listeners(play: Play) -> None:
    async def scenario(world: World) -> None:
        changes: list[int] = []
        world.view.on_change(lambda: changes.append(world.view.image.offset))
        end = world.view.image.offset
        changed = [ConfigChanged(2, "t", "cleanup.policy", "compact")]
        await world.view.apply_metadata(end, end + 1, changed)
        version = world.view.configs_version
        await world.view.apply_metadata(end, end + 1, changed)
        assert changes == [end + 1]
        assert world.view.configs_version == version
        created = [TopicCreated(topic_id("new"), "new")]
        await world.view.apply_metadata(end + 1, end + 2, created)
        assert changes == [end + 1, end + 2]
        assert world.view.configs_version == version, "no setting has changed"

    play(scenario)

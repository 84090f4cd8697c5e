"""Which shards a coordinator has, by routes and metadata, and over which links."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raylog.actors.common_messages import Route, RouteUpdate, TopicId
from raylog.actors.coordination.shards import MOVED, LedShards
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    PartitionChanged,
    PartitionCreated,
    TopicCreated,
    TopicDeleted,
)
from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.reopening import REOPEN_MS, REOPEN_MS_MAX
from raylog.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from tests.worlds.metadata import id_of, topic_records
from tests.worlds.runtime import FakeLink, SlowRuntime, settle

OWN, OTHER = 1, 2
T = id_of(OFFSETS_TOPIC)


class Host:
    """A shard's shell that records its end."""

    def __init__(self, link: FakeLink, route: Route) -> None:
        self.link, self.route = link, route
        self.closed: list[str] = []

    def close(self, why: str) -> None:
        self.closed.append(why)


class World:
    def __init__(self, partitions: int = 2) -> None:
        self.image = MetadataImage()
        self.image.apply_all(topic_records(OFFSETS_TOPIC, partitions, leader=OWN))
        self.runtime = SlowRuntime()
        self.opened: list[Host] = []
        self.tasks: list[asyncio.Future[None]] = []
        self.led: LedShards[Any] = LedShards(
            self.runtime,  # type: ignore[arg-type]  # a fake
            self.image,
            OWN,
            OFFSETS_TOPIC,
            self.open,
        )

    def open(self, link: Any, route: Route) -> Any:
        self.opened.append(Host(link, route))
        return self.opened[-1]

    async def add(self, *routes: Route) -> None:
        update = RouteUpdate(list(routes), [])
        self.tasks.append(asyncio.ensure_future(self.led.apply_routes(update)))
        await settle()

    async def remove(self, route: Route) -> None:
        gone = [(route.topic_id, route.partition)]
        await self.led.apply_routes(RouteUpdate([], gone))


def route(partition: int = 0, *, epoch: int = 0, process: str = "a", topic: Any = T) -> Route:
    return Route(topic, partition, epoch, process, process, "/nowhere")


def run(scenario: Any) -> None:
    asyncio.run(scenario())


def test_a_shard_is_open_while_its_route_is_there() -> None:
    async def scenario() -> None:
        world = World()
        place = (0, world.image.topics[T].partitions[0])
        with pytest.raises(CoordinatorLoadInProgress):
            world.led.host_of("g", place)
        await world.add(route())
        link = await world.runtime.connected()
        host = world.led.host_of("g", place)
        assert (host.link, host.route) == (link, route())
        await world.add(route())
        assert world.opened == [host], "the same once more"
        await world.remove(route())
        assert host.closed == [MOVED]
        assert world.led.partitions == []

    run(scenario)


def test_the_end_of_an_older_topic_takes_nothing_of_the_one_of_its_name() -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route())
        await world.runtime.connected()
        await world.remove(route(topic=TopicId(b"o" * 16)))
        assert world.led.partitions == [0]

    run(scenario)


def test_a_route_that_is_gone_before_it_is_reached_opens_nothing() -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route())
        await world.remove(route())
        await world.runtime.connected()
        assert world.opened == []
        await world.runtime.advance(10 * REOPEN_MS_MAX)
        assert world.opened == []

    run(scenario)


@pytest.mark.parametrize("newer", [route(epoch=1), route(process="b")])
def test_another_route_takes_the_place_of_the_one_before(newer: Route) -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route())
        await world.runtime.connected()
        await world.add(newer)
        if newer.replica_address == "b":
            await world.runtime.connected()
        before, after = world.opened
        assert before.closed == [MOVED]
        assert (after.route, after.closed) == (newer, [])

    run(scenario)


def test_a_link_that_breaks_opens_the_shard_anew() -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route(0), route(1))
        first = await world.runtime.connected()
        assert world.led.partitions == [0, 1], "they share the link"
        first.lose()
        await world.runtime.advance(REOPEN_MS)
        while world.runtime.waiting:
            await world.runtime.connected()
        assert world.led.partitions == [0, 1]
        assert [host.closed for host in world.opened] == [[MOVED], [MOVED], [], []]
        assert all(host.link.is_open for host in world.led)

    run(scenario)


def test_a_process_that_does_not_answer_is_tried_again_while_it_is_wanted() -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route())
        await world.runtime.refused()
        await world.runtime.advance(REOPEN_MS)
        await world.runtime.refused()
        await world.remove(route())
        await world.runtime.advance(10 * REOPEN_MS_MAX)
        assert len(world.runtime.asked) == 2

    run(scenario)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (None, [0, 1]),
        (PartitionChanged(T, 0, isr=(OWN, OTHER)), [0, 1]),
        (PartitionChanged(T, 0, leader=OTHER), [1]),
        (PartitionChanged(T, 0, leader=OWN), [1]),  # in a newer epoch: another log may count
        (TopicDeleted(T), []),
    ],
)
def test_shards_led_elsewhere_are_closed(change: Any, left: list[int]) -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route(0), route(1))
        await world.runtime.connected()
        if change is not None:
            world.image.apply(change)
        world.led.close_lost()
        assert world.led.partitions == left
        await world.runtime.advance(10 * REOPEN_MS_MAX)
        assert world.led.partitions == left

    run(scenario)


def test_not_coordinator_error_names_the_leading_broker() -> None:
    async def scenario() -> None:
        world = World()
        world.image.apply(PartitionChanged(T, 0, leader=OTHER))
        with pytest.raises(NotCoordinator, match="broker 2"):
            world.led.host_of("g", (0, world.image.topics[T].partitions[0]))

    run(scenario)


def test_nothing_is_opened_after_the_end() -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route(0), route(1, process="b"))
        link = await world.runtime.connected()
        world.led.close("the end")
        assert [host.closed for host in world.opened] == [["the end"]]
        assert not link.is_open
        while world.runtime.waiting:
            await world.runtime.connected()
        await world.runtime.advance(10 * REOPEN_MS_MAX)
        assert len(world.opened) == 1
        assert world.led.partitions == []

    run(scenario)


def test_a_topic_that_was_made_anew_has_none_of_the_shards_of_the_former_one() -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route(0), route(1))
        await world.runtime.connected()
        world.image.apply(TopicDeleted(T))
        again = TopicId(b"a" * 16)
        world.image.apply(TopicCreated(again, OFFSETS_TOPIC))
        for index in range(2):
            world.image.apply(PartitionCreated(again, index, (OWN,), (OWN,), OWN))
        world.led.close_lost()
        assert world.led.partitions == []
        assert [host.closed for host in world.opened] == [[MOVED], [MOVED]]

    run(scenario)


def test_a_shard_whose_link_broke_is_not_opened_again_once_others_lead_it() -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route())
        link = await world.runtime.connected()
        link.lose()
        world.image.apply(PartitionChanged(T, 0, leader=OTHER))
        world.led.close_lost()
        await world.runtime.advance(10 * REOPEN_MS_MAX)
        assert len(world.runtime.asked) == 1
        assert world.led.partitions == []

    run(scenario)


def test_a_shard_whose_link_broke_is_not_opened_again_after_the_end() -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route())
        link = await world.runtime.connected()
        link.lose()
        world.led.close("the end")
        assert world.runtime.pending_timers() == 0
        await world.runtime.advance(10 * REOPEN_MS_MAX)
        assert len(world.runtime.asked) == 1

    run(scenario)


def test_a_broken_link_is_that_of_its_own_shards_alone() -> None:
    async def scenario() -> None:
        world = World()
        await world.add(route(0))
        first = await world.runtime.connected()
        await world.add(route(1, process="b"))
        await world.runtime.connected()
        first.lose()
        await world.runtime.advance(REOPEN_MS)
        assert world.runtime.asked == ["a", "b", "a"]
        await world.runtime.connected()
        assert [(host.route.partition, host.closed) for host in world.opened] == [
            (0, [MOVED]),
            (1, []),
            (0, []),
        ]

    run(scenario)


def test_all_is_there_once_every_partition_that_is_led_here_is_open() -> None:
    async def scenario() -> None:
        world = World(3)
        world.image.apply(PartitionChanged(T, 2, leader=OTHER))
        for number in range(2):
            with pytest.raises(CoordinatorNotAvailable, match=f"{OFFSETS_TOPIC}-{number} is not"):
                world.led.check_complete()
            await world.add(route(number))
            if world.runtime.waiting:
                await world.runtime.connected()
        world.led.check_complete()

    run(scenario)


def test_without_a_topic_there_is_nothing_to_be_open() -> None:
    async def scenario() -> None:
        world = World()
        world.image.apply(TopicDeleted(T))
        world.led.check_complete()

    run(scenario)

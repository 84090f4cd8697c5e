"""The counters of Replica processes, and their metrics of under-replicated partitions."""

from __future__ import annotations

from typing import Any

from raylog.actors.common_messages import OpenPartition, TopicId
from raylog.actors.metrics.counts import OTHERS, Bounded
from raylog.actors.metrics.families import replica as families
from raylog.actors.metrics.family import Family
from raylog.actors.replica.counts import TopicCounts
from raylog.actors.replica.log_manager import LOOK_EVERY_MS
from raylog.wire.errors import ErrorCode
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import SETTINGS, ReplicaWorld, run_world
from tests.worlds.storage.logs import batch

UNTIL_OUT_MS = SETTINGS.lag_ms_max + 2 * LOOK_EVERY_MS


class Scraped:
    """The metrics of one process."""

    def __init__(self, values: dict[tuple[str, tuple[str, ...]], Any]) -> None:
        self.values = values

    def __getitem__(self, asked: tuple[Family, *tuple[str, ...]]) -> Any:
        family, *labels = asked
        return self.values.get((family.name, tuple(labels)))


async def scrape(world: ReplicaWorld, broker_id: int) -> Scraped:
    metrics = await world.nodes[broker_id].actor.metrics()
    return Scraped({(name, labels): value for name, labels, value in metrics.samples})


@in_world(run_world)
async def test_the_leader_counts_what_comes_in_and_what_followers_get(world: ReplicaWorld) -> None:
    batches = [batch(2), batch(3)]
    size = sum(map(len, batches))
    written = world.produce(1, *batches)
    await world.pass_ms(60)
    assert len(await written) == 2
    leader, follower = await scrape(world, 1), await scrape(world, 2)
    assert leader[families.BATCHES_IN, "t"] == 2
    assert leader[families.RECORDS_IN, "t"] == 5
    assert leader[families.BYTES_IN, "t"] == size == leader[families.LOG_BYTES, "t"]
    assert leader[families.REPLICATED, "t", "out"] == 2 * size
    assert follower[families.REPLICATED, "t", "in"] == size == follower[families.LOG_BYTES, "t"]
    assert follower[families.BYTES_IN, "t"] == follower[families.REPLICATED, "t", "out"] == 0
    states = [leader[families.PARTITIONS, one] for one in ("leader", "follower", "idle")]
    assert (states, follower[families.PARTITIONS, "follower"]) == ([1, 0, 0], 1)
    assert leader[families.SEGMENTS,] == 1
    assert leader[families.WAITING, "follower"] == 2


@in_world(run_world)
async def test_a_batch_that_is_not_appended_is_not_counted(world: ReplicaWorld) -> None:
    refused = world.produce(2)
    await world.pass_ms(10)
    await refused
    assert (await scrape(world, 2))[families.BATCHES_IN, "t"] == 0


@in_world(run_world, partitions=2, config={"min.insync.replicas": "2"})
async def test_a_follower_that_is_lost_shows_in_the_leaders_figures_until_it_is_back(
    world: ReplicaWorld,
) -> None:
    well = await scrape(world, 1)
    standing = (families.UNDER_REPLICATED, families.AT_MIN_ISR, families.UNDER_MIN_ISR)
    assert [well[one,] for one in standing] == [0, 0, 0]
    await world.kill(3)
    waiting = [world.produce(1, partition=index) for index in range(2)]
    await world.pass_ms(1)
    before = await scrape(world, 1)
    assert before[families.WAITING, "produce"] == 2
    assert before[families.FOLLOWER_LAG,] == 1
    await world.pass_ms(UNTIL_OUT_MS)
    assert world.isr() == (1, 2)
    for one in waiting:
        await one
    lost = await scrape(world, 1)
    assert [lost[one,] for one in standing] == [2, 2, 0], "of both partitions"
    assert lost[families.ISR_CHANGES, "t", "shrink"] == 2
    await world.start(3)
    await world.pass_ms(UNTIL_OUT_MS)
    back = await scrape(world, 1)
    assert [back[one,] for one in standing] == [0, 0, 0]
    assert back[families.ISR_CHANGES, "t", "shrink"] == 2
    assert back[families.ISR_CHANGES, "t", "expand"] == 2
    assert back[families.FOLLOWER_LAG,] == 0


@in_world(run_world, config={"min.insync.replicas": "2"})
async def test_fewer_in_sync_than_producers_ask_for_is_reported(world: ReplicaWorld) -> None:
    for broker_id in (2, 3):
        await world.kill(broker_id)
    refused = world.produce(1)
    await world.pass_ms(UNTIL_OUT_MS)
    found = await scrape(world, 1)
    assert (found[families.UNDER_MIN_ISR,], found[families.AT_MIN_ISR,]) == (1, 0)
    assert await refused == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_a_change_counts_once_however_it_is_heard_of() -> None:
    counts = TopicCounts()
    counts.isr_changed((1, 2, 3), (1, 2, 3))
    counts.isr_changed((1, 2, 3), (3, 1))
    counts.isr_changed((3, 1), (1, 2))
    assert (counts.shrinks, counts.expands) == (2, 1)


@in_world(run_world)
async def test_flushes_are_timed(world: ReplicaWorld) -> None:
    await world.configure(flush_messages="1")
    written = world.produce(1)
    await world.pass_ms(60)
    await written
    seconds = (await scrape(world, 1))[families.FLUSHES,]
    assert sum(seconds[1:]) == 1


@in_world(run_world)
async def test_topics_beyond_the_limit_are_reported_together_and_series_end_with_the_topic(
    world: ReplicaWorld,
) -> None:
    node = world.nodes[1]
    ids = {name: TopicId(name.encode().rjust(16, b"\x02")) for name in ("a", "b", "c")}
    node.actor._metrics._topics = Bounded(TopicCounts, 2)  # "t" counts before there is one
    await node.actor.open_partitions(
        [
            OpenPartition(ids[topic], topic, index, f"/1/{topic}-{index}", world.config)
            for topic in ids
            for index in range(2)
        ]
    )
    found = await scrape(world, 1)
    topics = {labels[0] for name, labels in found.values if name == families.BYTES_IN.name}
    assert topics == {"a", "b", OTHERS}
    assert found[families.PARTITIONS, "idle"] == 6
    await node.actor.close_partitions([(ids["a"], 0)], True)
    assert (await scrape(world, 1))[families.BYTES_IN, "a"] == 0
    await node.actor.close_partitions([(ids["a"], 1), (ids["c"], 0), (ids["c"], 1)], True)
    assert (await scrape(world, 1))[families.BYTES_IN, "a"] is None

"""A gateway's metrics: requests by API and stage, errors, bytes, connections."""

from __future__ import annotations

from typing import Any, cast

import pytest

from raylog.actors.gateway import context, counts
from raylog.actors.gateway.connection import ClientConnection, Slot
from raylog.actors.metrics.counts import OTHERS, Histogram
from raylog.actors.metrics.families import gateway as families
from raylog.actors.metrics.family import Family
from raylog.actors.metrics.samples import Samples
from raylog.actors.replica.messages import PRODUCE
from raylog.wire.api import ApiKey
from raylog.wire.errors import InvalidTimestamp
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.describe_cluster import DescribeClusterRequest
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.records import Record, encode_batch
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, topic_id
from tests.worlds.gateway.producing import produce
from tests.worlds.runtime import settle

T = topic_id("t")
BATCH = encode_batch([Record(0, 1_000_000, b"k", b"v", [])])
STAGES = ("queue", "local", "remote", "send")


class Scraped:
    """A gateway's metrics by family and labels."""

    def __init__(self, values: dict[tuple[str, tuple[str, ...]], Any]) -> None:
        self.values = values

    def __getitem__(self, asked: tuple[Family, *tuple[str, ...]]) -> Any:
        family, *labels = asked
        return self.values.get((family.name, tuple(labels)))

    def seconds(self, api: str) -> dict[str, float]:
        """The sum of each stage."""
        return {stage: self[families.STAGE_SECONDS, api, stage][0] for stage in STAGES}

    def count(self, api: str) -> int:
        """How many requests have been answered."""
        total: int = sum(self[families.REQUEST_SECONDS, api][1:])
        for stage in STAGES:
            assert sum(self[families.STAGE_SECONDS, api, stage][1:]) == total
        return total


async def scrape(world: World) -> Scraped:
    metrics = await world.gateway.metrics()
    return Scraped({(name, labels): value for name, labels, value in metrics.samples})


def sampled(counted: counts.ApiCounts) -> Scraped:
    samples = Samples()
    counted.sample(samples, "Fetch")
    return Scraped({(name, labels): value for name, labels, value in samples.taken})


@in_world(run)
async def test_the_time_of_a_request_is_reported_by_stage(world: World) -> None:
    await world.topic("t")
    link = await world.route("a", (T, 0))
    client = world.client()
    client.send(produce((0, BATCH)), 9)
    await world.runtime.advance(30)
    client.send(DescribeClusterRequest(), 0)
    await world.runtime.advance(20)
    found = await scrape(world)
    assert found[families.REQUESTS, "Produce"] == 1
    assert found[families.IN_FLIGHT,] == 2, "the second one's answer waits for the first"
    assert found.count("Produce") == found.count("DescribeCluster") == 0

    link.take(PRODUCE).reply([(40, -1, 7)])
    assert len(client.received()) == 2
    found = await scrape(world)
    assert found.seconds("Produce") == pytest.approx(
        {"queue": 0, "local": 0, "remote": 0.05, "send": 0}
    )
    assert found.seconds("DescribeCluster") == pytest.approx(
        {"queue": 0, "local": 0, "remote": 0, "send": 0.02}
    )
    total = found[families.REQUEST_SECONDS, "Produce"]
    assert total[0] == pytest.approx(0.05)
    assert total[1 + families.REQUEST_SECONDS.bounds.index(0.05)] == 1
    assert found.count("Produce") == found.count("DescribeCluster") == 1
    assert found[families.IN_FLIGHT,] == 0


@pytest.mark.parametrize("took_s", [0.0, 0.000_5, 0.000_6, 0.001, 0.7, 100.0])
def test_the_time_of_a_request_that_waited_for_nothing_is_local(took_s: float) -> None:
    slot = Slot(cast(ClientConnection, None), 0, 0.0)
    counted, observed = counts.ApiCounts(), Histogram(families.REQUEST_SECONDS.bounds)
    counted.answered(slot, took_s)
    observed.observe(took_s)
    found = sampled(counted)
    expected = (took_s, *observed.counts)
    assert found[families.REQUEST_SECONDS, "Fetch"] == expected
    assert found[families.STAGE_SECONDS, "Fetch", "local"] == expected
    assert found.seconds("Fetch") == {"queue": 0, "local": took_s, "remote": 0, "send": 0}
    assert found.count("Fetch") == 1


def test_each_stage_has_the_time_that_a_request_waited_in_it() -> None:
    """It was decoded in 1 s, handled in 2 s and answered in 4 s, and left 8 s later."""
    slot = Slot(cast(ClientConnection, None), 0, 100.0)
    slot.begun_s, slot.left_s = 101.0, 103.0
    counted = counts.ApiCounts()
    counted.waited(slot, 107.0, 115.0)
    found = sampled(counted)
    assert found.seconds("Fetch") == {"queue": 1.0, "local": 2.0, "remote": 4.0, "send": 8.0}
    assert found[families.REQUEST_SECONDS, "Fetch"][0] == 15.0
    assert found.count("Fetch") == 1


def test_a_large_request_that_its_handler_answers_has_waited_for_its_turn_alone() -> None:
    slot = Slot(cast(ClientConnection, None), 0, 100.0)
    slot.begun_s = 101.0
    counted = counts.ApiCounts()
    counted.answered(slot, 103.0)
    found = sampled(counted)
    assert found.seconds("Fetch") == {"queue": 1.0, "local": 2.0, "remote": 0, "send": 0}
    assert found.count("Fetch") == 1


@in_world(run)
async def test_a_request_that_gets_no_answer_is_counted_and_one_whose_client_is_gone_is_not_timed(
    world: World,
) -> None:
    await world.topic("t")
    link = await world.route("a", (T, 0))
    client = world.client()
    client.send(produce((0, BATCH), acks=0), 9)
    await world.runtime.advance(10)
    link.take(PRODUCE).reply([(40, -1, 7)])
    client.send(produce((0, BATCH)), 9)
    client.connection.connection_lost(None)
    link.take(PRODUCE).reply([(41, -1, 7)])
    found = await scrape(world)
    assert found[families.REQUESTS, "Produce"] == 2
    assert found.count("Produce") == 1
    assert found.seconds("Produce")["remote"] == pytest.approx(0.01)


@in_world(run)
async def test_each_partition_that_fails_is_an_error(world: World) -> None:
    await world.topic("t", 3)
    link = await world.route("a", (T, 0))

    def refuse(_: object) -> None:
        raise InvalidTimestamp("too late")

    link.answering = refuse
    client = world.client()
    await client.ask(produce((0, BATCH), (1, BATCH), (2, BATCH)), 9)
    await client.ask(DescribeClusterRequest(), 0)
    found = await scrape(world)
    assert found[families.ERRORS, "Produce", "NOT_LEADER_OR_FOLLOWER"] == 2
    assert found[families.ERRORS, "Produce", "INVALID_TIMESTAMP"] == 1
    assert found[families.ERRORS, "DescribeCluster", "NONE"] is None


def test_errors_of_an_answer_that_a_thread_encodes_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context, "LARGE_TURNS", 0)

    async def scenario(world: World) -> None:
        names = [f"missing-{n}" for n in range(context.TURN + 1)]
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        asked.allow_auto_topic_creation = False
        client = world.client()
        client.send(asked, 8)
        while not client.transport.written:
            await settle()
        (answer,) = client.received()
        assert len(answer.topics) == len(names)
        found = await scrape(world)
        assert found[families.ERRORS, "Metadata", "UNKNOWN_TOPIC_OR_PARTITION"] == len(names)

    run(scenario)


@in_world(run)
async def test_bytes_are_counted_as_they_come_and_go(world: World) -> None:
    client = world.client()
    received = len(client.transport.written)
    client.send(ApiVersionsRequest(), 0)
    await settle()
    sent = len(client.transport.written) - received
    found = await scrape(world)
    assert found[families.NETWORK_BYTES, "in"] == 4 + 10 + len(b"test")
    assert found[families.NETWORK_BYTES, "out"] == sent > 100


@in_world(run, max_connections_per_ip="1")
async def test_connections_are_counted_and_why_they_were_closed(world: World) -> None:
    staying, refused = world.client("10.0.0.1"), world.client("10.0.0.1")
    assert refused.transport.aborted
    broken = world.client("10.0.0.2")
    broken.send_bytes(b"\0\0\0\x0a" + b"\x7f\xff" + bytes(8))
    broken.connection.connection_lost(None)
    found = await scrape(world)
    assert found[families.ACCEPTED,] == 3
    assert found[families.CLOSED, "limit"] == 1
    assert found[families.CLOSED, "protocol"] == 1
    assert found[families.CLOSED, "silent"] == 0
    assert found[families.CONNECTIONS, "PLAINTEXT"] == 1
    staying.connection.cut_off("it rests")
    assert (await scrape(world))[families.CLOSED, "silent"] == 1


@in_world(run)
async def test_no_client_can_add_series_by_what_it_sends(world: World) -> None:
    """Neither client ids, nor APIs and versions that nobody knows, have one."""

    client = world.client()
    await client.ask(ApiVersionsRequest(), 0)
    await client.ask(DescribeClusterRequest(), 0)
    before = len((await scrape(world)).values)
    for number in range(100):
        client = world.client()
        client.send(ApiVersionsRequest(), 0, client_id=f'client {number}"\n')
        client.send(ApiVersionsRequest(), 0)
        for api_key in (number + 100, -number - 1):
            other = world.client()
            key = api_key.to_bytes(2, "big", signed=True)
            other.send_bytes(b"\0\0\0\x0a" + key + bytes(8))
            assert other.transport.closed
    assert len((await scrape(world)).values) == before


@in_world(run)
async def test_an_unknown_version_of_api_versions_is_a_request_and_an_error(world: World) -> None:
    client = world.client()
    key = int(ApiKey.API_VERSIONS).to_bytes(2, "big")
    client.send_bytes(b"\0\0\0\x0b" + key + b"\x7f\xff" + bytes(4) + b"\xff\xff\0")
    await settle()
    found = await scrape(world)
    assert found.count("ApiVersions") == 1
    assert found[families.ERRORS, "ApiVersions", "UNSUPPORTED_VERSION"] == 1


def test_topic_series_are_limited_and_dropped_with_their_topics() -> None:
    made = counts.GatewayCounts(2)
    for number, topic in enumerate(("a", "b", "c", "d", "a"), 1):
        made.topics.of(topic).out += number
    assert {topic: one.out for topic, one in made.topics.items()} == {"a": 6, "b": 2, OTHERS: 7}
    made.forget_topics({"a", "c"})
    made.topics.of("c").out += 100
    assert {topic: one.out for topic, one in made.topics.items()} == {"a": 6, "c": 100, OTHERS: 7}

"""Metadata: which topics are returned, and how, in every version."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.controller.messages import TopicOutcome
from raylog.actors.gateway.context import TURN
from raylog.actors.gateway.handlers import metadata
from raylog.actors.metadata.records import PartitionChanged, TopicDeleted
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.wire.schema import INT32_MIN
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, never, run, topic_id
from tests.worlds.runtime import settle

VERSIONS = range(14)
ALL_TOPIC_OPERATIONS = 3576  # as Apache Kafka answers without an authorizer
ALL_CLUSTER_OPERATIONS = 8096


def by_name(*names: str, **more: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, **more)


def by_id(*ids: bytes) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(topic_id=i, name=None) for i in ids])


def names(answer: MetadataResponse) -> list[str | None]:
    return [topic.name for topic in answer.topics]


def errors(answer: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", VERSIONS)
@in_world(run)
async def test_each_version_tells_what_it_has_a_place_for(world: World, *, version: int) -> None:
    await world.brokers(1)
    await world.topic("t")
    answer = await world.client().ask(by_name("t"), version)
    partition = MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=1,
        leader_epoch=0 if version >= 7 else -1,
        replica_nodes=[1],
        isr_nodes=[1],
        offline_replicas=[],
    )
    assert answer == MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=1, host="host1", port=9001, rack="r1" if version >= 1 else None
            )
        ],
        cluster_id="test-cluster" if version >= 2 else None,
        controller_id=1 if version >= 1 else -1,
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=topic_id("t") if version >= 10 else bytes(16),
                partitions=[partition],
            )
        ],
    )


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [
        (0, [], ["a", "b", "c"]),
        (1, [], []),
        (13, [], []),
        (1, None, ["a", "b", "c"]),
        (13, None, ["a", "b", "c"]),
    ],
)
@in_world(run)
async def test_all_topics_and_none_sorted(
    world: World, *, version: int, topics: list[MetadataRequestTopic] | None, expected: list[str]
) -> None:
    for name in ("b", "c", "a"):
        await world.topic(name)
    answer = await world.client().ask(MetadataRequest(topics=topics), version)
    assert names(answer) == expected


@in_world(run)
async def test_topics_by_id_and_unknown_ids(world: World) -> None:
    await world.topic("b")
    await world.topic("a")
    unknown = b"u" * 16
    answer = await world.client().ask(by_id(topic_id("b"), unknown, topic_id("a")), 12)
    assert [(topic.name, topic.error_code, topic.topic_id) for topic in answer.topics] == [
        (None, ErrorCode.UNKNOWN_TOPIC_ID, unknown),
        ("a", 0, topic_id("a")),
        ("b", 0, topic_id("b")),
    ]


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        (10, MetadataRequestTopic(name="t", topic_id=topic_id("t"))),
        (11, MetadataRequestTopic(name=None, topic_id=topic_id("t"))),
        (12, MetadataRequestTopic(name=None)),
        (13, MetadataRequestTopic(name=None)),
    ],
)
@in_world(run)
async def test_a_topic_that_cannot_be_meant_is_an_invalid_request(
    world: World, *, version: int, asked: MetadataRequestTopic
) -> None:
    await world.topic("t")
    answer = await world.client().ask(MetadataRequest(topics=[asked]), version)
    (topic,) = answer.topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_code == (ErrorCode.INVALID_REQUEST if version >= 13 else 0)


@in_world(run)
async def test_unknown_and_illegal_names_each_once(world: World) -> None:
    await world.topic("t")
    request = by_name(
        "t", "t", "none", "bad name", "", "__consumer_offsets", allow_auto_topic_creation=False
    )
    answer = await world.client().ask(request, 13)
    assert errors(answer) == {
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "t": 0,
    }
    assert [topic.is_internal for topic in answer.topics] == [False, True, False, False, False]
    assert world.controller.asked == []


@in_world(run)
async def test_authorized_operations_only_when_asked_for(world: World) -> None:
    await world.topic("t")
    client = world.client()
    asked = by_name(
        "t",
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = await client.ask(asked, 8)
    assert answer.topics[0].topic_authorized_operations == ALL_TOPIC_OPERATIONS
    assert answer.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS
    plain = await client.ask(by_name("t"), 8)
    assert plain.topics[0].topic_authorized_operations == INT32_MIN
    assert plain.cluster_authorized_operations == INT32_MIN


@in_world(run)
async def test_offline_replicas_and_lost_leaders(world: World) -> None:
    await world.brokers(1, 2, fenced=[2])
    await world.topic("t", 2, replicas=(1, 2, 3))
    await world.apply(PartitionChanged(topic_id("t"), 1, leader=-1))
    client = world.client()
    led, orphan = (await client.ask(by_name("t"), 13)).topics[0].partitions
    assert (led.error_code, led.leader_id, led.offline_replicas) == (0, 1, [2, 3])
    assert (orphan.error_code, orphan.leader_id, orphan.leader_epoch) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        -1,
        1,
    )
    led, orphan = (await client.ask(by_name("t"), 0)).topics[0].partitions
    assert (led.error_code, led.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])
    assert (orphan.error_code, orphan.isr_nodes) == (ErrorCode.LEADER_NOT_AVAILABLE, [1])


@pytest.mark.parametrize(
    ("registered", "fenced", "expected"), [((1, 2), (), 1), ((1, 2), (1,), 2), ((), (), -1)]
)
@in_world(run)
async def test_the_controller_is_a_live_broker(
    world: World, *, registered: tuple[int, ...], fenced: tuple[int, ...], expected: int
) -> None:
    await world.brokers(*registered, fenced=fenced)
    answer = await world.client().ask(MetadataRequest(topics=[]), 12)
    assert answer.controller_id == expected
    assert [b.node_id for b in answer.brokers] == [b for b in registered if b not in fenced]


@in_world(run)
async def test_a_change_is_seen_by_the_next_request(world: World) -> None:
    await world.brokers(1, 2)
    await world.topic("t", replicas=(1, 2))
    client = world.client()
    before = await client.ask(by_name("t"), 12)
    again = await client.ask(by_name("t"), 12)
    assert again == before
    await world.apply(PartitionChanged(topic_id("t"), 0, leader=2, isr=(2,)))
    (after,) = (await client.ask(by_name("t"), 12)).topics[0].partitions
    expected = replace(before.topics[0].partitions[0], leader_id=2, leader_epoch=1, isr_nodes=[2])
    assert after == expected
    await world.apply(TopicDeleted(topic_id("t")))
    assert names(await client.ask(MetadataRequest(topics=None), 12)) == []


# ---- auto-creation ---------------------------------------------------------------------------


def creating(world: World) -> None:
    world.controller.script["create_topics"] = lambda asked: [
        TopicOutcome(one.name, topic_id(one.name), num_partitions=1) for one in asked.topics
    ]


@pytest.mark.parametrize("version", VERSIONS)
@in_world(run)
async def test_a_missing_topic_is_answered_as_unknown_while_it_is_made(
    world: World, *, version: int
) -> None:
    await world.brokers(1)
    creating(world)
    client = world.client()
    answer = await client.ask(by_name("new", "bad name"), version)
    assert errors(answer) == {
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    (new,) = [one for one in answer.topics if one.name == "new"]
    assert (new.topic_id, new.is_internal, new.partitions) == (bytes(16), False, [])
    ((method, asked),) = world.controller.asked
    assert method == "create_topics"
    assert [one.name for one in asked.topics] == ["new"]
    await world.topic("new")
    await world.route("replica", (topic_id("new"), 0))
    assert errors(await client.ask(by_name("new"), version)) == {"new": 0}
    assert len(world.controller.asked) == 1


@pytest.mark.parametrize(("most", "made"), [(2, []), (3, ["a", "b", "c"])])
def test_a_request_for_too_many_topics_makes_none(
    monkeypatch: pytest.MonkeyPatch, most: int, made: list[str]
) -> None:
    monkeypatch.setattr(metadata, "TOPICS_PER_REQUEST_MAX", most)

    async def scenario(world: World) -> None:
        creating(world)
        answer = await world.client().ask(by_name("a", "b", "c"), 13)
        assert len(answer.topics) == 3
        asked = [one.name for _, topics in world.controller.asked for one in topics.topics]
        assert asked == made

    run(scenario)


@in_world(run)
async def test_internal_topics_are_made_with_their_own_settings(world: World) -> None:
    await world.brokers(1)
    creating(world)
    shares = "__share_group_state"
    answer = await world.client().ask(by_name("__transaction_state", shares, "new"), 13)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(answer) == dict.fromkeys(("__transaction_state", shares, "new"), unknown)
    assert [one.is_internal for one in answer.topics] == [True, True, False]
    ((_, asked),) = world.controller.asked
    made = {one.name: one for one in asked.topics}
    assert made["__transaction_state"].configs["cleanup.policy"] == "compact"
    assert not made["new"].configs
    assert not made[shares].configs, "no coordinator of this build keeps anything there"


@in_world(run)
async def test_a_topic_that_is_being_made_is_not_asked_for_again(world: World) -> None:
    creating(world)
    client = world.client()
    for names in (["new"], ["new"], ["new", "other"], ["other", "new"]):
        await client.ask(by_name(*names), 13)
    asked = [[one.name for one in topics.topics] for _, topics in world.controller.asked]
    assert asked == [["new"], ["other"]]
    await world.runtime.advance(60_000)  # nobody saw them: they may be gone again
    await client.ask(by_name("new"), 13)
    assert len(world.controller.asked) == 3


@pytest.mark.parametrize(
    "refusal", [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.TOPIC_ALREADY_EXISTS]
)
@in_world(run)
async def test_a_refused_creation_is_tried_again_when_somebody_asks_again(
    world: World, *, refusal: ErrorCode
) -> None:
    world.controller.script["create_topics"] = lambda asked: [
        TopicOutcome("new", error=refusal, message="not now")
    ]
    client = world.client()
    for _ in range(2):
        answer = await client.ask(by_name("new"), 13)
        assert errors(answer) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await world.runtime.advance(10_000)
    assert len(world.controller.asked) == 2


@in_world(run)
async def test_a_controller_that_does_not_answer_keeps_nobody_from_trying_again(
    world: World,
) -> None:
    world.controller.script["create_topics"] = never
    client = world.client()
    await client.ask(by_name("new"), 13)
    await client.ask(by_name("new"), 13)
    assert len(world.controller.asked) == 2


@pytest.mark.parametrize(
    ("settings", "request_"),
    [
        ({"auto_create_topics_enable": "false"}, by_name("new")),
        ({}, by_name("new", allow_auto_topic_creation=False)),
        ({}, by_id(b"n" * 16)),
        ({}, MetadataRequest(topics=None)),
    ],
)
def test_nothing_is_created_where_it_is_not_wanted(
    settings: dict[str, str], request_: MetadataRequest
) -> None:
    async def scenario(world: World) -> None:
        await world.client().ask(request_, 13)
        assert world.controller.asked == []

    run(scenario, **settings)


def test_a_topic_that_changes_while_it_is_reported_is_reported_as_it_was_and_then_anew() -> None:
    count = 3 * TURN

    async def scenario(world: World) -> None:
        await world.brokers(1, 2)
        await world.topic("t", count)
        client = world.client()
        client.send(by_name("t"), 9)
        assert client.received() == []
        await world.apply(PartitionChanged(topic_id("t"), count - 1, leader=2))
        await settle()
        (answer,) = client.received()
        assert {one.leader_id for one in answer.topics[0].partitions} == {1}
        client.send(by_name("t"), 9)
        await settle()
        (answer,) = client.received()
        leaders = [one.leader_id for one in answer.topics[0].partitions]
        assert leaders == [1] * (count - 1) + [2]

    run(scenario)


def test_outdated_answer_in_progress_is_not_reused_for_the_next_client() -> None:
    count = 3 * TURN

    async def scenario(world: World) -> None:
        await world.brokers(1, 2)
        await world.topic("t", count)
        first, second, third = (world.client() for _ in range(3))
        first.send(by_name("t"), 9)
        await world.apply(PartitionChanged(topic_id("t"), count - 1, leader=2))
        second.send(by_name("t"), 9)
        for _ in range(20):
            await asyncio.sleep(0)
            if first.received():
                break
        assert second.received() == []
        third.send(by_name("t"), 9)
        await settle()
        for client in (second, third):
            (answer,) = client.received()
            assert answer.topics[0].partitions[-1].leader_id == 2

    run(scenario)


@in_world(run)
async def test_a_topic_that_is_deleted_while_it_is_reported_is_reported_and_then_no_more(
    world: World,
) -> None:
    await world.brokers(1)
    await world.topic("t", 3 * TURN)
    client = world.client()
    asked = by_name("t", allow_auto_topic_creation=False)
    client.send(asked, 9)
    await world.apply(TopicDeleted(topic_id("t")))
    await settle()
    (answer,) = client.received()
    assert len(answer.topics[0].partitions) == 3 * TURN
    assert errors(await client.ask(asked, 9)) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(("more", "at_once"), [(-1, 1), (0, 0)])
@in_world(run)
async def test_unknown_topics_are_reported_in_turns(
    world: World, *, more: int, at_once: int
) -> None:
    asked = by_name(*(f"u{n}" for n in range(TURN + more)), allow_auto_topic_creation=False)
    client = world.client()
    client.send(asked, 9)
    answers = client.received()
    assert len(answers) == at_once
    await settle()
    answers += client.received()
    assert [len(one.topics) for one in answers] == [TURN + more]

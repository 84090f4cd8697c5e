"""CreateTopics, CreatePartitions, DeleteTopics: sent to the controller, then awaited here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.config import ConfigSource, ConfigType, DescribedConfig
from raylog.actors.controller.messages import (
    PARTITIONS_PER_REQUEST_MAX,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicOutcome,
)
from raylog.actors.gateway import parts
from raylog.actors.gateway.handlers import create_partitions, create_topics
from raylog.actors.metadata.records import PartitionChanged, PartitionCreated, TopicDeleted
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from raylog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from raylog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, never, run, topic_id
from tests.worlds.runtime import settle

RETENTION = DescribedConfig(
    "retention.ms", "5", ConfigSource.DYNAMIC_TOPIC, ConfigType.LONG, False, "how long", ()
)


def new(name: str, partitions: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)


def made(*names: str, partitions: int = 1) -> Callable[[Any], list[TopicOutcome]]:
    return lambda _asked: [
        TopicOutcome(
            name,
            topic_id(name),
            num_partitions=partitions,
            replication_factor=1,
            configs=[RETENTION],
        )
        for name in names
    ]


# ---- create ----------------------------------------------------------------------------------


@in_world(run)
async def test_the_controller_gets_the_whole_request(world: World) -> None:
    world.controller.script["create_topics"] = lambda _asked: []
    topic = CreatableTopic(
        name="placed",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2]),
            CreatableReplicaAssignment(partition_index=1, broker_ids=[2, 1]),
        ],
        configs=[
            CreatableTopicConfig(name="retention.ms", value="5"),
            CreatableTopicConfig(name="segment.ms", value=None),
        ],
    )
    request = CreateTopicsRequest(topics=[topic, new("plain", 3)], validate_only=True)
    answer = await world.client().ask(request, 7)
    assert answer.topics == []
    assert world.controller.asked == [
        (
            "create_topics",
            CreateTopics(
                [
                    NewTopic(
                        "placed",
                        -1,
                        -1,
                        {0: (1, 2), 1: (2, 1)},
                        {"retention.ms": "5", "segment.ms": None},
                    ),
                    NewTopic("plain", 3, 1),
                ],
                validate_only=True,
            ),
        )
    ]


def test_request_with_too_many_topics_creates_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_topics, "TOPICS_PER_REQUEST_MAX", 2)

    async def scenario(world: World) -> None:
        world.controller.script["create_topics"] = made("a", "b")
        client = world.client()
        request = CreateTopicsRequest(topics=[new("a"), new("b"), new("c")], validate_only=True)
        answer = await client.ask(request, 7)
        assert [(one.name, one.error_code) for one in answer.topics] == [
            (name, ErrorCode.POLICY_VIOLATION) for name in "abc"
        ]
        assert world.controller.asked == []
        request = CreateTopicsRequest(topics=[new("a"), new("b")], validate_only=True)
        assert [one.error_code for one in (await client.ask(request, 7)).topics] == [0, 0]

    run(scenario)


@pytest.mark.parametrize("version", range(2, 8))
@in_world(run)
async def test_the_answer_in_each_version(world: World, *, version: int) -> None:
    refused = TopicOutcome("r", error=ErrorCode.INVALID_PARTITIONS, message="too few")
    world.controller.script["create_topics"] = lambda asked: [*made("t")(asked), refused]
    request = CreateTopicsRequest(topics=[new("t"), new("r", 0)], validate_only=True)
    answer = await world.client().ask(request, version)
    full = version >= 5
    config = CreatableTopicConfigs(name="retention.ms", value="5", config_source=1)
    assert answer.topics == [
        CreatableTopicResult(
            name="t",
            topic_id=topic_id("t") if version >= 7 else bytes(16),
            error_message=None,
            num_partitions=1 if full else -1,
            replication_factor=1 if full else -1,
            configs=[config] if full else [],
        ),
        CreatableTopicResult(
            name="r",
            error_code=ErrorCode.INVALID_PARTITIONS,
            error_message="too few",
            configs=[],
        ),
    ]


@in_world(run)
async def test_created_topics_are_served_before_the_answer(world: World) -> None:
    await world.brokers(1, 2)
    world.controller.script["create_topics"] = made("here", "there", partitions=2)
    client = world.client()
    client.send(CreateTopicsRequest(topics=[new("here", 2), new("there", 2)]), 7)
    await settle()
    await world.topic("here", 2)
    there = await world.topic("there", 2, leader=2, opened=False)
    await world.route("replica", (topic_id("here"), 0))
    await settle()
    assert client.received() == []
    await world.route("replica", (topic_id("here"), 1))
    for index in range(2):
        await settle()
        assert client.received() == []
        await world.apply(PartitionChanged(there, index, incarnations={2: "log"}))
    await settle()
    (answer,) = client.received()
    assert [topic.error_code for topic in answer.topics] == [0, 0]
    assert world.runtime.pending_timers() == 0


@pytest.mark.parametrize(("timeout_ms", "waited_ms"), [(500, 500), (60_000, 5_000), (0, 0)])
@in_world(run)
async def test_the_wait_for_a_created_topic_is_bounded(
    world: World, *, timeout_ms: int, waited_ms: int
) -> None:
    world.controller.script["create_topics"] = made("t")
    client = world.client()
    client.send(CreateTopicsRequest(topics=[new("t")], timeout_ms=timeout_ms), 7)
    if waited_ms:
        await world.runtime.advance(waited_ms - 1)
        assert client.received() == []
    await world.runtime.advance(1)
    (answer,) = client.received()
    assert answer.topics[0].error_code == 0


@in_world(run)
async def test_a_controller_that_does_not_answer_times_out_every_topic(world: World) -> None:
    world.controller.script["create_topics"] = never
    answer = await world.client().ask(CreateTopicsRequest(topics=[new("a"), new("b")]), 7)
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("a", ErrorCode.REQUEST_TIMED_OUT),
        ("b", ErrorCode.REQUEST_TIMED_OUT),
    ]
    assert all(topic.configs == [] for topic in answer.topics)


# ---- grow ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
@in_world(run)
async def test_create_partitions_waits_until_they_are_served(world: World, *, version: int) -> None:
    await world.brokers(1)
    await world.topic("t")
    await world.route("replica", (topic_id("t"), 0))
    refused = TopicOutcome("r", error=ErrorCode.INVALID_PARTITIONS, message="fewer")
    world.controller.script["create_partitions"] = lambda _asked: [
        TopicOutcome("t", topic_id("t"), num_partitions=2),
        refused,
    ]
    client = world.client()
    assigned = [CreatePartitionsAssignment(broker_ids=[1])]
    topics = [
        CreatePartitionsTopic(name="t", count=2, assignments=assigned),
        CreatePartitionsTopic(name="r", count=1, assignments=None),
    ]
    client.send(CreatePartitionsRequest(topics=topics, timeout_ms=1000), version)
    await settle()
    assert world.controller.asked == [
        (
            "create_partitions",
            CreatePartitions([MorePartitions("t", 2, [(1,)]), MorePartitions("r", 1)]),
        )
    ]
    assert client.received() == []
    await world.apply(PartitionCreated(topic_id("t"), 1, (1,), (1,), 1))
    await world.route("replica", (topic_id("t"), 1))
    await settle()
    (answer,) = client.received()
    assert answer.results == [
        CreatePartitionsTopicResult(name="t"),
        CreatePartitionsTopicResult(
            name="r", error_code=ErrorCode.INVALID_PARTITIONS, error_message="fewer"
        ),
    ]


# ---- delete ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
@in_world(run)
async def test_delete_by_name_is_answered_when_the_topic_is_gone_here(
    world: World, *, version: int
) -> None:
    await world.topic("t")
    world.controller.script["delete_topics"] = lambda _asked: [
        TopicOutcome("t", topic_id("t")),
        TopicOutcome("n", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message="none"),
    ]
    client = world.client()
    client.send(DeleteTopicsRequest(topic_names=["t", "n"], timeout_ms=1000), version)
    await settle()
    assert client.received() == []
    await world.apply(TopicDeleted(topic_id("t")))
    await settle()
    (answer,) = client.received()
    assert world.controller.asked == [("delete_topics", DeleteTopics(["t", "n"]))]
    assert answer.responses == [
        DeletableTopicResult(name="t"),
        DeletableTopicResult(
            name="n",
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="none" if version >= 5 else None,
        ),
    ]


@in_world(run)
async def test_delete_by_id_and_items_that_say_too_much_or_too_little(world: World) -> None:
    unknown = TopicId(b"u" * 16)
    world.controller.script["delete_topics"] = lambda _asked: [
        TopicOutcome("t", topic_id("t")),
        TopicOutcome(None, unknown, ErrorCode.UNKNOWN_TOPIC_ID, "no such id"),
    ]
    asked = [
        DeleteTopicState(topic_id=topic_id("t")),
        DeleteTopicState(name="both", topic_id=topic_id("both")),
        DeleteTopicState(),
        DeleteTopicState(topic_id=unknown),
    ]
    answer = await world.client().ask(DeleteTopicsRequest(topics=asked, timeout_ms=1000), 6)
    assert world.controller.asked == [("delete_topics", DeleteTopics([], [topic_id("t"), unknown]))]
    assert [(one.name, one.topic_id, one.error_code) for one in answer.responses] == [
        ("both", topic_id("both"), ErrorCode.INVALID_REQUEST),
        (None, bytes(16), ErrorCode.INVALID_REQUEST),
        ("t", topic_id("t"), 0),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@in_world(run)
async def test_a_topic_named_and_given_by_id_as_well_is_not_deleted(world: World) -> None:
    await world.topic("t")
    world.controller.script["delete_topics"] = lambda _asked: []
    asked = [DeleteTopicState(topic_id=topic_id("t")), DeleteTopicState(name="t")]
    answer = await world.client().ask(DeleteTopicsRequest(topics=asked, timeout_ms=1000), 6)
    assert world.controller.asked == [("delete_topics", DeleteTopics())]
    assert [(one.name, one.topic_id, one.error_code) for one in answer.responses] == [
        ("t", topic_id("t"), ErrorCode.INVALID_REQUEST)
    ]


@pytest.mark.parametrize(
    ("version", "expected"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
@in_world(run)
async def test_deletion_that_is_disabled(
    world: World, *, version: int, expected: ErrorCode
) -> None:
    world.controller.script["delete_topics"] = lambda _asked: [
        TopicOutcome("t", error=ErrorCode.TOPIC_DELETION_DISABLED, message="off")
    ]
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    answer = await world.client().ask(request, version)
    assert answer.responses[0].error_code == expected


@in_world(run)
async def test_a_deletion_that_the_controller_does_not_answer(world: World) -> None:
    world.controller.script["delete_topics"] = never
    asked = [DeleteTopicState(name="t"), DeleteTopicState(topic_id=b"i" * 16)]
    answer = await world.client().ask(DeleteTopicsRequest(topics=asked, timeout_ms=1000), 6)
    assert [(one.name, one.topic_id, one.error_code) for one in answer.responses] == [
        ("t", bytes(16), ErrorCode.REQUEST_TIMED_OUT),
        (None, b"i" * 16, ErrorCode.REQUEST_TIMED_OUT),
    ]


@in_world(run)
async def test_a_topic_whose_interceptors_would_not_work_is_not_made(world: World) -> None:
    world.controller.script["create_topics"] = made("good")
    await world.topic("good")
    await world.route("replica", (topic_id("good"), 0))
    configs = [CreatableTopicConfig(name="raylog.interceptors", value="json-schema")]
    asked = CreateTopicsRequest(topics=[new("good"), new("bad")], timeout_ms=0)
    asked.topics[1].configs = configs
    answer = await world.client().ask(asked, 5)
    outcomes = {one.name: (one.error_code, one.error_message) for one in answer.topics}
    assert outcomes["good"] == (0, None)
    assert outcomes["bad"][0] == ErrorCode.INVALID_CONFIG
    assert "a schema is needed" in (outcomes["bad"][1] or "")
    request: CreateTopics = world.controller.asked[-1][1]
    assert [one.name for one in request.topics] == ["good"]


def test_a_request_that_gives_too_many_topics_partitions_gives_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(create_partitions, "PARTITIONS_PER_REQUEST_MAX", 2)

    async def scenario(world: World) -> None:
        world.controller.script["create_partitions"] = lambda _asked: []
        for count in (2, 3):
            topics = [CreatePartitionsTopic(name=f"t{n}", count=2) for n in range(count)]
            request = CreatePartitionsRequest(topics=topics, timeout_ms=1_000)
            answer = await world.client().ask(request, 3)
            if count == 3:
                assert [(one.name, one.error_code) for one in answer.results] == [
                    (f"t{n}", ErrorCode.POLICY_VIOLATION) for n in range(count)
                ]
        assert len(world.controller.asked) == 1, "as many as there may be"

    run(scenario)


@pytest.mark.parametrize("at_once", [2, 9])
def test_the_partitions_of_one_request_are_counted_over_all_its_parts(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused does not count, nor what a topic had before."""
    monkeypatch.setattr(parts, "PART", at_once)

    def outcomes(asked: Any) -> list[TopicOutcome]:
        return [
            TopicOutcome(one.name, error=ErrorCode.INVALID_REQUEST, num_partitions=7)
            if one.name == "bad"
            else TopicOutcome(one.name, topic_id(one.name), num_partitions=5)
            for one in asked.topics
        ]

    async def scenario(world: World) -> None:
        await world.topic("old", 2)
        for method in ("create_topics", "create_partitions"):
            world.controller.script[method] = outcomes
        client = world.client()
        names = ("old", "bad", "last")
        creating = CreateTopicsRequest(topics=[new(name) for name in names], timeout_ms=0)
        client.send(creating, 7)
        await world.runtime.advance(1)
        growing = [CreatePartitionsTopic(name=name, count=5) for name in names]
        more = CreatePartitionsRequest(topics=growing, timeout_ms=0)
        client.send(more, 3)
        await world.runtime.advance(1)
        created, grown = client.received()
        assert (len(created.topics), len(grown.results)) == (3, 3)
        most = PARTITIONS_PER_REQUEST_MAX
        expected = [most, most - 5, most, most - 3] if at_once == 2 else [most, most]
        assert [asked.room for _, asked in world.controller.asked] == expected

    run(scenario)

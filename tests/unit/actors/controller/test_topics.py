"""Creating, growing and deleting topics."""

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.config import ResourceType
from raylog.actors.controller.messages import (
    NO_TOPIC,
    PARTITIONS_PER_REQUEST_MAX,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicOutcome,
)
from raylog.actors.controller.rules.placement import Ring
from raylog.actors.controller.rules.topics import METADATA_TOPIC
from raylog.actors.metadata.records import (
    ConfigChanged,
    PartitionCreated,
    TopicCreated,
    TopicDeleted,
)
from raylog.wire.errors import ErrorCode
from tests.worlds.controller.machine import Controlled


def create(world: Controlled, *topics: NewTopic, validate_only: bool = False) -> list[TopicOutcome]:
    return world.carry(world.machine.topics.create(CreateTopics(list(topics), validate_only)))


def refusal(world: Controlled, topic: NewTopic) -> tuple[ErrorCode, str | None]:
    decision = world.machine.topics.create(CreateTopics([topic]))
    assert decision.records == []
    (outcome,) = decision.response
    return outcome.error, outcome.message


def test_a_topic_is_its_record_its_settings_and_its_partitions() -> None:
    world = Controlled(brokers=1)
    asked = CreateTopics([NewTopic("t", 2, 1, configs={"retention.ms": "5"})])
    decision = world.machine.topics.create(asked)
    (outcome,) = decision.response
    assert decision.records == [
        TopicCreated(outcome.topic_id, "t"),
        ConfigChanged(ResourceType.TOPIC, "t", "retention.ms", "5"),
        PartitionCreated(outcome.topic_id, 0, (0,), (0,), 0),
        PartitionCreated(outcome.topic_id, 1, (0,), (0,), 0),
    ]
    assert (outcome.name, outcome.error, outcome.message) == ("t", ErrorCode.NONE, None)
    assert (outcome.num_partitions, outcome.replication_factor) == (2, 1)
    assert [one.value for one in outcome.configs if one.name == "retention.ms"] == ["5"]


def test_counts_that_are_not_given_come_from_the_settings() -> None:
    world = Controlled(2, {"num.partitions": "3", "default.replication.factor": "2"})
    (outcome,) = create(world, NewTopic("t"))
    assert (outcome.num_partitions, outcome.replication_factor) == (3, 2)


def test_partition_i_has_replica_j_on_broker_i_plus_j_from_a_rotating_start() -> None:
    world = Controlled(brokers=3)
    create(world, NewTopic("t", 4, 2))
    topic = world.image.topic("t")
    assert topic is not None
    placed = [partition.replicas for partition in topic.partitions]
    start = placed[0][0]
    assert placed == [((start + i) % 3, (start + i + 1) % 3) for i in range(4)]


def test_validate_only_writes_nothing() -> None:
    world = Controlled()
    decision = world.machine.topics.create(CreateTopics([NewTopic("t", 2, 1)], True))
    assert decision.records == []
    assert decision.response[0].num_partitions == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' and '..' are not allowed"),
        ("..", "'.' and '..' are not allowed"),
        ("a" * 250, "is longer than the max allowed length 249"),
        ("a b", "other than ASCII alphanumerics"),
        ("ä", "other than ASCII alphanumerics"),
        ("a\n", "other than ASCII alphanumerics"),
    ],
)
def test_names_are_kafkas(name: str, said: str) -> None:
    code, message = refusal(Controlled(), NewTopic(name, 1, 1))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert message is not None
    assert said in message


def test_a_name_may_be_249_long() -> None:
    assert create(Controlled(), NewTopic("a" * 249, 1, 1))[0].error == 0


def test_the_metadata_log_is_no_topic() -> None:
    assert refusal(Controlled(), NewTopic(METADATA_TOPIC, 1, 1)) == (
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )


def test_a_name_that_is_taken_is_refused() -> None:
    world = Controlled()
    create(world, NewTopic("t", 1, 1))
    assert refusal(world, NewTopic("t", 1, 1)) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 't' already exists.",
    )


def test_names_that_only_differ_in_dot_and_underscore_collide() -> None:
    world = Controlled()
    create(world, NewTopic("a.b_c", 1, 1))
    assert refusal(world, NewTopic("a_b.c", 1, 1)) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b.c' collides with existing topic: a.b_c",
    )
    outcomes = create(world, NewTopic("x.y", 1, 1), NewTopic("x_y", 1, 1))
    assert [outcome.error for outcome in outcomes] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_name_given_twice_is_refused_and_the_others_go_on() -> None:
    world = Controlled()
    outcomes = create(world, NewTopic("t", 1, 1), NewTopic("u", 1, 1), NewTopic("t", 2, 1))
    assert [(outcome.name, outcome.error) for outcome in outcomes] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]
    assert sorted(world.image.topic_ids) == ["u"]


@pytest.mark.parametrize("count", [0, -2])
def test_impossible_partition_counts_are_refused(count: int) -> None:
    assert refusal(Controlled(), NewTopic("t", count, 1))[0] is ErrorCode.INVALID_PARTITIONS


def test_too_many_partitions_in_a_request_are_refused() -> None:
    world = Controlled()
    most = PARTITIONS_PER_REQUEST_MAX
    assert refusal(world, NewTopic("t", most + 1, 1))[0] is ErrorCode.POLICY_VIOLATION
    outcomes = create(world, NewTopic("t", most - 1, 1), NewTopic("u", 2, 1), NewTopic("v", 1, 1))
    assert [one.error for one in outcomes] == [0, ErrorCode.POLICY_VIOLATION, 0]


def test_no_partition_is_placed_beyond_what_a_request_may_make(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Controlled()
    placed: list[int] = []
    assignments = Ring.assignments

    def counted(ring: Ring, partitions: range, factor: int) -> list[tuple[int, ...]]:
        placed.extend(partitions)
        return assignments(ring, partitions, factor)

    monkeypatch.setattr(Ring, "assignments", counted)
    create(world, *(NewTopic(f"t{at}", PARTITIONS_PER_REQUEST_MAX, 1) for at in range(50)))
    assert len(placed) == PARTITIONS_PER_REQUEST_MAX


def test_new_partitions_per_request_are_limited_over_all_topics() -> None:
    world = Controlled()
    create(world, NewTopic("t", 1, 1), NewTopic("u", 1, 1))
    more = [MorePartitions(name, PARTITIONS_PER_REQUEST_MAX) for name in ("t", "u")]
    outcomes = world.carry(world.machine.topics.create_partitions(CreatePartitions(more)))
    assert [one.error for one in outcomes] == [0, ErrorCode.POLICY_VIOLATION]


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (0, "larger than 0, or -1"),
        (-2, "larger than 0, or -1"),
        (3, "only 2 broker(s) are registered"),
    ],
)
def test_impossible_replication_factors_are_refused(factor: int, said: str) -> None:
    code, message = refusal(Controlled(brokers=2), NewTopic("t", 1, factor))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert message is not None
    assert said in message


def test_nothing_is_created_while_all_brokers_are_fenced() -> None:
    world = Controlled(brokers=1)
    world.pass_time(6_001)
    world.expire()
    assert refusal(world, NewTopic("t", 1, 1)) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "All brokers are currently fenced.",
    )


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"retention.msec": "1"}, "did you mean retention.ms?"),
        ({"retention.ms": "x"}, "Not a number of type LONG"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
    ],
)
def test_wrong_settings_are_refused(configs: dict[str, str | None], said: str) -> None:
    code, message = refusal(Controlled(), NewTopic("t", 1, 1, configs=configs))
    assert code is ErrorCode.INVALID_CONFIG
    assert message is not None
    assert said in message


def test_partitions_go_where_they_are_assigned() -> None:
    world = Controlled(brokers=3)
    asked = NewTopic("t", assignments={1: (0, 2), 0: (2, 1)})
    decision = world.machine.topics.create(CreateTopics([asked]))
    (outcome,) = decision.response
    assert decision.records[1:] == [
        PartitionCreated(outcome.topic_id, 0, (2, 1), (2, 1), 2),
        PartitionCreated(outcome.topic_id, 1, (0, 2), (0, 2), 0),
    ]


@pytest.mark.parametrize(
    ("topic", "code", "said"),
    [
        (
            NewTopic("t", replication_factor=1, assignments={0: (0,)}),
            ErrorCode.INVALID_REQUEST,
            "replication factor was not set to -1",
        ),
        (
            NewTopic("t", num_partitions=1, assignments={0: (0,)}),
            ErrorCode.INVALID_REQUEST,
            "numPartitions was not set to -1",
        ),
        (
            NewTopic("t", assignments={1: (0,)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments={0: ()}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "empty replica list",
        ),
        (
            NewTopic("t", assignments={0: (0, 0)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "broker 0 more than once",
        ),
        (
            NewTopic("t", assignments={0: (0, 9)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "broker 9, but no such broker is registered",
        ),
        (
            NewTopic("t", assignments={0: (0, 1), 1: (0,)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "have 2 replica(s)",
        ),
    ],
)
def test_impossible_assignments_are_refused(topic: NewTopic, code: ErrorCode, said: str) -> None:
    refused, message = refusal(Controlled(brokers=2), topic)
    assert refused is code
    assert message is not None
    assert said in message


def test_fenced_brokers_hold_replicas_but_are_not_in_sync() -> None:
    world = Controlled(brokers=3)
    world.pass_time(6_001, 0, 2)
    world.expire()
    world.topic("t", (1, 0), (2, 1))
    topic = world.image.topic("t")
    assert topic is not None
    assert [(one.leader, one.isr) for one in topic.partitions] == [(0, (0,)), (2, (2,))]
    create(world, NewTopic("u", 2, 3))
    placed = world.image.topic("u")
    assert placed is not None
    assert all(one.replicas[2] == 1 and 1 not in one.isr for one in placed.partitions)
    assert refusal(world, NewTopic("v", assignments={0: (1,)}))[1] == (
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in"
        " controlled shutdown."
    )


# ---- grow ------------------------------------------------------------------------------------


def test_more_partitions_follow_the_ones_there_are() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    decision = world.machine.topics.create_partitions(
        CreatePartitions([MorePartitions("t", 3, [(1, 0), (0, 1)])])
    )
    assert decision.records == [
        PartitionCreated(topic_id, 1, (1, 0), (1, 0), 1),
        PartitionCreated(topic_id, 2, (0, 1), (0, 1), 0),
    ]
    assert decision.response == [TopicOutcome("t", topic_id, num_partitions=3)]
    placed = world.machine.topics.create_partitions(CreatePartitions([MorePartitions("t", 3)]))
    assert [len(one.replicas) for one in placed.records if isinstance(one, PartitionCreated)] == [
        2,
        2,
    ]


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (MorePartitions("t", 2), ErrorCode.INVALID_PARTITIONS, "already has 2 partition(s)"),
        (MorePartitions("t", 1), ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
        (MorePartitions("u", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not host"),
        (MorePartitions("t", 20_000), ErrorCode.POLICY_VIOLATION, "Excessively large"),
        (
            MorePartitions("t", 4, [(0,)]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "only 1 assignment(s)",
        ),
        (
            MorePartitions("t", 3, [(0, 1)]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "have 1 replica(s)",
        ),
    ],
)
def test_impossible_growth_is_refused(asked: MorePartitions, code: ErrorCode, said: str) -> None:
    world = Controlled(brokers=2)
    world.topic("t", (0,), (1,))
    decision = world.machine.topics.create_partitions(CreatePartitions([asked]))
    assert decision.records == []
    assert decision.response[0].error is code
    assert said in str(decision.response[0].message)


def test_growing_twice_in_one_request_or_only_to_see_changes_nothing() -> None:
    world = Controlled()
    world.topic("t", (0,))
    more = MorePartitions("t", 2)
    twice = world.machine.topics.create_partitions(CreatePartitions([more, more]))
    assert [one.error for one in twice.response] == [ErrorCode.INVALID_REQUEST]
    seen = world.machine.topics.create_partitions(CreatePartitions([more], validate_only=True))
    assert (seen.records, seen.response[0].error) == ([], 0)


# ---- delete ----------------------------------------------------------------------------------


def test_topics_are_deleted_by_name_and_by_id() -> None:
    world = Controlled()
    by_name, by_id = world.topic("t", (0,)), world.topic("u", (0,))
    decision = world.machine.topics.delete(DeleteTopics(["t"], [by_id]))
    assert decision.records == [TopicDeleted(by_name), TopicDeleted(by_id)]
    assert decision.response == [TopicOutcome("t", by_name), TopicOutcome("u", by_id)]
    world.carry(decision)
    assert world.image.topics == {}


def test_deletions_that_name_nothing_or_one_thing_twice_are_refused() -> None:
    world = Controlled()
    topic_id = world.topic("t", (0,))
    unknown = TopicId(b"x" * 16)
    decision = world.machine.topics.delete(
        DeleteTopics(["t", "no", "two", "two"], [topic_id, unknown])
    )
    assert decision.records == [TopicDeleted(topic_id)]
    assert [(one.name, one.topic_id, one.error) for one in decision.response] == [
        ("t", topic_id, ErrorCode.NONE),
        ("no", NO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("two", NO_TOPIC, ErrorCode.INVALID_REQUEST),
        (None, topic_id, ErrorCode.INVALID_REQUEST),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_deletion_can_be_switched_off() -> None:
    world = Controlled(1, {"delete.topic.enable": "false"})
    world.topic("t", (0,))
    decision = world.machine.topics.delete(DeleteTopics(["t"]))
    assert (decision.records, decision.response[0].error) == ([], ErrorCode.TOPIC_DELETION_DISABLED)


def test_a_name_can_be_used_again_with_another_id() -> None:
    world = Controlled()
    first = world.topic("t", (0,))
    world.carry(world.machine.topics.delete(DeleteTopics(["t"])))
    assert world.topic("t", (0,)) != first

"""Required fields of ConsumerGroupHeartbeat; errors and texts as in Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.consumer_group_heartbeat import TopicPartitions
from tests.worlds.group.consumer import ConsumerWorld

_FIRST: dict[str, Any] = {
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}
_SOME = [TopicPartitions(topic_id=bytes(15) + b"\x01", partitions=[0])]


@pytest.mark.parametrize(
    ("member_id", "epoch", "changes", "text"),
    [
        ("", 0, {}, "MemberId can't be empty."),
        ("", 1, {"version": 0}, "MemberId can't be empty."),
        ("", -1, {"version": 0}, "MemberId can't be empty."),
        ("a", 0, {"instance_id": ""}, "InstanceId can't be empty."),
        ("a", 0, {"rack_id": " "}, "RackId can't be empty."),
        (
            "a",
            0,
            {"rebalance_timeout_ms": -1},
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            "a",
            0,
            {"topic_partitions": None},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            "a",
            0,
            {"topic_partitions": _SOME},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            "a",
            0,
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining.",
        ),
        ("a", -2, {}, "InstanceId can't be null."),
        ("a", -3, {}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_heartbeat_fields_are_refused(
    member_id: str, epoch: int, changes: dict[str, Any], text: str
) -> None:
    error = ConsumerWorld(t=1).refused(member_id, epoch, **{**_FIRST, **changes})
    assert (error.code, error.message) == (ErrorCode.INVALID_REQUEST, text)


def test_unsupported_assignor() -> None:
    error = ConsumerWorld(t=1).refused("a", 0, **_FIRST, server_assignor="mine")
    assert error.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert error.message == (
        "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    )


def test_before_version_1_the_broker_chooses_the_member_id() -> None:
    world = ConsumerWorld(t=1)
    answer = world.ask("", 0, version=0, **_FIRST).answer
    assert len(answer.member_id) == 22
    assert answer.member_epoch == 2
    assert world.beat(answer.member_id, 2, version=0).member_epoch == 2


def test_group_size() -> None:
    settings = GroupSettings(consumer_size_max=2, consumer_assignment_interval_ms=0)
    world = ConsumerWorld(settings, t=1)
    world.join("a", "t")
    world.join("b", "t")
    error = world.refused("c", 0, **_FIRST)
    assert error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error.message == "The consumer group has reached its maximum capacity of 2 members."
    assert world.join("a", "t").member_id == "a"


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("[a", "missing closing ]"),
        ("(a", "missing closing )"),
        ("*a", "missing argument to repetition operator"),
        ("a(?=b)", "invalid or unsupported Perl syntax"),
        ("a\\", "trailing backslash at end of expression"),
        ("a{2,1}", "invalid repeat count"),
        ("[b-a]", "invalid character class range"),
        ("a{1001}", "invalid repeat count"),
        ("a)", "regexp/syntax: internal error"),
        ("\\8", "invalid escape sequence"),
        ("a**", "invalid nested repetition operator"),
        ("[[:foo:]]", "invalid character class range"),
        ("\\pX", "invalid character class range"),
    ],
)
def test_malformed_pattern(regex: str, reason: str) -> None:
    error = ConsumerWorld(t=1).refused("a", 0, **_FIRST, subscribed_topic_regex=regex)
    assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert error.message == (
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}."
    )


def test_omitted_fields_of_a_heartbeat_are_unchanged() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t", rack_id="r", server_assignor="range", rebalance_timeout_ms=7)
    before = world.group.state.profiles["a"]
    assert world.beat("a", 2).assignment is None
    assert world.group.state.profiles["a"] == before
    assert world.world.log[-1].value is not None
    written = len(world.world.log)
    world.beat("a", 2, rack_id="s")
    assert world.group.state.profiles["a"].rack_id == "s"
    assert len(world.world.log) == written + 1  # a rack alone moves nothing
    assert world.group.state.group_epoch == 2


def test_a_full_request_is_told_all() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t")
    full = world.beat(
        "a", 2, {"t": [0, 1]}, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"]
    )
    assert world.owned(full) == {"t": [0, 1]}
    assert world.beat("a", 2, {"t": [0, 1]}).assignment is None


def test_members_without_topics_do_not_raise_the_epoch() -> None:
    world = ConsumerWorld()
    assert world.join("a").member_epoch == 1
    assert world.group.state_name() == "Stable"
    assert world.join("b").member_epoch == 1
    assert world.join("c", "nope").member_epoch == 2
    assert world.group.state_name() == "Reconciling"
    assert world.beat("a", 1).member_epoch == 2


def test_an_unsubscribed_topic_is_taken_away_at_once() -> None:
    world = ConsumerWorld(GroupSettings(consumer_assignment_interval_ms=1_000), t=2)
    world.join("a", "t")
    answer = world.beat("a", 2, subscribed_topic_names=[])
    assert (answer.member_epoch, world.owned(answer)) == (2, {})
    assert world.group.state_name() == "Assigning"
    assert world.assignments() == {"a": {"t": [0, 1]}}
    world.beat("a", 2, {})
    assert world.assignments() == {"a": {}}
    world.world.advance(1_000)
    assert world.beat("a", 2).member_epoch == 3

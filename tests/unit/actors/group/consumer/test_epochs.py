"""Fencing by member epochs, lost responses, and timers."""

from __future__ import annotations

import pytest

from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.consumer_group_heartbeat import TopicPartitions
from tests.worlds.group.consumer import ConsumerWorld

_SIZE = "The consumer group member has a {} member epoch ({}) than the one known by the group "
_REST = "coordinator ({}). The member must abandon all its partitions and rejoin."


@pytest.fixture
def pair() -> ConsumerWorld:
    """Two members, `a` about to give up t2 and t3."""
    world = ConsumerWorld(t=4)
    world.join("a", "t")
    world.join("b", "t")
    world.beat("a", 2)
    return world


def test_unknown_member(pair: ConsumerWorld) -> None:
    for epoch in (1, -1):
        error = pair.refused("x", epoch)
        assert error.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert error.message == "Member x is not a member of group g."


def test_greater_epoch(pair: ConsumerWorld) -> None:
    error = pair.refused("a", 3)
    assert error.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert error.message == (_SIZE + _REST).format("greater", 3, 2)


def test_smaller_epoch(pair: ConsumerWorld) -> None:
    error = pair.refused("a", 1)
    assert error.message == (_SIZE + _REST).format("smaller", 1, 2)


def test_the_answer_with_the_new_epoch_was_lost(pair: ConsumerWorld) -> None:
    assert pair.beat("a", 2, {"t": [0, 1]}).member_epoch == 3
    assert pair.beat("a", 2, {"t": [0, 1]}).member_epoch == 3
    assert pair.refused("a", 2).code is ErrorCode.FENCED_MEMBER_EPOCH  # owned is not told
    topic_id = pair.world.image.topic_ids["t"]
    wider = pair.ask(
        "a", 2, topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=[0, 1, 2])]
    )
    assert wider.error.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_rejoining_keeps_what_is_owned(pair: ConsumerWorld) -> None:
    answer = pair.join("a", "t")  # it owns nothing any more, so nothing is left to give up
    assert (answer.member_epoch, pair.owned(answer)) == (3, {"t": [0, 1]})
    assert pair.owned(pair.beat("b", 3)) == {"t": [2, 3]}


def test_member_that_does_not_revoke_in_time_is_removed(pair: ConsumerWorld) -> None:
    pair.world.advance(29_000)
    pair.beat("a", 2)
    pair.beat("b", 3)
    pair.world.advance(1_000)
    assert list(pair.group.state.profiles) == ["b"]
    assert pair.owned(pair.beat("b", 3)) == {"t": [0, 1, 2, 3]}


def test_giving_up_ends_the_time_limit(pair: ConsumerWorld) -> None:
    pair.beat("a", 2, {"t": [0, 1]})
    assert ("g", ("rebalance", "a")) not in pair.world.timers


def test_timers_begin_anew_after_a_load(pair: ConsumerWorld) -> None:
    pair.world.advance(29_000)
    pair.world.crash()
    pair.world.advance(29_000)
    assert pair.group.state.profiles.keys() == {"a", "b"}
    pair.world.advance(1_000)
    assert pair.group.state.profiles.keys() == {"b"}
    pair.world.advance(15_000)
    assert pair.group.is_empty()


def test_session_timeout_of_the_group() -> None:
    world = ConsumerWorld(
        GroupSettings(consumer_session_timeout_ms=100, consumer_assignment_interval_ms=0), t=1
    )
    world.join("a", "t")
    world.world.advance(99)
    world.beat("a", 2)
    world.world.advance(99)
    assert not world.group.is_empty()
    world.world.advance(1)
    assert world.group.is_empty()


def test_partitions_that_come_back_to_who_gave_them_up(pair: ConsumerWorld) -> None:
    pair.beat("b", -1)
    answer = pair.beat("a", 2, {"t": [0, 1]})
    assert (answer.member_epoch, pair.owned(answer)) == (4, {"t": [0, 1, 2, 3]})

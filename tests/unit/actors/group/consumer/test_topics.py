"""Patterns, and topics that are created, grown and deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.group.rules.consumer import ConsumerGroup, topics
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.internal.consumer_groups import ConsumerGroupRegularExpressionKey
from tests.worlds.group.consumer import ConsumerWorld


def test_a_pattern_is_resolved_after_the_join() -> None:
    world = ConsumerWorld(logs_a=1, logs_b=2, other=1)
    joined = world.join("a", subscribed_topic_regex="logs_.*")
    assert (joined.member_epoch, world.owned(joined)) == (1, {})
    world.world.advance(0)
    answer = world.beat("a", 1)
    assert (answer.member_epoch, world.owned(answer)) == (2, {"logs_a": [0], "logs_b": [0, 1]})
    assert world.describe().members[0].subscribed_topic_regex == "logs_.*"


def test_a_pattern_must_match_the_whole_name() -> None:
    world = ConsumerWorld(logs=1, mylogs=1)
    world.join("a", subscribed_topic_regex="logs")
    world.world.advance(0)
    assert world.owned(world.beat("a", 1)) == {"logs": [0]}


def test_a_pattern_that_is_known_counts_at_once() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", subscribed_topic_regex="t")
    world.world.advance(0)
    world.beat("a", 1)
    joined = world.join("b", subscribed_topic_regex="t")
    assert joined.member_epoch == 3
    world.beat("a", 2)
    world.beat("a", 2, {"t": [0]})
    assert world.owned(world.beat("b", 3)) == {"t": [1]}


def test_names_and_a_pattern_add_up() -> None:
    world = ConsumerWorld(t=1, u=1)
    joined = world.join("a", "t", subscribed_topic_regex="u")
    assert world.owned(joined) == {"t": [0]}
    world.world.advance(0)
    assert world.owned(world.beat("a", 2)) == {"t": [0], "u": [0]}


def test_the_last_to_use_a_pattern_takes_it_along() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", subscribed_topic_regex="t")
    world.join("b", subscribed_topic_regex="t")
    world.world.advance(0)
    world.beat("b", -1)
    assert world.group.state.regexes.keys() == {"t"}
    world.beat("a", 1, subscribed_topic_regex="")
    assert not world.group.state.regexes
    key = ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t")
    assert [record.value is None for record in world.world.log if record.key == key] == [
        False,
        True,
    ]


def test_each_pattern_is_looked_at_in_a_turn_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    most = 0
    resolve, timer = topics.Matching, ConsumerGroup.timer

    def seen(pattern: str, *rest: Any) -> Any:
        looks.append(pattern)
        return resolve(pattern, *rest)

    def turn(group: ConsumerGroup, *of: Any) -> None:
        nonlocal most
        before = len(looks)
        timer(group, *of)
        most = max(most, len(looks) - before)

    monkeypatch.setattr(topics, "Matching", seen)
    monkeypatch.setattr(ConsumerGroup, "timer", turn)
    world = ConsumerWorld(t1=1, t2=1, t3=1)
    for number in range(20):
        world.join(f"m{number}", subscribed_topic_regex=f"t{number}")
    world.world.advance(0)
    assert sorted(looks) == sorted(f"t{number}" for number in range(20))
    world.join("late", subscribed_topic_regex="t3|t4")
    world.world.advance(0)
    assert looks[20:] == ["t3|t4"], "the others are known"
    assert world.group.state.subscribed() == {"t1", "t2", "t3"}
    world.create_topic("t4", 1)
    world.world.advance(1_000)
    assert len(looks) == 21 + 21
    assert world.group.state.subscribed() == {"t1", "t2", "t3", "t4"}
    assert most == 1


def test_the_names_of_many_topics_are_matched_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes meanwhile is looked at afterwards, and a pattern may be dropped in between."""
    turns: list[bool] = []
    then: dict[int, Callable[[], object]] = {}
    take_turn, timer = topics.Matching.take_turn, ConsumerGroup.timer

    def taking(matching: topics.Matching) -> bool:
        turns.append(take_turn(matching))
        return turns[-1]

    def turn(group: ConsumerGroup, *of: Any) -> None:
        timer(group, *of)
        then.pop(len(turns), lambda: None)()

    monkeypatch.setattr(topics, "STEPS_MAX", 20_000)
    monkeypatch.setattr(topics.Matching, "take_turn", taking)
    monkeypatch.setattr(ConsumerGroup, "timer", turn)
    world = ConsumerWorld(other=1)
    for number in range(30):
        world.create_topic(f"t{number}", 1)
    world.join("a", subscribed_topic_regex="t.*")
    then[2] = lambda: world.create_topic("t99", 1)
    world.world.advance(0)
    assert turns == [False] * 5 + [True], "six names have room in a turn"
    names = {f"t{number}" for number in range(30)}
    assert world.group.state.subscribed() == names
    world.world.advance(1_000)
    assert world.group.state.subscribed() == names | {"t99"}
    world.join("b", subscribed_topic_regex="o.*")
    turns.clear()
    then[2] = lambda: world.beat("b", -1)
    world.world.advance(1_000)
    assert turns == [False] * 2
    assert world.group.state.regexes.keys() == {"t.*"}


def test_a_new_topic_that_matches_is_given_out() -> None:
    world = ConsumerWorld(t1=1)
    world.join("a", subscribed_topic_regex="t.")
    world.world.advance(0)
    world.beat("a", 1)
    world.create_topic("t2", 1)
    assert world.owned(world.beat("a", 2)) is None  # all topics are not looked at that often
    world.world.advance(1_000)
    assert world.owned(world.beat("a", 2)) == {"t1": [0], "t2": [0]}


def test_a_topic_that_does_not_exist_yet() -> None:
    world = ConsumerWorld()
    assert world.owned(world.join("a", "t")) == {}
    world.create_topic("t", 2)
    answer = world.beat("a", 2)
    assert (answer.member_epoch, world.owned(answer)) == (3, {"t": [0, 1]})


def test_a_topic_that_grows_and_goes() -> None:
    world = ConsumerWorld(t=1, u=1)
    world.join("a", "t", "u")
    world.grow_topic("t", 3)
    assert world.owned(world.beat("a", 2)) == {"t": [0, 1, 2], "u": [0]}
    topic_id = world.world.image.topic_ids["t"]
    world.delete_topic("t")
    answer = world.beat("a", 3)
    assert answer.assignment is not None
    assert [one.topic_id for one in answer.assignment.topic_partitions] == [
        world.world.image.topic_ids["u"]
    ]
    assert world.assignments() == {"a": {"u": [0]}}
    assert topic_id in world.group.state.holding("a").revoking
    assert world.beat("a", 3, {"u": [0]}).member_epoch == 4


def test_other_topics_do_not_matter() -> None:
    world = ConsumerWorld(t=1)
    world.join("a", "t")
    world.create_topic("u", 1)
    assert world.beat("a", 2).member_epoch == 2
    assert world.group.state.group_epoch == 2


def test_after_a_load_changes_that_were_missed_are_seen() -> None:
    world = ConsumerWorld(t=1)
    world.join("a", "t")
    world.world.groups.clear()
    world.grow_topic("t", 2)
    world.world.crash()
    assert world.owned(world.beat("a", 2)) == {"t": [0, 1]}


def test_join_within_the_assignment_interval_is_assigned_at_its_end() -> None:
    world = ConsumerWorld(GroupSettings(), t=2)
    world.join("a", "t")
    joined = world.join("b", "t")
    assert (joined.member_epoch, world.owned(joined)) == (2, {})
    assert world.group.state_name() == "Assigning"
    world.world.advance(999)
    assert world.beat("b", 2).member_epoch == 2
    world.world.advance(1)
    assert world.beat("b", 2).member_epoch == 3
    assert world.owned(world.beat("a", 2)) == {"t": [0]}
    assert len(world.assigning.names) == 2


def test_subscribes_considers_names_and_patterns() -> None:
    world = ConsumerWorld(t=1, u=1)
    world.join("a", "t", subscribed_topic_regex="u")
    world.world.advance(0)
    group = world.group
    assert [group.subscribes(name) for name in ("t", "u", "v")] == [True, True, False]


def test_a_clock_that_went_back_keeps_nobody_waiting() -> None:
    world = ConsumerWorld(GroupSettings(), t=2)
    world.join("a", "t")
    world.world.now_ms -= 3_600_000
    joined = world.join("b", "t")
    assert joined.member_epoch == 3

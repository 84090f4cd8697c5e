"""Plans of moves: balanced, with few moves, across racks; and as files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from raylog.cli.failures import CommandFailed
from raylog.cli.reassignment import (
    Plan,
    ThrottledMoves,
    arrived,
    moves_of,
    plan_document,
    plan_moves,
    read_plan,
    throttled_replicas,
)
from raylog.cli.replica_options import parse_assignment, parse_brokers, select
from raylog.client import PartitionReplicas, Reassignment, TopicPartition

NO_RACKS: dict[int, str | None] = dict.fromkeys(range(3))


def held(*replicas: tuple[int, ...], topic: str = "t") -> dict[TopicPartition, PartitionReplicas]:
    return {
        TopicPartition(topic, index): PartitionReplicas(topic, index, one[0], 0, one, one)
        for index, one in enumerate(replicas)
    }


def placed(plan: Plan) -> list[tuple[int, ...]]:
    return [plan[key] for key in sorted(plan)]


def test_moving_replicas_count_at_their_target() -> None:
    current = held((2, 0, 1), (1, 2))
    first, second = sorted(current)
    moving = {first: Reassignment([2, 0, 1], adding=[2], removing=[0, 1])}
    settled = arrived(current, moving)
    assert {key: one.replicas for key, one in settled.items()} == {first: [2], second: (1, 2)}
    assert plan_moves({first: settled[first]}, {2: None}) == {first: (2,)}


def test_even_layout_is_unchanged() -> None:
    current = held((0, 1), (1, 2), (2, 0))
    plan = plan_moves(current, NO_RACKS)
    assert placed(plan) == [(0, 1), (1, 2), (2, 0)]
    assert moves_of(plan, current) == {}


def test_a_new_broker_gets_its_share_and_no_more_moves() -> None:
    current = held((0,), (1,), (0,), (1,), (0,), (1,))
    plan = plan_moves(current, NO_RACKS)
    assert Counter(replicas[0] for replicas in plan.values()) == {0: 2, 1: 2, 2: 2}
    assert len(moves_of(plan, current)) == 2


def test_kept_replicas_leave_room_for_moved_ones() -> None:
    """Brokers 0 and 1 have their share by pairs, and each partition can use broker 2 only once."""
    plan = plan_moves(held(*[(0, 1)] * 20, *[(7, 8)] * 10), NO_RACKS, 2)
    assert Counter(broker for replicas in plan.values() for broker in replicas) == {
        0: 20,
        1: 20,
        2: 20,
    }


def test_a_broker_that_goes_is_emptied() -> None:
    current = held((0, 1, 2), (1, 2, 3), (2, 3, 0), (3, 0, 1))
    plan = plan_moves(current, dict.fromkeys([0, 1, 2]))
    assert {broker for replicas in plan.values() for broker in replicas} == {0, 1, 2}
    assert all(len({*replicas}) == 3 for replicas in plan.values())


def test_more_and_fewer_copies() -> None:
    current = held((0,), (0,), (0,))
    assert placed(plan_moves(current, NO_RACKS, 3)) == [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    fewer = plan_moves(held((0, 1, 2), (0, 1, 2), (0, 1, 2)), NO_RACKS, 1)
    assert sorted(placed(fewer)) == [(0,), (1,), (2,)]


def test_copies_go_to_different_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    plan = plan_moves(held(*[(0,)] * 8), racks, 2)
    assert all(len({racks[broker] for broker in replicas}) == 2 for replicas in plan.values())


def test_too_few_brokers() -> None:
    with pytest.raises(CommandFailed, match="4 replicas need 4 brokers, found 3"):
        plan_moves(held((0,)), NO_RACKS, 4)


@given(
    brokers=some.integers(1, 6),
    copies=some.integers(1, 4),
    current=some.lists(
        some.lists(some.integers(0, 8), min_size=1, max_size=4, unique=True).map(tuple),
        min_size=1,
        max_size=30,
    ),
)
def test_any_plan_is_valid_and_even(
    brokers: int, copies: int, current: list[tuple[int, ...]]
) -> None:
    copies = min(copies, brokers)
    plan = plan_moves(held(*current), dict.fromkeys(range(brokers)), copies)
    assert len(plan) == len(current)
    for replicas in plan.values():
        assert len(replicas) == len({*replicas}) == copies
        assert all(0 <= broker < brokers for broker in replicas)
    loads = Counter(broker for replicas in plan.values() for broker in replicas)
    counts = [loads[broker] for broker in range(brokers)]
    assert max(counts) - min(counts) <= 1
    assert plan == plan_moves(held(*current), dict.fromkeys(range(brokers)), copies)


def test_a_plan_and_its_file(tmp_path: Path) -> None:
    plan = {TopicPartition("t", 0): (1, 2), TopicPartition("u", 3): (0,)}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_document(plan)))
    assert read_plan(path) == plan


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nonsense", "is not a plan"),
        ("[]", "is not a plan"),
        ('{"partitions": [{"topic": "t"}]}', "is not a plan"),
        ('{"partitions": []}', "names no partition"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "names a partition twice",
        ),
    ],
)
def test_files_that_are_no_plans(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(CommandFailed, match=expected):
        read_plan(path)


def test_brokers_and_partitions_on_the_command_line() -> None:
    assert parse_brokers("0, 1,2", "--brokers") == [0, 1, 2]
    assert parse_assignment("0:1,2:0") == {0: [0, 1], 1: [2, 0]}
    for text in ("", "a", "1,1", "1,-2"):
        with pytest.raises(CommandFailed, match="--brokers"):
            parse_brokers(text, "--brokers")


def test_partitions_are_selected_by_name_and_number() -> None:
    known = {**held((0,), (1,), (2,)), **held((0,), topic="u")}
    assert list(select(["t:2,0", "u"], known)) == [
        TopicPartition("t", 2),
        TopicPartition("t", 0),
        TopicPartition("u", 0),
    ]
    with pytest.raises(CommandFailed, match="there is no partition t-7"):
        select(["t:7"], known)


def test_throttles_name_who_is_copied_from_and_to_as_kafkas_tool_does() -> None:
    current = held((0, 1), (1, 2), (2, 3))
    first, second, third = sorted(current)
    plan: Plan = {first: (1, 4), second: (2, 1), third: (3, 5)}
    adding = {third: [3]}
    assert throttled_replicas(plan, current, adding) == ThrottledMoves(
        {"t": "0:0,0:1,2:2"}, {"t": "0:4,2:3,2:5"}, [0, 1, 2, 3, 4, 5]
    )


def test_nothing_is_throttled_where_nothing_is_copied() -> None:
    current = held((0, 1, 2))
    plan: Plan = dict.fromkeys(current, (2, 1))
    assert throttled_replicas(plan, current, {}) == ThrottledMoves({}, {}, [])

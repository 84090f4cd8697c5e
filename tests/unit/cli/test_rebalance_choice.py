"""Which brokers `raylog rebalance` balances, and which of its moves may begin."""

from __future__ import annotations

from collections import Counter
from typing import cast

import pytest

from raylog.cli import move_throttles
from raylog.cli.failures import CommandFailed
from raylog.cli.layouts import Surveyed
from raylog.cli.moving import PER_BROKER_MAX, Moves
from raylog.cli.reassignment import Plan
from raylog.cli.rebalance import _chosen, _fixed, _rebalance
from raylog.client import BlockingClient, PartitionReplicas, Reassignment, TopicPartition
from raylog.client.admin.topics import BrokerView
from raylog.client.cluster import ClusterView, TopicView

NOBODY = cast("BlockingClient", None)
"""What is tested here asks no broker."""


def surveyed(
    *held: tuple[int, ...],
    fenced: tuple[int, ...] = (),
    moving: dict[TopicPartition, Reassignment] | None = None,
) -> Surveyed:
    """Partitions of one topic on four brokers."""
    brokers = [BrokerView(one, "h", 9092, None, one in fenced) for one in range(4)]
    parts = {
        TopicPartition("t", index): PartitionReplicas("t", index, one[0], 0, one, one)
        for index, one in enumerate(held)
    }
    return Surveyed(brokers, parts, moving or {}, dict.fromkeys(parts, 100))


def test_a_silent_broker_that_holds_something_is_named() -> None:
    found = surveyed((0, 1), (2, 1), fenced=(2,))
    with pytest.raises(
        CommandFailed, match="broker 2 holds replicas but does not answer"
    ) as refused:
        _chosen(found, None)
    assert "--brokers 0,1,3" in str(refused.value.failure.hint)
    assert _chosen(found, "0,1,3") == [0, 1, 3]
    with pytest.raises(CommandFailed, match="expected live brokers"):
        _chosen(found, "0,2")


def test_a_silent_broker_that_holds_nothing_gets_nothing() -> None:
    assert _chosen(surveyed((0, 1), fenced=(3,)), None) == [0, 1, 2]


def test_a_broker_that_is_being_drained_gets_nothing() -> None:
    moving = {TopicPartition("t", 0): Reassignment([2, 0, 1], adding=[2], removing=[0])}
    found = surveyed((2, 1), (0, 1), moving=moving)
    assert _chosen(found, None) == [1, 2, 3]
    assert _fixed(found, None, None) == {TopicPartition("t", 0)}


def test_topics_are_chosen_by_pattern() -> None:
    found = surveyed((0,), (1,))
    assert _fixed(found, ["t"], None) == set()
    assert _fixed(found, None, ["t*"]) == {*found.partitions}
    with pytest.raises(CommandFailed, match="no topic matches 'T'"):
        _fixed(found, ["T"], None)


def test_a_broker_takes_part_in_a_few_moves_at_once() -> None:
    found = surveyed(*[(0,)] * 10, *[(1,)] * 10)
    plan: Plan = {
        key: (2,) if index < 10 else (3,) for index, key in enumerate(sorted(found.partitions))
    }
    moves = Moves(NOBODY, plan, found.partitions, found.sizes)
    busy = Counter(plan[key][0] for key in moves._next({}))
    assert busy == {2: PER_BROKER_MAX, 3: PER_BROKER_MAX}
    first = moves.waiting[0]
    under_way = {first: Reassignment([0, 2], adding=[2], removing=[0])}
    assert len(moves._next(under_way)) == 2 * PER_BROKER_MAX - 1


def test_another_order_of_replicas_copies_nothing_and_begins_at_once() -> None:
    found = surveyed(*[(0, 1)] * 40)
    plan: Plan = dict.fromkeys(found.partitions, (1, 0))
    moves = Moves(NOBODY, plan, found.partitions, found.sizes)
    assert len(moves._next({})) == 40
    assert moves.describe() == "0 of 40 partitions moved, 0 B of 0 B copied"


@pytest.mark.parametrize("still_move", [False, True])
def test_throttles_end_with_moves_that_fail(
    monkeypatch: pytest.MonkeyPatch, still_move: bool
) -> None:
    removed: list[list[str]] = []

    class Client(BlockingClient):
        def __init__(self) -> None:
            """Of no broker."""

        def metadata(self, topics: object = None) -> ClusterView:
            return ClusterView(topics={"t": TopicView("t", bytes(16))})

        def list_reassignments(
            self, partitions: object = None
        ) -> dict[TopicPartition, Reassignment]:
            move = Reassignment([0, 1], adding=[1], removing=[0])
            return {TopicPartition("u", 0): move} if still_move else {}

    def run(moves: Moves) -> None:
        raise CommandFailed("its topic was deleted")

    monkeypatch.setattr(Moves, "run", run)
    monkeypatch.setattr(move_throttles, "throttled_brokers", lambda _: {0: 1_000})
    monkeypatch.setattr(
        move_throttles, "remove_throttles", lambda _, topics: removed.append([*topics])
    )
    found = surveyed((0, 1))
    plan: Plan = {TopicPartition("t", 0): (2, 1)}
    with pytest.raises(CommandFailed, match="its topic was deleted"):
        _rebalance(Client(), found, plan, None, yes=True, as_json=False)
    assert removed == ([] if still_move else [["t"]])

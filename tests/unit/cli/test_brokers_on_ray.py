"""`raylog brokers replace`: refused where nobody else is known to hold what is committed."""

from __future__ import annotations

import pytest

from raylog.actors.metadata.records import BrokerWanted
from raylog.cli.brokers_on_ray import _common, _require_copies
from raylog.cli.failures import CommandFailed
from raylog.client import PartitionReplicas


def partition(isr: list[int], elr: list[int] | None = None, number: int = 0) -> PartitionReplicas:
    return PartitionReplicas("t", number, -1, 3, [1, 2], isr, [], elr)


def test_what_others_hold_may_be_replaced() -> None:
    _require_copies(1, [partition([2]), partition([1, 2]), partition([], [2])])
    _require_copies(3, [partition([])])


@pytest.mark.parametrize("last", [partition([1]), partition([], [1]), partition([])])
def test_the_last_eligible_copy_is_kept(last: PartitionReplicas) -> None:
    with pytest.raises(CommandFailed, match="no other broker is known to hold all of t:0"):
        _require_copies(1, [partition([2]), last])


def test_of_many_partitions_some_are_named() -> None:
    with pytest.raises(CommandFailed, match="t:0, t:1, t:2 and 2 more"):
        _require_copies(1, [partition([1], number=number) for number in range(5)])


def test_a_new_broker_takes_what_is_not_anothers_alone() -> None:
    settings = {
        "listeners": "PLAINTEXT://h:1",
        "advertised.listeners": "PLAINTEXT://i:1",
        "broker.rack": "a",
        "num.partitions": "3",
    }
    assert _common(BrokerWanted(0, {}, "/d", settings, 1, 1)) == {"num.partitions": "3"}

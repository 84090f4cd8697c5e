"""Named tuples that are not equal across classes."""

import pickle
from typing import NamedTuple

from raylog.actors.message import distinct
from raylog.actors.metadata.records import BrokerFenced, BrokerUnfenced


@distinct
class Point(NamedTuple):
    """An example."""

    x: int
    y: int = 0


def test_equal_values_of_one_class_are_equal_and_of_two_are_not() -> None:
    assert Point(1) == Point(1, 0)
    assert not (Point(1) != Point(1))  # noqa: SIM202 - the operator itself is tested
    assert Point(1) != Point(2)
    fenced: object = BrokerFenced(0, 1)
    assert fenced != BrokerUnfenced(0, 1)
    assert Point(1, 0) != (1, 0)
    assert len({Point(1), Point(1, 0), BrokerFenced(1, 0), BrokerUnfenced(1, 0)}) == 3


def test_it_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(BrokerFenced(0, 1))) == BrokerFenced(0, 1)

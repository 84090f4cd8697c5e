"""Answers of which there is much for one group alone: made in turns, with others in between.

The shard notes at once what the answer will tell, so that it is of one moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InTurns:
    """A request about one group that the shard answers with a Telling.

    DescribeGroups, ConsumerGroupDescribe, or OffsetFetch of all offsets.
    """

    request: Any


@dataclass(slots=True)
class Telling(Generic[R]):
    """An answer that is not complete yet."""

    response: R
    rest: Iterator[int]
    """The steps that complete it; each yields how many items it was about. May raise KafkaError."""

    def whole(self) -> R:
        """The answer, completed at once."""
        deque(self.rest, maxlen=0)
        return self.response

    def take_turn(self, most: int) -> bool:
        """Take steps about so many items; whether these were all."""
        for items in self.rest:
            most -= items
            if most <= 0:
                return False
        return True


def adding(items: Iterable[T], into: list[T]) -> Iterator[int]:
    """Steps that add all items to a list."""
    for item in items:
        into.append(item)
        yield 1

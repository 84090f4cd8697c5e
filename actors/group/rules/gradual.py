"""Large responses about a single group: built in turns, with other requests in between.

The shard copies the contents at once, so that the response is a consistent snapshot.
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
    """A request about one group that the shard answers with a GradualResponse.

    DescribeGroups, ConsumerGroupDescribe, or OffsetFetch for all offsets.
    """

    request: Any


@dataclass(slots=True)
class GradualResponse(Generic[R]):
    """A response that is still being built."""

    response: R
    rest: Iterator[int]
    """The steps that complete it; each yields how many items it handled and may raise
    KafkaError."""

    def whole(self) -> R:
        """Complete the response at once, and return it."""
        deque(self.rest, maxlen=0)
        return self.response

    def take_turn(self, most: int) -> bool:
        """Run steps for about this many items; return whether the response is complete."""
        for items in self.rest:
            most -= items
            if most <= 0:
                return False
        return True


def adding(items: Iterable[T], into: list[T]) -> Iterator[int]:
    """Yield steps that add all items to a list."""
    for item in items:
        into.append(item)
        yield 1

"""One answer from several: of requests about ids of different shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Together:
    """Waits for `count` parts; `done` gets them in the order of their places."""

    def __init__(self, count: int, done: Callable[[list[Any]], None]) -> None:
        self._parts: list[Any] = [None] * count
        self._left = count
        self._done = done
        if not count:
            done([])

    def part(self, place: int) -> Callable[[Any], None]:
        """What takes the answer that belongs there."""

        def answered(answer: Any) -> None:
            self._parts[place] = answer
            self._left -= 1
            if not self._left:
                self._done(self._parts)

        return answered

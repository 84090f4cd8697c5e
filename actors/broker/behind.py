"""Partitions that are yet to be compared with the metadata: some in each turn of the event loop.

A topic may come, or go, with 10,000 partitions, and a start finds all that a broker has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raylog.actors.broker.effects import Effect, GoOn
from raylog.actors.ports import PartitionKey

RECONCILED_AT_ONCE = 500
"""About 10 ms."""


class Behind:
    """Keys in the order in which they were added, each once."""

    def __init__(self) -> None:
        self._keys: dict[PartitionKey, None] = {}
        self._goes_on = False
        """Whether the shell was told to come again."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """More of them."""
        self._keys.update(dict.fromkeys(keys))

    def some(self) -> Iterator[PartitionKey]:
        """As many as are for one turn, each taken off."""
        for _ in range(min(len(self._keys), RECONCILED_AT_ONCE)):
            yield self._taken()

    def all(self) -> Iterator[PartitionKey]:
        """All, each taken off."""
        while self._keys:
            yield self._taken()

    def _taken(self) -> PartitionKey:
        key = next(iter(self._keys))
        del self._keys[key]
        return key

    def rest(self) -> list[Effect]:
        """Have the shell come again if some are left, unless it was told so already."""
        if not self._keys or self._goes_on:
            return []
        self._goes_on = True
        return [GoOn()]

    def came(self) -> None:
        """The shell is here again."""
        self._goes_on = False

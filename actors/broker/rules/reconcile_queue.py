"""Queue of partitions still to be compared with the metadata, some per turn of the event loop.

A topic may be created or deleted with 10,000 partitions, and a start compares all of a broker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raylog.actors.broker.rules.effects import Effect, GoOn
from raylog.actors.common_messages import PartitionKey

RECONCILED_AT_ONCE = 500
"""Takes about 10 ms."""


class ReconcileQueue:
    """A queue of partitions, each at most once."""

    def __init__(self) -> None:
        self._keys: dict[PartitionKey, None] = {}
        self._goes_on = False
        """Whether GoOn was returned and the shell has not called since."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """Queue partitions."""
        self._keys.update(dict.fromkeys(keys))

    def some(self) -> Iterator[PartitionKey]:
        """Take as many as one turn may handle."""
        for _ in range(min(len(self._keys), RECONCILED_AT_ONCE)):
            yield self._taken()

    def all(self) -> Iterator[PartitionKey]:
        """Take all."""
        while self._keys:
            yield self._taken()

    def _taken(self) -> PartitionKey:
        key = next(iter(self._keys))
        del self._keys[key]
        return key

    def rest(self) -> list[Effect]:
        """Return GoOn if some are left and none has been returned since the last `came`."""
        if not self._keys or self._goes_on:
            return []
        self._goes_on = True
        return [GoOn()]

    def came(self) -> None:
        """Record that the shell has called again."""
        self._goes_on = False

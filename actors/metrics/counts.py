"""Counters and histograms for hot paths: plain integers, updated on one event loop.

They have no names or labels; those are added when metrics are collected (`samples`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

C = TypeVar("C")
OTHERS = "(others)"
"""The label value for everything beyond a limit. No topic or group can have this name."""


class Histogram:
    """A histogram: counts per bucket and the sum of the values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Per bucket, not cumulative; the last is for values above all bounds."""
        self.total = 0.0
        """The sum of all values."""

    def observe(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Bounded(Generic[C]):
    """Counts by a name that clients choose: the first `most` have their own, others share one.

    A name keeps its own counts until it is forgotten, so its series never jump.
    """

    def __init__(self, make: Callable[[], C], most: int) -> None:
        self._make = make
        self._most = most
        self._own: dict[str, C] = {}
        self._others: C | None = None

    def of(self, name: str) -> C:
        """Return the counts for a name."""
        own = self._own.get(name)
        if own is not None:
            return own
        if len(self._own) < self._most:
            own = self._own[name] = self._make()
            return own
        if self._others is None:
            self._others = self._make()
        return self._others

    def __contains__(self, name: str) -> bool:
        """Whether a name has its own counts."""
        return name in self._own

    def forget(self, name: str) -> None:
        """Remove a name, so that another can have its place."""
        self._own.pop(name, None)

    def items(self) -> Iterator[tuple[str, C]]:
        """Yield names and counts, OTHERS last."""
        yield from self._own.items()
        if self._others is not None:
            yield OTHERS, self._others

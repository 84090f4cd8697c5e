"""Sends large changes to the controller in parts, so that none takes long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
PART = 500
"""Items of one part."""


async def in_parts(
    items: Sequence[T],
    ask: Callable[[list[T]], Awaitable[list[R]]],
    key: Callable[[T], Hashable] | None = None,
) -> list[R]:
    """Return the outcomes of all parts, in order.

    Items with the same `key` are sent together, because duplicates must be refused.
    """
    outcomes: list[R] = []
    for part in _parts(items, key):
        outcomes += await ask(part)
    return outcomes


def _parts(items: Sequence[T], key: Callable[[T], Hashable] | None) -> Iterator[list[T]]:
    if len(items) <= PART or key is None:
        for start in range(0, max(len(items), 1), PART):
            yield list(items[start : start + PART])
        return
    same: dict[Hashable, list[T]] = {}
    for item in items:
        same.setdefault(key(item), []).append(item)
    part: list[T] = []
    for group in same.values():
        part += group
        if len(part) >= PART:
            yield part
            part = []
    if part:
        yield part

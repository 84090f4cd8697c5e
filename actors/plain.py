"""Plain data as named tuples: their classes are made five times faster than frozen dataclasses.

An embedded broker starts within 100 ms, and the dozens of record and message classes that it needs
would take most of that.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound=tuple[object, ...])


def distinct(kind: type[T]) -> type[T]:
    """Make a named tuple unequal to one of another class that holds the same values."""

    def equal(this: T, other: object) -> bool:
        return type(other) is kind and tuple.__eq__(this, other)

    def unequal(this: T, other: object) -> bool:
        return not equal(this, other)

    for name, method in (("__eq__", equal), ("__ne__", unequal), ("__hash__", tuple.__hash__)):
        setattr(kind, name, method)
    return kind

"""Counts the elements of all arrays of a message, which determine the time to encode it."""

from __future__ import annotations

from typing import Any, NamedTuple

from raylog.wire.schema import Array, is_struct, layout_of


class _Inner(NamedTuple):
    """A field that has elements, or a struct that may contain some."""

    name: str
    is_array: bool
    goes_deeper: bool
    """Whether its elements have arrays."""


_inner: dict[type, tuple[_Inner, ...]] = {}


def _inner_of(cls: type) -> tuple[_Inner, ...]:
    known = _inner.get(cls)
    if known is not None:
        return known
    found = []
    for field in layout_of(cls).fields:
        is_array = isinstance(field.kind, Array)
        kind = field.kind.element if isinstance(field.kind, Array) else field.kind
        goes_deeper = isinstance(kind, type) and is_struct(kind) and bool(_inner_of(kind))
        if is_array or goes_deeper:
            found.append(_Inner(field.name, is_array, goes_deeper))
    return _inner.setdefault(cls, tuple(found))


def has_more_elements(message: object, most: int) -> bool:
    """Whether the arrays of a message have more than `most` elements together."""
    left = most
    unseen: list[Any] = [message]
    while unseen:
        one = unseen.pop()
        for name, is_array, goes_deeper in _inner_of(type(one)):
            value = getattr(one, name)
            if not value:
                continue
            if is_array:
                left -= len(value)
                if left < 0:
                    return True
            if goes_deeper:
                unseen.extend(value if is_array else (value,))
    return False

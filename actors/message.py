"""Messages between actors, and how those from other builds are decoded.

Most are named tuples, whose classes are created five times faster than frozen dataclasses: an
embedded broker starts within 100 ms, and the dozens of record and message classes that it needs
would take most of that.

A message is sent to another process as the values of its fields, in order. Fields are only ever
added at the end, with a default. So a peer of an older build sends fewer values, and the other
fields get their defaults; a newer one sends more, and those are ignored (`taken`).
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from raylog.wire.errors import InvalidRequest, UnsupportedVersion

T = TypeVar("T", bound=tuple[object, ...])
M = TypeVar("M")
K = TypeVar("K", bound=Callable[..., Any])
MESSAGES: list[type] = []
"""Every message class imported so far."""
USUAL_MAX = 10_000

_Make = Callable[[Any, Any], Any]
"""Makes an object from its class and the values of its fields."""
_usual: dict[tuple[type, ...], _Make] = {}
"""How to make an object, by its class and the types of values known to be valid for its fields."""
_layouts: dict[type, tuple[_Field, ...]] = {}


class _Field(NamedTuple):
    name: str
    allowed: tuple[type, ...]
    expected: str
    """`allowed`, for error messages."""
    default: Callable[[], object] | None
    """None: the field is required, since the oldest build has it too."""


FIRST_PLACES = {
    "raylog.actors.broker.messages": "raylog.actors.broker.api",
    "raylog.actors.common_messages": "raylog.actors.ports",
    "raylog.actors.config.keys": "raylog.actors.config_keys",
    "raylog.actors.controller.messages": "raylog.actors.controller.api",
    "raylog.actors.message": "raylog.actors.plain",
    "raylog.actors.metadata.entries": "raylog.actors.metadata.log",
    "raylog.actors.places": "raylog.actors.runtime.base",
    "raylog.actors.replica.messages": "raylog.actors.replica.api",
    "raylog.actors.transaction.messages": "raylog.actors.transaction.api",
}
"""Modules of messages to those that first had them, under which other builds know their classes."""
_STILL_THERE = {"raylog.actors.runtime.base"}
"""Modules that still contain other things: they import the classes that moved."""
PRESENT_PLACES = {first: now for now, first in FIRST_PLACES.items() if first not in _STILL_THERE}


def keeps_place(what: K) -> K:
    """Let a class or function that has moved be pickled under the module that first had it."""
    now = what.__module__
    first = FIRST_PLACES.get(now)
    if first is not None:
        if first not in _STILL_THERE:
            sys.modules.setdefault(first, sys.modules[now])
        what.__module__ = first
    return what


def distinct(kind: type[T]) -> type[T]:
    """Make a named tuple class unequal to other classes with the same values."""

    def equal(this: T, other: object) -> bool:
        return type(other) is kind and tuple.__eq__(this, other)

    def unequal(this: T, other: object) -> bool:
        return not equal(this, other)

    for name, method in (("__eq__", equal), ("__ne__", unequal), ("__hash__", tuple.__hash__)):
        setattr(kind, name, method)
    return message(kind)


def message(kind: type[M]) -> type[M]:
    """Make a named tuple or dataclass a message, which `taken` rebuilds when it is unpickled."""
    if issubclass(kind, tuple):

        def reduced(this: Any) -> tuple[object, ...]:
            return taken, (kind, tuple(this))
    else:
        names = tuple(one.name for one in dataclasses.fields(kind))  # type: ignore[arg-type]  # mypy: any class

        def reduced(this: Any) -> tuple[object, ...]:
            return taken, (kind, tuple(getattr(this, name) for name in names))

    keeps_place(kind)
    kind.__reduce__ = reduced  # type: ignore[assignment]  # what pickle calls
    MESSAGES.append(kind)
    return kind


def taken(kind: type[M], values: Any) -> M:
    """Return the message that a peer sent as the values of its fields.

    Raises UnsupportedVersion if a required field is missing, and InvalidRequest if a value has the
    wrong type.
    """
    try:
        make = _usual[(kind, *map(type, values))]
    except (KeyError, TypeError):
        values = _checked(kind, values)
        make = _maker(kind)
    made: M = make(kind, values)
    return made


keeps_place(taken)


def each_taken(kind: type[T], many: Iterable[Any]) -> list[T]:
    """Return the messages of a request or response that has one for each partition.

    Only for named tuples, and as fast as their own constructor: the types of values are checked
    only if their number is another build's. Raises as `taken`.
    """
    width = len(kind._fields)  # type: ignore[attr-defined]  # named tuple
    new = tuple.__new__
    return [new(kind, one) if len(one) == width else taken(kind, one) for one in many]


def first_values(values: Sequence[Any], count: int) -> Sequence[Any]:
    """Return the first values of a message without a class; raises UnsupportedVersion if too few.

    For messages sent per partition, or seldom, with few values that never had a default.
    """
    if not isinstance(values, list | tuple) or len(values) < count:
        raise UnsupportedVersion(f"expected {count} values, found {_short(values)}")
    return values[:count]


def _checked(kind: type, values: Any) -> Sequence[Any]:
    if not isinstance(values, list | tuple):
        raise InvalidRequest(f"{kind.__name__}: expected its fields, found {_short(values)}")
    layout = _layout(kind)
    known = [*values[: len(layout)]]
    for one in layout[len(known) :]:
        if one.default is None:
            raise UnsupportedVersion(
                f"{kind.__name__} has no {one.name}: it comes from a build that is too old"
            )
        known.append(one.default())
    for one, value in zip(layout, known, strict=True):
        if not isinstance(value, one.allowed):
            raise InvalidRequest(
                f"{one.name} of {kind.__name__}: expected {one.expected}, found {_short(value)}"
            )
    if len(values) == len(layout) and len(_usual) < USUAL_MAX:
        _usual[(kind, *map(type, values))] = _maker(kind)
    return known


def _maker(kind: type) -> _Make:
    return tuple.__new__ if issubclass(kind, tuple) else _called


def _called(kind: Callable[..., Any], values: Sequence[Any]) -> Any:
    return kind(*values)


def _short(value: object) -> str:
    text = ascii(value) if isinstance(value, int | str | bytes | float | types.NoneType) else "one"
    return f"{type(value).__name__} {text[:80]}"


def _layout(kind: type) -> tuple[_Field, ...]:
    layout = _layouts.get(kind)
    if layout is None:
        defaults = _defaults(kind)
        layout = _layouts[kind] = tuple(
            _Field(
                name,
                _allowed(hint),
                " or ".join(sorted({one.__name__ for one in _allowed(hint)})),
                defaults.get(name),
            )
            for name, hint in typing.get_type_hints(kind).items()
            if name in defaults
        )
    return layout


def _defaults(kind: Any) -> dict[str, Callable[[], object] | None]:
    """Return how a missing field gets its value, by name; None if it is required."""
    if issubclass(kind, tuple):
        given: dict[str, object] = kind._field_defaults
        names: tuple[str, ...] = kind._fields
        return {name: _always(given[name]) if name in given else None for name in names}
    found: dict[str, Callable[[], object] | None] = {}
    for one in dataclasses.fields(kind):
        if one.default is not dataclasses.MISSING:
            found[one.name] = _always(one.default)
        elif one.default_factory is not dataclasses.MISSING:
            found[one.name] = one.default_factory
        else:
            found[one.name] = None
    return found


def _always(value: object) -> Callable[[], object]:
    return lambda: value


_SEQUENCES = (list, tuple)
_ALLOWED: dict[object, tuple[type, ...]] = {
    float: (int, float),
    bytes: (bytes, bytearray, memoryview),
    Sequence: _SEQUENCES,
    Iterable: _SEQUENCES,
    list: _SEQUENCES,
    tuple: _SEQUENCES,
    Mapping: (dict,),
    None: (type(None),),
}


def _allowed(hint: Any) -> tuple[type, ...]:
    """Return the types of values that a field may have; items of collections are not checked."""
    if isinstance(hint, typing.NewType):
        return _allowed(hint.__supertype__)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return tuple(kind for part in typing.get_args(hint) for kind in _allowed(part))
    kind = origin or hint
    if kind in _ALLOWED:
        return _ALLOWED[kind]
    if not isinstance(kind, type):
        return (object,)
    if issubclass(kind, Enum):
        return (kind, int) if issubclass(kind, int) else (kind,)
    if issubclass(kind, tuple):
        return (kind, *_SEQUENCES)
    return (kind,)

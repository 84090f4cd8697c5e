"""Plain data that actors hand one another, and how one of another build is taken.

Most are named tuples: their classes are made five times faster than frozen dataclasses. An embedded
broker starts within 100 ms, and the dozens of record and message classes that it needs would take
most of that.

A message crosses processes as the values of its fields, in order. Fields are only ever added at the
end, with a default. So a peer of an older build sends fewer, and the rest take their defaults; one
of a newer build sends more, and those are ignored (`taken`).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from raylog.wire.errors import InvalidRequest, UnsupportedVersion

T = TypeVar("T", bound=tuple[object, ...])
M = TypeVar("M")
MESSAGES: list[type] = []
"""Every class of messages that was imported."""
USUAL_MAX = 10_000

_Make = Callable[[Any, Any], Any]
"""Makes an object of a class and values."""
_usual: dict[tuple[type, ...], _Make] = {}
"""How to make an object, by its class and the types of values that are right for its fields."""
_layouts: dict[type, tuple[_Field, ...]] = {}


class _Field(NamedTuple):
    name: str
    allowed: tuple[type, ...]
    expected: str
    """The same for people."""
    default: Callable[[], object] | None
    """None: the oldest build had the field, too."""


def distinct(kind: type[T]) -> type[T]:
    """Make a named tuple unequal to one of another class that holds the same values."""

    def equal(this: T, other: object) -> bool:
        return type(other) is kind and tuple.__eq__(this, other)

    def unequal(this: T, other: object) -> bool:
        return not equal(this, other)

    for name, method in (("__eq__", equal), ("__ne__", unequal), ("__hash__", tuple.__hash__)):
        setattr(kind, name, method)
    return message(kind)


def message(kind: type[M]) -> type[M]:
    """Make a named tuple or dataclass one that `taken` rebuilds where it is unpickled."""
    if issubclass(kind, tuple):

        def reduced(this: Any) -> tuple[object, ...]:
            return taken, (kind, tuple(this))
    else:
        names = tuple(one.name for one in dataclasses.fields(kind))  # type: ignore[arg-type]  # mypy: any class

        def reduced(this: Any) -> tuple[object, ...]:
            return taken, (kind, tuple(getattr(this, name) for name in names))

    kind.__reduce__ = reduced  # type: ignore[assignment]  # what pickle calls
    MESSAGES.append(kind)
    return kind


def taken(kind: type[M], values: Any) -> M:
    """The message that a peer has sent as the values of its fields.

    Raises UnsupportedVersion where a field without a default is missing, InvalidRequest for a value
    of another type than the field's.
    """
    try:
        make = _usual[(kind, *map(type, values))]
    except (KeyError, TypeError):
        values = _checked(kind, values)
        make = _maker(kind)
    made: M = make(kind, values)
    return made


def each_taken(kind: type[T], many: Iterable[Any]) -> list[T]:
    """The messages of one request or answer that has one for each partition.

    Named tuples only, and made as fast as by their class: types of values are looked at only where
    their number is another build's. Raises as `taken`.
    """
    width = len(kind._fields)  # type: ignore[attr-defined]  # named tuple
    new = tuple.__new__
    return [new(kind, one) if len(one) == width else taken(kind, one) for one in many]


def cut(values: Sequence[Any], count: int) -> Sequence[Any]:
    """The first values of a message without a class; raises UnsupportedVersion if some are missing.

    For what is asked per partition or seldom, with few values that never had a default.
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
            _Field(name, _allowed(hint), _named(hint), defaults.get(name))
            for name, hint in typing.get_type_hints(kind).items()
            if name in defaults
        )
    return layout


def _defaults(kind: Any) -> dict[str, Callable[[], object] | None]:
    """How a missing field gets its value, by name; None: it must be there."""
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
    """The types of values that a field may have; those within a collection are not looked at."""
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


def _named(hint: Any) -> str:
    return " or ".join(sorted({kind.__name__ for kind in _allowed(hint)}))

"""Every message between processes is accepted from older and newer builds, with any content."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import pickle
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors import names
from raylog.actors.message import MESSAGES, taken
from raylog.actors.metadata.terms import Term, Terms
from raylog.actors.roles import role_class
from raylog.actors.runtime.packing import pack, unpack
from raylog.wire.errors import KafkaError
from tests.support.messages import BOUNDED

ROLES = (
    names.CONTROLLER,
    names.BROKER,
    names.GATEWAY,
    names.REPLICA,
    names.GROUP,
    names.TRANSACTION,
    names.SUPERVISOR,
)
ACTORS = [role_class(role) for role in ROLES]
"""Importing them imports every message."""
WITHIN = tuple(
    f"raylog.actors.{name}" for name in ("broker.effects", "metadata.image", "metadata.terms")
)
"""Their tuples stay within a process."""
KINDS = sorted(
    {
        kind
        for kind in MESSAGES
        if kind.__module__.startswith("raylog.") and kind.__module__ not in WITHIN
    },
    key=lambda kind: (kind.__module__, kind.__qualname__),
)
FIELDS = Path(__file__).parent.parent / "golden" / "message_fields.txt"
"""The messages and fields of the first build with versioned messages."""


def field_names(kind: Any) -> tuple[str, ...]:
    if hasattr(kind, "_fields"):
        names: tuple[str, ...] = kind._fields
        return names
    return tuple(one.name for one in dataclasses.fields(kind))


def values_of(made: Any) -> list[Any]:
    return [getattr(made, name) for name in field_names(type(made))]


def required(kind: Any) -> int:
    """The number of fields without a default."""
    if hasattr(kind, "_fields"):
        return len(kind._fields) - len(kind._field_defaults)
    missing = dataclasses.MISSING
    return sum(
        one.default is missing and one.default_factory is missing
        for one in dataclasses.fields(kind)
    )


OF_THEIR_OWN: dict[Any, st.SearchStrategy[Any]] = {
    Any: st.none() | st.integers() | st.text(max_size=3),
    range: st.integers(0, 9).map(range),
}
"""Values of types that Hypothesis cannot generate."""


@cache
def examples(hint: Any) -> st.SearchStrategy[Any]:
    """A strategy for values of a type."""
    if isinstance(hint, typing.NewType):
        return examples(hint.__supertype__)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([examples(part) for part in parts])
    if origin is tuple:
        if parts[-1] is Ellipsis:
            return st.lists(examples(parts[0]), max_size=2).map(tuple)
        return st.tuples(*(examples(part) for part in parts))
    if origin in (list, Sequence, Iterable):
        return st.lists(examples(parts[0]), max_size=2)
    if origin in (dict, Mapping):
        return st.dictionaries(examples(parts[0]), examples(parts[1]), max_size=2)
    if hint in OF_THEIR_OWN:
        return OF_THEIR_OWN[hint]
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        return made_of(hint)
    if hint is Terms:
        return st.lists(examples(Term), max_size=2).map(Terms)
    return st.from_type(type(None) if hint is None else hint)


def made_of(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    fields = [examples(hints[name]) for name in field_names(kind)]
    return st.tuples(*fields).map(lambda values: kind(*values))


def named(hint: Any) -> Iterator[type]:
    """The data classes that a type refers to, including those in its fields."""
    if isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    for part in typing.get_args(hint):
        yield from named(part)
    is_plain = dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")
    if inspect.isclass(hint) and is_plain and hint.__module__.startswith("raylog."):
        yield hint
        for inner in typing.get_type_hints(hint).values():
            yield from named(inner)


@pytest.mark.parametrize("actor", ACTORS, ids=lambda actor: actor.__name__)
def test_actor_calls_carry_only_registered_messages(actor: type) -> None:
    strangers = {
        f"{method}: {kind.__name__}"
        for method, function in inspect.getmembers(actor, inspect.iscoroutinefunction)
        if not method.startswith("_")
        for hint in typing.get_type_hints(function).values()
        for kind in named(hint)
        if kind not in MESSAGES
    }
    assert strangers == set()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__qualname__)
@BOUNDED
@given(data=st.data())
def test_a_message_is_taken_from_every_build(kind: Any, data: st.DataObject) -> None:
    made = data.draw(made_of(kind))
    values = values_of(made)
    assert unpack(pack(made)) == made
    assert type(pickle.loads(pickle.dumps(made))) is kind
    newer = [*values, {"of a": "newer build"}, None]
    assert values_of(taken(kind, newer)) == values
    for known in range(required(kind), len(values)):
        older = values_of(taken(kind, values[:known]))
        assert older[:known] == values[:known]
    for known in range(required(kind)):
        with pytest.raises(KafkaError):
            taken(kind, values[:known])


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.sampled_from(KINDS), PLAIN | st.lists(PLAIN, min_size=3, max_size=16))
def test_whatever_comes_is_taken_or_refused(kind: Any, values: Any) -> None:
    came = msgpack.unpackb(msgpack.packb(values), strict_map_key=False)
    with contextlib.suppress(KafkaError):
        assert type(taken(kind, came)) is kind


def test_fields_are_only_added_at_the_end_with_a_default() -> None:
    """A field that is listed is never removed or moved: a peer of that build sends it in place."""
    found = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in KINDS}
    for line in FIELDS.read_text().splitlines():
        name, _, listed = line.partition(": ")
        assert name in found, f"{name} is gone, and a peer of an older build may send it"
        fields, sent = field_names(found[name]), tuple(listed.split())
        assert fields[: len(sent)] == sent, f"{name} does not begin with the fields listed"
        assert required(found[name]) <= len(sent), f"a field that {name} gained has no default"

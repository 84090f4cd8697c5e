"""Hypothesis strategies for wire messages, derived from their schema."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from raylog.wire.api import ApiKey
from raylog.wire.internal.blobs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from raylog.wire.messages.registry import request_class, response_class
from raylog.wire.schema import Array, Field, Kind, is_struct, layout_of

BOUNDED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=5,
    suppress_health_check=list(HealthCheck),
)
"""The same few examples every time; the number of messages makes up for it."""


@dataclass(frozen=True)
class Case:
    """One message class at one version; `api_key` is None for blobs."""

    cls: type
    version: int
    api_key: ApiKey | None = None

    def __str__(self) -> str:
        return f"{self.cls.__name__}-v{self.version}"


def _api_cases() -> list[Case]:
    return [
        Case(cls, version, key)
        for key in ApiKey
        for cls in (request_class(key), response_class(key))
        for version in range(key.first_version, key.last_version + 1)
    ]


def _blob_cases() -> list[Case]:
    kinds = [*OFFSETS_TOPIC.values(), *TRANSACTIONS_TOPIC.values()]
    classes = [cls for kind in kinds for cls in (kind.key, kind.value)]
    classes += [ConsumerProtocolSubscription, ConsumerProtocolAssignment]
    return [Case(cls, version) for cls in classes for version in layout_of(cls).versions or ()]


API_CASES = _api_cases()
BLOB_CASES = _blob_cases()
ALL_CASES = API_CASES + BLOB_CASES


def params(cases: Iterable[Case]) -> list[object]:
    """Return the cases as parameters; all but the first and last version are marked long."""
    versions: dict[type, list[int]] = {}
    listed = list(cases)
    for case in listed:
        versions.setdefault(case.cls, []).append(case.version)
    return [
        pytest.param(
            case,
            id=str(case),
            marks=pytest.mark.long
            if min(versions[case.cls]) < case.version < max(versions[case.cls])
            else (),
        )
        for case in listed
    ]


_INTS = {
    code: st.integers(-(2**bits), 2**bits - 1)
    for code, bits in (("b", 7), ("h", 15), ("i", 31), ("q", 63))
}
_TEXTS = st.text(max_size=6) | st.sampled_from(["", "a" * 126, "b" * 127, "ü" * 64, "c" * 32767])
_BYTES = st.binary(max_size=8) | st.sampled_from([b"", b"x" * 126, b"y" * 127, b"z" * 20000])
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int8": _INTS["b"],
    "int16": _INTS["h"],
    "int32": _INTS["i"],
    "int64": _INTS["q"],
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": _TEXTS,
    "bytes": _BYTES,
    "records": _BYTES,
}


class Messages:
    """Strategies for one version; `overrides` replaces strategies of fields by name."""

    def __init__(self, version: int, overrides: dict[str, st.SearchStrategy[Any]] | None = None):
        self.version = version
        self.overrides = overrides or {}

    def of(self, cls: type) -> st.SearchStrategy[Any]:
        """Return a strategy for `cls`; fields that the version lacks keep their defaults."""
        fields = [f for f in layout_of(cls).fields if self.version in f.versions]
        return st.builds(cls, **{f.name: self._field(f) for f in fields})

    def _field(self, field: Field) -> st.SearchStrategy[Any]:
        override = self.overrides.get(field.name)
        values = self._kind(field.kind) if override is None else override
        if field.tag is not None:
            values = st.just(field.default) | values
        if self.version in field.nullable:
            values = st.none() | values
        return values

    def _kind(self, kind: Kind | Array | type) -> st.SearchStrategy[Any]:
        if isinstance(kind, Array):
            return st.lists(self._kind(kind.element), max_size=2)
        if is_struct(kind):
            assert isinstance(kind, type)
            return self.of(kind)
        assert isinstance(kind, Kind)
        return KINDS[kind.name]


@cache
def messages(case: Case) -> st.SearchStrategy[Any]:
    """Return a strategy for the case's messages."""
    return Messages(case.version).of(case.cls)


def written_form(message: Any) -> Any:
    """Return `message` as decoded from the wire: an all-default tagged struct is not written."""
    for field in layout_of(type(message)).fields:
        value = getattr(message, field.name)
        if is_struct(field.kind) and value is not None:
            written_form(value)
            if field.tag is not None and not field.nullable and value == field.kind():  # type: ignore[operator]  # a class
                setattr(message, field.name, None)
        elif isinstance(field.kind, Array) and is_struct(field.kind.element):
            for item in value or ():
                written_form(item)
    return message

"""The largest requests that each API's limits allow, in the most expensive shapes.

Every array of a message is filled in turn, at any depth, with elements that name one thing that
exists (repeated), things that exist (once each), or things that do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from raylog.wire.api import ApiKey, limit_of
from raylog.wire.codec import encode
from raylog.wire.messages.registry import request_class
from raylog.wire.schema import Array, Field, Kind, is_struct, layout_of

HEADER_BYTES = 64


class Known(NamedTuple):
    """What exists and can be named."""

    topic: str
    topic_id: bytes
    partitions: int


class Shape(NamedTuple):
    """One request."""

    api_key: ApiKey
    version: int
    name: str
    request: Any

    def __str__(self) -> str:
        return f"{self.api_key.name} v{self.version}: {self.name}"


def shapes(api_key: ApiKey, version: int, known: Known, kinds: Sequence[str]) -> Iterator[Shape]:
    """Yield requests of an API at a version: the empty one, and for each array those `kinds`."""
    cls = request_class(api_key)
    if "empty" in kinds:
        yield Shape(api_key, version, "empty", _sound(cls(), api_key, version))
    for path in _paths(cls, version):
        for kind in kinds:
            if kind == "empty":
                continue
            count = limit_of(api_key).elements_max - len(path)
            while count > 0:
                request = _sound(_filled(cls, version, path, count, kind, known), api_key, version)
                if len(encode(request, version)) + HEADER_BYTES <= limit_of(api_key).bytes_max:
                    name = ".".join(field.name for field in path)
                    yield Shape(api_key, version, f"{count} {kind} {name}", request)
                    break
                count //= 2


def newest(api_key: ApiKey, served: range) -> int:
    """Return the newest version that is served."""
    return min(served[-1], api_key.last_version)


def _paths(cls: type, version: int) -> Iterator[tuple[Field, ...]]:
    """Yield every array of a message, as the path of fields to it."""
    for field in layout_of(cls).fields:
        if version not in field.versions:
            continue
        kind = field.kind
        if isinstance(kind, Array):
            yield (field,)
            if is_struct(kind.element):
                assert isinstance(kind.element, type)
                yield from ((field, *rest) for rest in _paths(kind.element, version))
        elif is_struct(kind):
            assert isinstance(kind, type)
            yield from ((field, *rest) for rest in _paths(kind, version))


def _filled(
    cls: type, version: int, path: tuple[Field, ...], count: int, how: str, known: Known
) -> Any:
    """Return a message with `count` elements in the array at `path`, and one in those around it."""
    whole = cls()
    field, *rest = path
    kind = field.kind
    if not isinstance(kind, Array):
        assert isinstance(kind, type)
        setattr(whole, field.name, _filled(kind, version, tuple(rest), count, how, known))
        return whole
    if rest:
        assert isinstance(kind.element, type)
        one = _filled(kind.element, version, tuple(rest), count, how, known)
        _name(one, version, 0, "repeated", known)
        setattr(whole, field.name, [one])
        return whole
    setattr(
        whole, field.name, [_element(kind.element, version, i, how, known) for i in range(count)]
    )
    return whole


def _element(kind: Kind | type, version: int, number: int, how: str, known: Known) -> Any:
    if isinstance(kind, Kind):
        match kind.name:
            case "string":
                return known.topic if how == "repeated" else f"u{number}"
            case "uuid":
                return known.topic_id if how == "repeated" else number.to_bytes(16, "big")
            case "bytes" | "records":
                return b""
            case _:
                return {"repeated": 0, "existing": number % known.partitions}.get(how, number % 127)
    one = kind()
    _name(one, version, number, how, known)
    return one


def _name(one: Any, version: int, number: int, how: str, known: Known) -> None:
    """Fill a struct with names that exist or not; nested arrays get one valid element."""
    for field in layout_of(type(one)).fields:
        if version not in field.versions:
            continue
        kind, name = field.kind, field.name
        if isinstance(kind, Array) and is_struct(kind.element) and not getattr(one, name):
            assert isinstance(kind.element, type)
            if how == "existing" and any(
                "partition" in f.name for f in layout_of(kind.element).fields
            ):
                inner = kind.element()
                _name(inner, version, number, how, known)
                setattr(one, name, [inner])
        elif isinstance(kind, Kind) and kind.name == "string" and not getattr(one, name):
            setattr(one, name, known.topic if how != "unknown" else f"u{number}")
        elif isinstance(kind, Kind) and kind.name == "uuid":
            setattr(one, name, known.topic_id if how != "unknown" else number.to_bytes(16, "big"))
        elif name in ("partition", "partition_index", "index"):
            setattr(one, name, 0 if how == "repeated" else number % known.partitions)
        elif name == "resource_type":
            setattr(one, name, 2)


def _sound(request: Any, api_key: ApiKey, version: int) -> Any:
    """Set the fields that handlers check first, so that they go on to the rest."""
    fields = {field.name: field for field in layout_of(type(request)).fields}
    for name, value in {
        "acks": 1,
        "timeout_ms": 1_000,
        "group_id": "g",
        "transactional_id": None if api_key is ApiKey.PRODUCE else "x",
        "v3_and_below_transactional_id": "x",
        "protocol_type": "consumer",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "response_partition_limit": 2_000,
        "isolation_level": 0,
        "validate_only": api_key is not ApiKey.CREATE_TOPICS,
        "allow_auto_topic_creation": False,
        "include_documentation": True,
        "include_synonyms": True,
        "max_wait_ms": 0,
        "max_bytes": 1 << 20,
    }.items():
        if name in fields and version in fields[name].versions:
            setattr(request, name, value)
    return request

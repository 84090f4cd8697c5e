"""Reads the numbers of a MetricsData message of OpenTelemetry's protocol, which clients push.

- MetricsData: 1 ResourceMetrics, repeated
- ResourceMetrics: 1 Resource (1 KeyValue, repeated), 2 ScopeMetrics, repeated
- ScopeMetrics: 2 Metric, repeated
- Metric: 1 name, 5 Gauge, 7 Sum; 9, 10 and 11 are histograms and summaries, which are ignored
- Gauge: 1 NumberDataPoint, repeated
- Sum: 1 NumberDataPoint, repeated, 2 temporality (1 is delta, 2 cumulative)
- NumberDataPoint: 4 as_double, 6 as_int, 7 KeyValue, repeated
- KeyValue: 1 key, 2 AnyValue (1 string, 2 bool, 3 int, 4 double)
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from raylog.wire.errors import InvalidRecord

POINTS_MAX = 5_000
FIELDS_MAX = 100_000
"""Maximum fields of a push that are read, which limits the time."""
TEXT_MAX = 200
"""Longer names and attribute values are cut."""
_DELTA = 1
_DOUBLE, _INT = Struct("<d"), Struct("<q")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BITS = 64

Attributes = dict[str, str]


class Point(NamedTuple):
    """One value of one metric."""

    metric: str
    value: float
    is_delta: bool
    """Whether it is the change since the previous push."""
    attributes: Attributes
    resource: Attributes


class _Patience:
    """The number of fields that may still be read."""

    def __init__(self, fields: int) -> None:
        self.left = fields


def points(data: bytes) -> Iterator[Point]:
    """Yield the values in a message; raises InvalidRecord if it is malformed."""
    patience = _Patience(FIELDS_MAX)
    for number, one in _fields(memoryview(data), patience):
        if number == 1:
            yield from _of_resource(_message(one), patience)


def _of_resource(data: memoryview, patience: _Patience) -> Iterator[Point]:
    fields = list(_fields(data, patience))
    resource: Attributes = {}
    for number, one in fields:
        if number == 1:
            resource.update(_attributes(_message(one), 1, patience))
    for number, one in fields:
        if number == 2:
            for inner, metric in _fields(_message(one), patience):
                if inner == 2:
                    yield from _of_metric(_message(metric), resource, patience)


def _of_metric(data: memoryview, resource: Attributes, patience: _Patience) -> Iterator[Point]:
    name = ""
    found: list[tuple[memoryview, bool]] = []
    for number, one in _fields(data, patience):
        if number == 1:
            name = _text(_message(one))
        elif number in (5, 7):
            found.extend(_data_points(_message(one), patience))
    for point, is_delta in found:
        value = _value(point, patience)
        if value is not None:
            yield Point(name, value, is_delta, _attributes(point, 7, patience), resource)


def _data_points(data: memoryview, patience: _Patience) -> list[tuple[memoryview, bool]]:
    taken = []
    is_delta = False
    for number, one in _fields(data, patience):
        if number == 1:
            taken.append(_message(one))
        elif number == 2:
            is_delta = one == _DELTA
    return [(point, is_delta) for point in taken]


def _value(point: memoryview, patience: _Patience) -> float | None:
    value: float | None = None
    for number, one in _fields(point, patience):
        if number in (4, 6):
            number_of = _DOUBLE if number == 4 else _INT
            body = _message(one)
            if len(body) != number_of.size:
                raise InvalidRecord(f"a number of {len(body)} bytes instead of 8")
            value = number_of.unpack(body)[0]
    return value


def _attributes(data: memoryview, repeated: int, patience: _Patience) -> Attributes:
    taken: Attributes = {}
    for number, one in _fields(data, patience):
        if number == repeated:
            pair = dict(_fields(_message(one), patience))
            taken[_text(_message(pair.get(1, memoryview(b""))))] = _any_value(
                _message(pair.get(2, memoryview(b""))), patience
            )
    return taken


def _any_value(data: memoryview, patience: _Patience) -> str:
    for number, one in _fields(data, patience):
        match number, one:
            case 1, memoryview():
                return _text(one)
            case 2, int():
                return "true" if one else "false"
            case 3, int():
                return str(one - (1 << 64) if one >> 63 else one)
            case 4, memoryview() if len(one) == _DOUBLE.size:
                return str(_DOUBLE.unpack(one)[0])
    return ""


def _text(data: memoryview) -> str:
    return bytes(data[: 4 * TEXT_MAX]).decode("utf-8", "replace")[:TEXT_MAX]


def _message(one: int | memoryview) -> memoryview:
    if isinstance(one, int):
        raise InvalidRecord("a number where a message or a text is expected")
    return one


def _fields(data: memoryview, patience: _Patience) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field: a varint as int, everything else as bytes."""
    at, end = 0, len(data)
    while at < end and patience.left > 0:
        patience.left -= 1
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise InvalidRecord(f"no field has the wire type {kind}")
        if at + size > end:
            raise InvalidRecord(f"a field of {size} bytes where {end - at} are left")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, _VARINT_BITS + 6, 7):
        if at == len(data):
            raise InvalidRecord("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << _VARINT_BITS) - 1), at
    raise InvalidRecord("a number has more than 64 bits")

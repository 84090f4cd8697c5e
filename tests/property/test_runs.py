"""Similar records are read together, with the same result as one by one."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from raylog.wire import record
from raylog.wire.errors import InvalidRecord
from raylog.wire.record import Headers, Record, decode_records, encode_records
from raylog.wire.varint import encode_varint

BASE_OFFSET, BASE_TIMESTAMP = 1_000, 1_700_000_000_000
LENGTHS = st.none() | st.sampled_from([0, 1, 5, 54, 63, 64, 100, 8_192])
STRIDES = st.sampled_from([1, 1, 1, 3, 500])
"""Steps between offsets; not 1 after compaction."""
PACES = st.sampled_from([0, 0, 1, 7, 90])
"""Milliseconds between records."""
HEADERS = st.sampled_from([(), (), (), [("h", b"1")]])


@st.composite
def groups(draw: st.DrawFn) -> list[Record]:
    """A few groups of similar records."""
    records: list[Record] = []
    offset = draw(st.sampled_from([0, 60, 8_180, 2**21]))
    time = draw(st.sampled_from([-3, 0, 60, 8_190]))
    for _ in range(draw(st.integers(1, 4))):
        key, value, headers = draw(LENGTHS), draw(LENGTHS), draw(HEADERS)
        stride, pace = draw(STRIDES), draw(PACES)
        for _ in range(draw(st.integers(1, 90))):
            records.append(
                Record(offset, time, filled(key, offset), filled(value, offset), headers)
            )
            offset += stride
            time += pace
    return records


def filled(length: int | None, seed: int) -> bytes | None:
    """This many bytes, different for each record."""
    return None if length is None else bytes(255 - (seed + n) % 256 for n in range(length))


def body_of(records: list[Record]) -> bytes:
    """The records' bytes in a batch with base offset and timestamp 0."""
    return encode_records(records, [each.offset for each in records], 0)


def placed(records: list[Record]) -> list[Record]:
    return [
        each._replace(offset=each.offset + BASE_OFFSET, timestamp=each.timestamp + BASE_TIMESTAMP)
        for each in records
    ]


def read(body: bytes, count: int) -> tuple[list[Record], bool]:
    """What is read from a body, and whether it is refused."""
    found: list[Record] = []
    try:
        found.extend(decode_records(body, count, BASE_OFFSET, BASE_TIMESTAMP))
    except InvalidRecord:
        return found, True
    return found, False


def one_by_one(body: bytes, count: int) -> tuple[list[Record], bool]:
    with mock.patch.object(record, "read_run", return_value=None):
        return read(body, count)


@given(groups())
def test_parsed_run_contains_all_records(records: list[Record]) -> None:
    assert read(body_of(records), len(records)) == (placed(records), False)


@given(groups(), st.data())
def test_damage_is_seen_as_one_by_one(records: list[Record], data: st.DataObject) -> None:
    """Some byte, often of a length or a difference, is another."""
    body = bytearray(body_of(records))
    first = len(body_of(records[: data.draw(st.integers(0, len(records) - 1))]))
    at = min(first + data.draw(st.integers(0, 12)), len(body) - 1)
    body[at] = data.draw(st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.sampled_from([len(body), len(body) - 1]))])
    assert read(damaged, len(records)) == one_by_one(damaged, len(records))


@given(st.integers(8, 40), st.integers(0, 63), st.booleans())
def test_numbers_may_take_more_bytes_than_they_need(count: int, offset: int, both: bool) -> None:
    """No writer does that, and it is not forbidden."""

    def padded(number: int) -> bytes:
        (low,) = encode_varint(number)
        return bytes((low | 0x80, 0))

    headers: Headers = ()
    content = [
        b"\0" + (padded(5) if both else b"\x0a") + padded(offset) + b"\x01\x02v\0"
        for _ in range(count)
    ]
    body = b"".join(encode_varint(len(each)) + each for each in content)
    expected = Record(BASE_OFFSET + offset, BASE_TIMESTAMP + 5, None, b"v", headers)
    assert read(body, count) == ([expected] * count, False)

"""The records inside a decompressed batch: the two loops that run once a record.

A record is a varint length, a byte of attributes (none are defined), timestamp and offset as
differences to the batch's, then key, value and headers, each behind a varint length, -1 = null.
The loops read the first byte of a varint inline and look small numbers up in a table: a call a
field would cost more than the work in it. Neighbours that are alike are read together (`runs`).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from raylog.wire.errors import DecodeError, InvalidRecord
from raylog.wire.runs import RUN_TRIED, read_run
from raylog.wire.varint import TABLE_SIZE, encode_varint, read_long, varint_table

RECORD_BYTES_MIN = 7
"""Bytes of the smallest record: null key, null value, no headers."""

_ONE_BYTE = 64
"""Smaller numbers, from 0 on, are varints of one byte."""

OFFSET_DELTA_MAX = 2**31 - 1
"""Of a record's offset to that of its batch."""
_FAR = 2**61
"""Times and differences to them that are smaller add up to no more than 64 bits."""

_STEPS = 64
"""Records that are read one by one before a run is looked for again; later twice as many."""
_PART_MAX = 4096
"""Records that are in memory at once: tiny ones are many times their bytes as objects."""

_new = tuple.__new__  # half the cost of the generated constructor


Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record. `offset` is absolute once it was written; timestamp in ms.

    What is decoded has `()` where there are no headers.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode_records(
    body: bytes, count: int, base_offset: int, base_timestamp: int
) -> Iterator[Record]:
    """The records of a decompressed batch, of which few are in memory at once.

    INVALID_RECORD as soon as one is malformed, and at the end unless `body` held exactly `count`.
    """
    records = chain.from_iterable(_parts(body, count, base_offset, base_timestamp))
    return map(_timely, records) if abs(base_timestamp) >= _FAR else records


def _timely(record: Record) -> Record:
    _check_time(record.timestamp)
    return record


def _check_time(timestamp: int) -> None:
    if not -(2**63) <= timestamp < 2**63:
        raise InvalidRecord(f"expected a timestamp of 64 bits, found {timestamp}")


def _parts(
    body: bytes, count: int, base_offset: int, base_timestamp: int
) -> Iterator[Iterable[Record]]:
    """Records that are alike together, others one by one until some are alike again."""
    position, left = 0, count
    tried, steps = RUN_TRIED, _STEPS
    try:
        while left:
            run = read_run(body, position, min(left, tried), base_offset, base_timestamp)
            if run is not None:
                left -= run.count
                position = run.end
                tried = min(4 * tried, _PART_MAX) if run.count == tried else RUN_TRIED
                steps = _STEPS
                yield map(_new, repeat(Record), run.cells)
                continue
            found: list[Record] = []
            try:
                position = _decode(
                    body, position, min(left, steps), base_offset, base_timestamp, found
                )
            finally:
                yield found  # what is whole, even in front of what is not
            left -= len(found)
            steps = min(2 * steps, _PART_MAX)
    except (IndexError, DecodeError) as error:
        raise InvalidRecord(f"fewer than {count} whole records: {error}") from error
    if position != len(body):
        raise InvalidRecord(f"{len(body) - position} bytes behind {count} records")


def _decode(
    body: bytes,
    position: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    found: list[Record],
) -> int:
    """Read records one by one; returns where the last one ends.

    IndexError or DecodeError where the bytes end early. Names with `z_` are zigzag numbers: bit 0
    is the sign, and any negative length is null, as in Java. Most sizes take one or two bytes.
    """
    for _ in range(count):
        z_size = body[position]
        position += 1
        if z_size > 127:
            high = body[position]
            z_size, position = (
                (z_size - 128 + (high << 7), position + 1)
                if high < 128
                else read_long(body, position, z_size)
            )
        end = position + (z_size >> 1)
        z_time = body[position + 1]  # behind the attributes
        position += 2
        if z_time > 127:
            high = body[position]
            z_time, position = (
                (z_time - 128 + (high << 7), position + 1)
                if high < 128
                else _read_time(body, position, z_time, base_timestamp)
            )
        z_delta = body[position]
        position += 1
        if z_delta > 127:
            high = body[position]
            z_delta, position = (
                (z_delta - 128 + (high << 7), position + 1)
                if high < 128
                else _read_delta(body, position, z_delta)
            )
        z_key = body[position]
        position += 1
        if z_key > 127:
            z_key, position = read_long(body, position, z_key)
        key = None if z_key & 1 else body[position : (position := position + (z_key >> 1))]
        z_value = body[position]
        position += 1
        if z_value > 127:
            high = body[position]
            z_value, position = (
                (z_value - 128 + (high << 7), position + 1)
                if high < 128
                else read_long(body, position, z_value)
            )
        value = None if z_value & 1 else body[position : (position := position + (z_value >> 1))]
        headers: Headers = ()
        if body[position]:
            headers, position = decode_headers(body, position)
        else:
            position += 1
        if position != end or (z_size | z_delta) & 1:
            raise InvalidRecord(
                f"record ends at byte {position}, its length says {end}; its offset delta is "
                f"{(z_delta >> 1) ^ -(z_delta & 1)}"
            )
        offset = base_offset + (z_delta >> 1)
        timestamp = base_timestamp + ((z_time >> 1) ^ -(z_time & 1))
        found.append(_new(Record, (offset, timestamp, key, value, headers)))
    return position


def _read_time(body: bytes, position: int, first: int, base_timestamp: int) -> tuple[int, int]:
    """As `read_long`, the difference of a time to the batch's."""
    z_time, position = read_long(body, position, first)
    if z_time >= 2 * _FAR:
        _check_time(base_timestamp + ((z_time >> 1) ^ -(z_time & 1)))
    return z_time, position


def _read_delta(body: bytes, position: int, first: int) -> tuple[int, int]:
    """As `read_long`, the difference of an offset to the batch's."""
    z_delta, position = read_long(body, position, first)
    if z_delta > 2 * OFFSET_DELTA_MAX:
        raise InvalidRecord(f"expected an offset delta of 31 bits, found {z_delta >> 1}")
    return z_delta, position


def decode_headers(body: bytes, position: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """The headers at `position`, behind their number, and where they end.

    Names that are not UTF-8 are read with replacement characters, as Java does.
    """
    headers: list[tuple[str, bytes | None]] = []
    z_count = body[position]
    position += 1
    if z_count > 127:
        z_count, position = read_long(body, position, z_count)
    if z_count & 1:
        raise InvalidRecord("negative number of record headers")
    for _ in range(z_count >> 1):
        z_name = body[position]
        position += 1
        if z_name > 127:
            z_name, position = read_long(body, position, z_name)
        if z_name & 1:
            raise InvalidRecord("record header without a name")
        name = body[position : (position := position + (z_name >> 1))].decode("utf-8", "replace")
        z_value = body[position]
        position += 1
        if z_value > 127:
            z_value, position = read_long(body, position, z_value)
        value = None if z_value & 1 else body[position : (position := position + (z_value >> 1))]
        headers.append((name, value))
    return headers, position


def encode_records(
    records: Iterable[tuple[int, int, bytes | None, bytes | None, Headers]],
    deltas: Iterable[int],
    base_timestamp: int,
) -> bytes:
    """The records' bytes, not compressed.

    What stands between offset, key and value is made once for records of equal sizes and times:
    most are like the one before.
    """
    table = varint_table()
    parts: list[bytes] = []
    last: tuple[int, int, int] | None = None
    low = high = 0  # deltas that take as many bytes as that of the last
    before = before_key = before_value = b""
    for delta, (_, timestamp, key, value, headers) in zip(deltas, records, strict=True):
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        if headers or delta >= TABLE_SIZE:
            since = timestamp - base_timestamp
            content = b"".join(
                (
                    b"\0",  # attributes: none defined
                    encode_varint(since),
                    encode_varint(delta),
                    encode_varint(key_size),
                    key or b"",
                    encode_varint(value_size),
                    value or b"",
                    encode_headers(headers) if headers else b"\0",
                )
            )
            parts += (encode_varint(len(content)), content)
            continue
        like = (timestamp, key_size, value_size)
        if like != last or not low <= delta < high:
            last = like
            low, high = (0, _ONE_BYTE) if delta < _ONE_BYTE else (_ONE_BYTE, TABLE_SIZE)
            since = timestamp - base_timestamp
            time = table[since] if -1 <= since < TABLE_SIZE else encode_varint(since)
            before_key = table[key_size] if key_size < TABLE_SIZE else encode_varint(key_size)
            before_value = (
                table[value_size] if value_size < TABLE_SIZE else encode_varint(value_size)
            )
            size = 2 + len(time) + len(table[delta]) + len(before_key) + len(before_value)
            size += (key_size if key else 0) + (value_size if value else 0)
            before = b"%b\0%b" % (table[size] if size < TABLE_SIZE else encode_varint(size), time)
            if key_size < 0:
                before_value = before_key + before_value
        if key is None:
            parts += (before, table[delta], before_value, value or b"", b"\0")
        else:
            parts += (before, table[delta], before_key, key, before_value, value or b"", b"\0")
    return b"".join(parts)


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """What a record ends with: how many headers, and each."""
    table = varint_table()
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        name_bytes = name.encode()
        size = len(name_bytes)
        value_size = -1 if value is None else len(value)
        parts += (
            table[size] if size < TABLE_SIZE else encode_varint(size),
            name_bytes,
            table[value_size] if value_size < TABLE_SIZE else encode_varint(value_size),
            value or b"",
        )
    return b"".join(parts)

"""Records inside a decompressed batch: the two loops that run once per record.

A record is a varint length, a byte of attributes (none are defined), timestamp and offset as
differences to the batch's, then key, value and headers, each after a varint length, where -1 is
null. The loops read the first byte of a varint inline and look small numbers up in a table, because
a call per field would cost more than its work. Similar neighbours are read together (`runs`).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from raylog.wire.errors import DecodeError, InvalidRecord
from raylog.wire.runs import RUN_TRIED, read_run
from raylog.wire.varint import TABLE_SIZE, encode_varint, read_long, varint_table

RECORD_BYTES_MIN = 7
"""The size of the smallest record: null key, null value, no headers."""

_ONE_BYTE = 64
"""Numbers from 0 to below this are varints of one byte."""

OFFSET_DELTA_MAX = 2**31 - 1
"""The largest difference between the offsets of a record and its batch."""
_FAR = 2**61
"""Timestamps and differences below this add up to no more than 64 bits."""

_STEPS = 64
"""Records to read one by one before looking for the next run. It doubles each time."""
_PART_MAX = 4096
"""The most records in memory at once. Tiny ones take many times their size as objects."""

_new = tuple.__new__  # half the cost of the generated constructor


Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record. `offset` is absolute once it is written; the timestamp is in ms.

    Decoded records without headers have `()`.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode_records(
    body: bytes, count: int, base_offset: int, base_timestamp: int
) -> Iterator[Record]:
    """Decode the records of a decompressed batch, with few of them in memory at once.

    Raises INVALID_RECORD at the first malformed record, and at the end unless `body` held exactly
    `count`.
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
    """Similar records together, and others one by one until the next run."""
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
                yield found  # whole records, even if a malformed one follows
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
    """Read records one by one. Returns the end of the last one.

    Raises IndexError or DecodeError if the bytes end early. Names with `z_` are zigzag numbers: bit
    0 is the sign, and any negative length is null, as in Java. Most sizes take one or two bytes.
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
        z_time = body[position + 1]  # after the attributes
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
    """Read the difference between the timestamps of a record and its batch, as `read_long` does."""
    z_time, position = read_long(body, position, first)
    if z_time >= 2 * _FAR:
        _check_time(base_timestamp + ((z_time >> 1) ^ -(z_time & 1)))
    return z_time, position


def _read_delta(body: bytes, position: int, first: int) -> tuple[int, int]:
    """Read the difference between the offsets of a record and its batch, as `read_long` does."""
    z_delta, position = read_long(body, position, first)
    if z_delta > 2 * OFFSET_DELTA_MAX:
        raise InvalidRecord(f"expected an offset delta of 31 bits, found {z_delta >> 1}")
    return z_delta, position


def decode_headers(body: bytes, position: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """Decode the headers at `position`, after their number. Returns them and their end.

    Names that are not UTF-8 are decoded with replacement characters, as in Java.
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
    """Encode records, without compression.

    The bytes between offset, key and value are computed once for consecutive records of equal sizes
    and times, because most records are like the one before.
    """
    table = varint_table()
    parts: list[bytes] = []
    last: tuple[int, int, int] | None = None
    low = high = 0  # the range of deltas with as many bytes as the last one
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
    """The end of a record: the number of headers, and each header."""
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

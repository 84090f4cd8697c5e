"""Checks the records of a batch without creating objects for them.

Like Apache Kafka, a broker checks every produced record: whether readers can decode it, its number
and its timestamp. Consecutive records of one shape are checked together by column: one call in C
picks the same byte of all of them, and another compares these bytes. If the records have one size,
as from a producer of fixed-size events, a column is a slice with a step. If their sizes differ,
Python first goes from length to length to find their starts.

| records of 100 B | relative cost |
|---|---|
| of one shape and size | 1 |
| of one shape, without headers | 6 |
| of any shapes: one by one | 12 |

The layout of a record, where every number but the attributes is a zigzag varint (`varint.py`):

    length, attributes 1, time since the batch's base, offset delta, key, value, headers
"""

from collections.abc import Callable, Sequence
from itertools import compress
from operator import itemgetter
from struct import pack
from typing import NamedTuple

from raylog.wire.errors import DecodeError, InvalidRecord
from raylog.wire.varint import read_long

RUN_MIN = 32
"""Shorter runs are not worth looking for."""
RUN_PAUSE = 64
"""Records to check one by one before looking for the next run."""
SCATTERED_MAX = 1024
"""The most records of different sizes to check together."""
HEADERS_MAX = 1 << 20
"""The most headers of all records of a batch. More are meant to slow the broker down."""
_ENDLESS = 1 << 62
SHAPED_HEADERS_MAX = 64
"""A record with more headers is checked on its own."""

_INT32_BYTES_MAX = 5
_NULL = 1  # -1 as a zigzag number
_NOWHERE = 1 << 40
_BEHIND = [(z >> 1) + 1 if not z & 1 else 1 if z == _NULL else _NOWHERE for z in range(128)]
"""By the byte of a length, the distance from that byte to the end of the counted bytes."""

_GLANCES = (1, RUN_MIN // 2, RUN_MIN - 1)
"""Positions at which to check whether consecutive records have the same length."""

_BYTES = bytes(range(256))
_LOW, _HIGH, _EVEN = _BYTES[:128], _BYTES[128:], _BYTES[::2]
_SIGNS = bytes([byte >> 7 for byte in range(256)])
_DIGITS = bytes([byte & 0x7F for byte in range(256)])
_LANE = 4
"""The bytes of a small number next to others in a large one."""
_LANE_BITS = 0xFFFFFFFF
_TWO_BYTES = 1 << 14
"""Zigzag numbers below this take at most two bytes."""
_CYCLE = 1 << 13
"""Offset deltas up to the next multiple of this differ in their first two bytes only."""
_ONLY = bytes([delta << 1 for delta in range(64)])
_FIRST = bytes([delta << 1 & 0x7F | 0x80 for delta in range(_CYCLE)])
_LAST = bytes([delta >> 6 for delta in range(_CYCLE)])
_SECOND = bytes([delta >> 6 & 0x7F | 0x80 for delta in range(_CYCLE)])
_DELTAS = {1: (_ONLY,), 2: (_FIRST, _LAST)}
"""The bytes of all deltas of one byte, or two."""
_LONG_DELTAS = (_FIRST, _SECOND)
"""The first bytes of longer deltas."""


class Walked(NamedTuple):
    """What was found in the records of a batch. Times are ms since the batch's base timestamp."""

    earliest: int
    latest: int
    has_null_key: bool


class Patience:
    """A budget of records to check one by one, half a microsecond each. Headers count twice."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, number: int) -> None:
        """Use a part of the budget. Raises _OutOfPatience if it is exceeded."""
        self.left -= number
        if self.left < 0:
            raise _OutOfPatience


class _OutOfPatience(Exception):
    """Checking the records takes too long."""


def walk(body: bytes, count: int, *, patience: Patience | None = None) -> Walked | None:
    """Check the `count` records, at least one, of `body`, which must hold nothing else.

    Raises INVALID_RECORD for a record that readers cannot decode, another number of records, offset
    deltas that are not 0, 1, 2 and so on, or more than HEADERS_MAX headers. Returns None if
    `patience` is given and exceeded.
    """
    try:
        return _Walk(body, count, patience or Patience(_ENDLESS)).run()
    except _OutOfPatience:
        return None
    except (IndexError, DecodeError) as error:
        raise InvalidRecord(f"fewer than {count} whole records: {error}") from error


class _Shape(NamedTuple):
    """The positions of a record's fields, relative to the end of its length."""

    width: int
    """The bytes of its length."""
    size: int
    """The whole size."""
    time: range
    delta: range
    key: range
    """The key's length."""
    value: int
    """The start of the value's length."""
    lengths: list[int]
    """The bytes of the number of headers and of all lengths except the key's."""
    has_headers: bool


class _Rows:
    """Consecutive records that may have one shape, with the ends of their lengths and their own.

    For records of one size these are ranges. They are relative to `origin`, where `body` begins.
    """

    __slots__ = ("_body", "_origin", "begins", "ends")

    def __init__(
        self, body: bytes, begins: Sequence[int], ends: Sequence[int], origin: int = 0
    ) -> None:
        self._body = body
        self._origin = origin
        self.begins = begins
        self.ends = ends

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def end(self) -> int:
        """The end of the last record."""
        return self._origin + self.ends[-1]

    @property
    def are_alike(self) -> bool:
        """Whether all have one size."""
        return isinstance(self.begins, range)

    def column(self, at: int) -> bytes:
        """The byte of each record at this position."""
        begins = self.begins
        if isinstance(begins, range):
            return self._body[begins.start + at : begins.stop + at : begins.step]
        return _picked(self._body[at:], begins)

    def keep(self, at: int, allowed: bytes) -> None:
        """Keep the first records whose byte at a position is allowed."""
        column = self.column(at)
        if column.translate(None, allowed):
            kept = len(column) - len(column.lstrip(allowed))
            self.begins, self.ends = self.begins[:kept], self.ends[:kept]

    def keep_alike(self, at: int) -> None:
        """Keep the first records with the same byte at a position."""
        self.keep(at, self.first(at))

    def first(self, at: int) -> bytes:
        """The byte of the first record at a position."""
        begin = self.begins[0] + at
        return self._body[begin : begin + 1]

    def have_no_headers(self, value: int) -> bool:
        """Whether the value of each record is followed by a single byte, 0: no headers.

        Computed for all records at once, with their numbers side by side in a large one.
        """
        low, high = self.column(value), _lanes(self.column(value + 1))
        ones = _lanes(b"\1" * len(self))
        goes_on = _lanes(low.translate(_SIGNS))
        high &= goes_on * 0xFF
        z_values = _lanes(low.translate(_DIGITS)) + (high << 7)
        if high & ones << 7 or z_values & ones:
            return False  # more than two bytes, or null
        lengths = _lanes_of(self.ends) - _lanes_of(self.begins)
        rests = 2 * (lengths - goes_on) - z_values
        same = rests == (rests & _LANE_BITS) * ones
        return same and not any(_picked(b"\0" + self._body, self.ends))


class _Walk:
    """One walk. `_times` has zigzag numbers, among them the earliest and the latest time."""

    __slots__ = (
        "_body",
        "_count",
        "_headers_left",
        "_keys",
        "_patience",
        "_position",
        "_scatters",
        "_times",
    )

    def __init__(self, body: bytes, count: int, patience: Patience) -> None:
        self._body = body
        self._count = count
        self._patience = patience
        self._headers_left = HEADERS_MAX
        self._position = 0
        self._times: set[int] = set()
        self._keys = 0  # the bits of all keys' lengths; the lowest is set for null
        self._scatters = True  # whether records of different sizes may have one shape

    def run(self) -> Walked:
        """Check all records."""
        number = 0
        while number < self._count:
            run = self._run(number)
            number += run
            end = number
            if run < RUN_MIN:
                self._scatters = False
                end = min(number + RUN_PAUSE, self._count)
            self._patience.spend(end - number)
            self._one_by_one(number, end)
            number = end
        if self._position != len(self._body):
            behind = len(self._body) - self._position
            raise InvalidRecord(f"{behind} bytes behind {self._count} records")
        times = [(z >> 1) ^ -(z & 1) for z in self._times]
        return Walked(min(times), max(times), self._keys & 1 == 1)

    def _one_by_one(self, number: int, end: int) -> None:
        """Check the records [number, end). Numbers of up to two bytes are read inline."""
        body, position, keys, note = self._body, self._position, self._keys, self._times.add
        z_before = -1
        for z_number in range(2 * number, 2 * end, 2):
            z_size = body[position]
            position += 1
            if z_size > 127:
                z_size, position = (
                    (z_size + (high << 7) - 128, position + 1)
                    if (high := body[position]) < 128
                    else _read_int(body, position, z_size)
                )
            record_end = position + (z_size >> 1)
            z_time = body[position + 1]  # after the attributes
            position += 2
            if z_time > 127:
                z_time, position = (
                    (z_time + (high << 7) - 128, position + 1)
                    if (high := body[position]) < 128
                    else read_long(body, position, z_time)
                )
            if z_time != z_before:
                note(z_time)
                z_before = z_time
            z_delta = body[position]
            position += 1
            if z_delta > 127:
                z_delta, position = (
                    (z_delta + (high << 7) - 128, position + 1)
                    if (high := body[position]) < 128
                    else _read_int(body, position, z_delta)
                )
            z_key = body[position]
            keys |= z_key
            position = position + _BEHIND[z_key] if z_key < 128 else _content(body, position)[1]
            z_value = body[position]
            position = (
                position + _BEHIND[z_value]
                if z_value < 128
                else position + 2 + ((z_value + (high << 7) - 128) >> 1)
                if (high := body[position + 1]) < 128 and not z_value & 1
                else _content(body, position)[1]
            )
            position = self._behind_headers(position) if body[position] else position + 1
            if position != record_end or z_delta != z_number or z_size & 1:
                raise InvalidRecord(
                    f"record {z_number >> 1} has offset delta {(z_delta >> 1) ^ -(z_delta & 1)} "
                    f"and ends at byte {position}, its length says {record_end}"
                )
        self._position, self._keys = position, keys

    def _behind_headers(self, position: int) -> int:
        """The end of the headers whose number is at `position`."""
        body = self._body
        count, behind = _header_count(body, position)
        self._headers_left -= count
        if self._headers_left < 0:
            raise InvalidRecord(f"more than {HEADERS_MAX} record headers in a batch")
        self._patience.spend(2 * count)
        for _ in range(count):
            z_name = body[behind]
            value = behind + 1 + (z_name >> 1)
            if z_name < 128 and not z_name & 1 and (z_value := body[value]) < 128:
                behind = value + 1 if z_value & 1 else value + 1 + (z_value >> 1)
            else:
                behind = _header(body, behind)[3]
        return behind

    # -- records of one shape --------------------------------------------------------------------

    def _run(self, number: int) -> int:
        """Check the records from `number` that have one shape. Returns how many there are."""
        limit = 64 if number < 64 else (number // _CYCLE + 1) * _CYCLE
        left = min(limit, self._count) - number
        shape = _shape(self._body, self._position) if left >= RUN_MIN else None
        if shape is None:
            return 0
        if shape.has_headers:
            self._patience.spend(len(shape.lengths))
        rows = self._rows(shape, left)
        if rows is None or not self._is_in_order(rows, shape, number % _CYCLE):
            return 0
        self._note_times([rows.column(at) for at in shape.time])
        self._keys |= rows.first(shape.key.start)[0]
        self._position = rows.end
        return len(rows)

    def _rows(self, shape: _Shape, left: int) -> _Rows | None:
        """The next records, at most `left`, by their lengths alone. None if these do not help."""
        body, start, step = self._body, self._position, shape.size
        begin = start + shape.width
        length = body[start:begin]
        if all(body.startswith(length, start + n * step) for n in _GLANCES):
            run = min(left, (len(body) - start) // step)
            return _Rows(
                body,
                range(begin, begin + run * step, step),
                range(start + step, start + (run + 1) * step, step),
            )
        if not self._scatters or shape.has_headers:
            return None
        rest = body[start:]
        begins, ends = _found(rest, min(left, SCATTERED_MAX))
        self._patience.spend(len(ends) // 3)
        return _Rows(rest[: ends[-1]], begins, ends, start) if ends else None

    def _is_in_order(self, rows: _Rows, shape: _Shape, first: int) -> bool:
        """Keep the records that have the shape. Returns whether they are valid.

        Invalid ones are checked one by one to find out what is wrong.
        """
        for at in shape.time[:-1]:
            rows.keep(at, _HIGH)
        rows.keep(shape.time[-1], _LOW)
        same = [*shape.key, *shape.delta[2:], *(shape.lengths if rows.are_alike else ())]
        for at in same:
            rows.keep_alike(at)
        expected = _DELTAS.get(len(shape.delta), _LONG_DELTAS)
        return (
            len(rows) > 0
            and (rows.are_alike or rows.have_no_headers(shape.value))
            and all(
                rows.column(at) == deltas[first : first + len(rows)]
                for at, deltas in zip(shape.delta, expected, strict=False)
            )
        )

    def _note_times(self, columns: list[bytes]) -> None:
        """Add the extremes of times whose bytes are columns, the least significant one first."""
        lowest = columns[0]
        before_base = len(lowest.translate(None, _EVEN))  # their numbers are odd
        if 0 < before_base < len(lowest):
            odd = [byte & 1 for byte in lowest]
            even = [1 - bit for bit in odd]
            groups = [[bytes(compress(each, bits)) for each in columns] for bits in (odd, even)]
        else:
            groups = [columns]
        for group in groups:
            for extreme in (_least, _largest):
                self._times.add(_read(_extreme(group, extreme), 0)[0])


def _picked(body: bytes, positions: Sequence[int]) -> bytes:
    """The bytes at these positions."""
    if not positions:
        return b""
    return bytes(itemgetter(0, *positions)(body))[1:]  # one position would not give a tuple


def _lanes(column: bytes) -> int:
    """Bytes side by side in one number."""
    lanes = bytearray(_LANE * len(column))
    lanes[::_LANE] = column
    return int.from_bytes(lanes, "little")


def _lanes_of(numbers: Sequence[int]) -> int:
    """Numbers of 32 bits side by side in one number."""
    return int.from_bytes(pack(f"<{len(numbers)}I", *numbers), "little")


def _found(body: bytes, count: int) -> tuple[list[int], list[int]]:
    """The ends of the lengths of `count` records, and of the records.

    Fewer if a length takes more than two bytes or goes beyond the body.
    """
    begins: list[int] = []
    ends: list[int] = []
    position = 0
    for _ in range(count):
        z_size = body[position]
        position += 1
        if z_size > 127:
            z_size += (body[position] << 7) - 128
            position += 1
        if z_size & 1 or z_size >= _TWO_BYTES:
            break
        begins.append(position)
        position += z_size >> 1
        ends.append(position)
    if ends and ends[-1] > len(body):
        begins.pop()
        ends.pop()
    return begins, ends


def _extreme(columns: list[bytes], extreme: Callable[[bytes], int]) -> bytes:
    """The bytes of the smallest or largest number in columns. All numbers have the same length."""
    for at in reversed(range(len(columns))):
        column = columns[at]
        byte = extreme(column)
        begin, end = column.find(byte), column.rfind(byte) + 1
        if column.count(byte) == end - begin:  # as with ascending times
            columns = [each[begin:end] for each in columns]
        else:
            found = [each == byte for each in column]
            columns = [bytes(compress(each, found)) for each in columns]
    return bytes([column[0] for column in columns])


def _least(column: bytes) -> int:
    """The smallest byte of a column. Fast if that is the first one."""
    return min(column.translate(None, _BYTES[column[0] :]), default=column[0])


def _largest(column: bytes) -> int:
    """The largest byte of a column. Fast if that is the last one."""
    return max(column.translate(None, _BYTES[: column[-1] + 1]), default=column[-1])


def _shape(body: bytes, start: int) -> _Shape | None:
    """The shape of the record at `start`. None if it must be checked on its own."""
    z_size, begin = _read(body, start)
    delta = _read(body, begin + 1)[1]
    key = _read(body, delta)[1]
    key_begin, value = _content(body, key)
    value_begin, headers = _content(body, value)
    count, end = _header_count(body, headers)
    if count > SHAPED_HEADERS_MAX:
        return None
    lengths = [*range(start, begin), *range(value, value_begin), *range(headers, end)]
    for _ in range(count):
        name, name_begin, held, end = _header(body, end)
        value_length = range(held, _read(body, held)[1])
        lengths += (*range(name, name_begin), *value_length)
    if end != begin + (z_size >> 1) or z_size & 1:
        return None
    return _Shape(
        begin - start,
        end - start,
        range(1, delta - begin),
        range(delta - begin, key - begin),
        range(key - begin, key_begin - begin),
        value - begin,
        [at - begin for at in lengths],
        has_headers=body[headers] != 0,
    )


# -- one field -----------------------------------------------------------------------------------


def _read(body: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag number of 64 bits. Returns it and the position after it."""
    first = body[position]
    return read_long(body, position + 1, first) if first > 127 else (first, position + 1)


def _read_int(body: bytes, position: int, first: int) -> tuple[int, int]:
    """Read a zigzag number of 32 bits. `first` is its first byte, `position` the one after it."""
    z, behind = read_long(body, position, first)
    if behind - position >= _INT32_BYTES_MAX or z >> 32:
        raise DecodeError(f"number of more than 32 bits before byte {behind}")
    return z, behind


def _length(body: bytes, position: int) -> tuple[int, int]:
    """Read a length or -1 as a zigzag number. Returns it and the position after it."""
    z, behind = body[position], position + 1
    if z > 127:
        z, behind = _read_int(body, behind, z)
    if z & 1 and z != _NULL:
        raise InvalidRecord(f"length {-(z >> 1) - 1} at byte {position}")
    return z, behind


def _content(body: bytes, position: int) -> tuple[int, int]:
    """The start and end of the key or value whose length is at `position`."""
    z, begin = _length(body, position)
    return begin, begin + (z >> 1)


def _header_count(body: bytes, position: int) -> tuple[int, int]:
    """Read a record's number of headers. Returns it and the position after it."""
    z_count, behind = _length(body, position)
    if z_count == _NULL:
        raise InvalidRecord("negative number of record headers")
    return z_count >> 1, behind


def _header(body: bytes, position: int) -> tuple[int, int, int, int]:
    """The starts of a header's name length, name and value length, and the header's end.

    A value with any negative length is null, as in Java.
    """
    z_name, begin = _length(body, position)
    if z_name == _NULL:
        raise InvalidRecord("record header without a name")
    value = begin + (z_name >> 1)
    z_value, behind = body[value], value + 1
    if z_value > 127:
        z_value, behind = _read_int(body, behind, z_value)
    return position, begin, value, behind if z_value & 1 else behind + (z_value >> 1)

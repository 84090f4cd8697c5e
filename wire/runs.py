"""Runs: consecutive records of equal size whose fields are at the same positions.

A producer whose keys and values have fixed sizes, or whose keys are null, writes little else. The
bytes of all these records at one position are a *column*: a slice of the batch with a step. A few
operations on columns tell how many records are alike, and `struct` extracts their keys and values,
without interpreted code per record.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from struct import Struct
from typing import NamedTuple

from raylog.wire.buffers import Buffer
from raylog.wire.varint import TABLE_SIZE, decode_varint, read_long, varint_table

RUN_MIN = 8
"""The fewest records of a run. Fewer are read faster one by one."""
RUN_TRIED = 256
"""Records to try together at first. It grows by a factor of four with each success."""
_SIZE_BYTES_MAX = 5
"""The most bytes of a record's length."""
_DELTA_BYTES_MAX = 4
"""The most bytes of a timestamp or offset difference. No usual batch has longer ones."""
_LAST = bytes(range(128))
"""Values of the last byte of a varint."""
_MORE = bytes(range(128, 256))
"""Values of the other bytes of a varint."""
_EVEN = bytes(range(0, 256, 2))
"""Values of the first byte of a number that is not negative."""
_ONE_BYTE = 64
"""Numbers from 0 to below this are varints of one byte."""

Cells = tuple[int, int, bytes | None, bytes | None, tuple[()]]
"""Offset, timestamp, key, value, and headers, which are empty."""


@dataclass(frozen=True, slots=True)
class Run:
    """Records that were read together."""

    count: int
    end: int
    """The end of the last record."""
    cells: Iterator[Cells]


class _Layout(NamedTuple):
    """The positions of a record's fields, from the start of its length."""

    time: int
    offset: int
    key_size: int
    key: int
    value_size: int
    value: int
    headers: int
    """The position of the number of headers, 0, which is the last byte."""


def run_of(body: Buffer, start: int, count: int) -> tuple[int, int]:
    """Count up to `count` records as long as the one at `start`; 0 if few are.

    Returns that length, too. Raises IndexError or DecodeError if the first length is malformed.
    """
    z_size, behind = body[start], start + 1
    if z_size > 127:
        z_size, behind = read_long(body, behind, z_size)
    width = behind - start
    step = width + (z_size >> 1)
    run = min(count, (len(body) - start) // step)
    if run < RUN_MIN or width > _SIZE_BYTES_MAX:
        return 0, step
    size = bytes(body[start:behind])
    another = start + (RUN_MIN - 1) * step
    if body[another : another + width] != size:
        return 0, step
    for at in range(width):
        run = _alike(_column(body, start + at, run, step), size[at : at + 1])
    return (run if run >= RUN_MIN else 0), step


def read_run(
    body: bytes, start: int, count: int, base_offset: int, base_timestamp: int
) -> Run | None:
    """Read up to `count` similar records from `start`. None if few are, or if they have headers.

    Raises like `run_of` if the first record is malformed, or leaves that to the caller.
    """
    run, step = run_of(body, start, count)
    layout = _layout_of(body, start, step) if run else None
    if layout is None:
        return None
    run = _run_of_layout(body, start, run, step, layout)
    if run < RUN_MIN:
        return None
    end = start + run * step
    times = _columns(body, start, run, step, layout.time, layout.offset)
    deltas = _columns(body, start, run, step, layout.offset, layout.key_size)
    records = memoryview(body)[start:end]
    return Run(
        run,
        end,
        zip(
            _offsets(deltas, base_offset),
            _times(times, base_timestamp),
            _cut_out(records, step, layout.key_size, layout.key, layout.value_size),
            _cut_out(records, step, layout.value_size, layout.value, layout.headers),
            repeat(()),
            strict=False,
        ),
    )


def _layout_of(body: bytes, start: int, step: int) -> _Layout | None:
    """The layout of a record. None if it has headers, is unusual, or has another end."""
    total, attributes = decode_varint(body, start)
    time = attributes + 1
    _, offset = decode_varint(body, time)
    _, key_size = decode_varint(body, offset)
    size, key = decode_varint(body, key_size)
    value_size = key + max(size, 0)
    if value_size >= start + step or max(offset - time, key_size - offset) > _DELTA_BYTES_MAX:
        return None
    size, value = decode_varint(body, value_size)
    headers = value + max(size, 0)
    if total < 0 or headers != start + step - 1 or body[headers]:
        return None
    places = (time, offset, key_size, key, value_size, value, headers)
    return _Layout(*(place - start for place in places))


def _run_of_layout(body: bytes, start: int, run: int, step: int, layout: _Layout) -> int:
    """How many of the records have the layout of the first one."""
    same = chain(
        range(layout.key_size, layout.key),
        range(layout.value_size, layout.value),
        (layout.headers,),
    )
    for place in same:
        found = _column(body, start + place, run, step)
        run = _alike(found, found[:1])
    for first, behind in ((layout.time, layout.offset), (layout.offset, layout.key_size)):
        for place in range(first, behind):
            found = _column(body, start + place, run, step)
            run = _alike(found, _LAST if place == behind - 1 else _MORE)
    return _alike(_column(body, start + layout.offset, run, step), _EVEN)


def _column(body: Buffer, at: int, count: int, step: int) -> bytes:
    """One byte of each of `count` records."""
    return bytes(body[at : at + (count - 1) * step + 1 : step])


def _columns(
    body: bytes, start: int, count: int, step: int, first: int, behind: int
) -> list[bytes]:
    return [_column(body, start + place, count, step) for place in range(first, behind)]


def _alike(column: bytes, kind: bytes) -> int:
    """How many of the first bytes are in `kind`."""
    if not column.translate(None, kind):
        return len(column)
    return len(column) - len(column.lstrip(kind))


@cache
def _in_order() -> bytes:
    """The numbers from 0 as varints: those of one byte, then those of two."""
    return b"".join(varint_table()[:TABLE_SIZE])


def _offsets(columns: list[bytes], base: int) -> Iterable[int]:
    """The offsets. Consecutive ones, the usual case, are a range."""
    width, count = len(columns), len(columns[0])
    (first,) = _numbers([column[:1] for column in columns])
    begin = first if width == 1 else _ONE_BYTE + 2 * (first - _ONE_BYTE)
    if width <= 2 and begin >= 0:
        expected = _in_order()[begin : begin + count * width]
        if all(expected[at::width] == columns[at] for at in range(width)):
            return range(base + first, base + first + count)
    return [base + number for number in _numbers(columns)]


def _times(columns: list[bytes], base: int) -> Iterable[int]:
    """The timestamps. Often many records have the same millisecond."""
    if all(not column.translate(None, column[:1]) for column in columns):
        (number,) = _numbers([column[:1] for column in columns])
        return repeat(base + number, len(columns[0]))
    return [base + number for number in _numbers(columns)]


def _numbers(columns: list[bytes]) -> Iterator[int]:
    """Decode varints of one width from their columns."""
    zigzags: Iterable[int] = columns[-1]
    for column in columns[-2::-1]:
        zigzags = [high << 7 | low & 0x7F for high, low in zip(zigzags, column, strict=True)]
    return ((zigzag >> 1) ^ -(zigzag & 1) for zigzag in zigzags)


def _cut_out(
    records: memoryview, step: int, size_at: int, start: int, end: int
) -> Iterable[bytes | None]:
    """The keys or values of all records; null if the first one's size is negative."""
    if records[size_at] & 1:
        return repeat(None)
    one = Struct(f"{start}x{end - start}s{step - end}x")
    return chain.from_iterable(one.iter_unpack(records))

"""When a segment is full, too old, or has room: each limit, and values next to it."""

import pytest

from raylog.storage.layout import segment_name
from raylog.storage.segment import Segment
from raylog.wire.records import read_header
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import NOW_MS, batch

BASE = 1_000
SIZE = 100
"""Bytes of data in each segment here."""
MANY = 1 << 40
OFFSETS_MAX = 2**31 - 1


def segment(*, size: int = SIZE, entries: int = 0, timestamp: int = NOW_MS) -> Segment:
    made = Segment(segment_name(BASE, 0), created_ms=NOW_MS)
    if size:
        made.note_batch(BASE, BASE + 1, size, timestamp, MANY)
    for number in range(entries):
        assert made.index is not None
        made.index.add(number + 1, number + 1, timestamp)
    return made


@pytest.mark.parametrize(("beyond", "is_full"), [(-1, False), (0, False), (1, True)])
def test_a_segment_is_full_when_a_batch_would_exceed_its_bytes(beyond: int, is_full: bool) -> None:
    header = read_header(batch())
    limit = SIZE + header.size - beyond
    assert segment().is_full_for(header, BASE + 2, limit, MANY) == is_full
    assert not segment(size=0).is_full_for(header, BASE + 1, 1, MANY)


@pytest.mark.parametrize(("beyond", "is_full"), [(0, False), (1, True)])
def test_a_segment_is_full_when_an_offset_would_be_too_far_from_its_first(
    beyond: int, is_full: bool
) -> None:
    next_offset = BASE + OFFSETS_MAX + beyond
    assert segment().is_full_for(read_header(batch()), next_offset, MANY, MANY) == is_full
    assert segment().has_room_for(next_offset, SIZE, MANY, MANY) != is_full


@pytest.mark.parametrize(("entries", "is_full"), [(9, False), (10, True), (11, True)])
def test_a_segment_is_full_when_its_index_is(entries: int, is_full: bool) -> None:
    full = segment(entries=entries)
    assert full.is_full_for(read_header(batch()), BASE + 2, MANY, 80) == is_full


@pytest.mark.parametrize(("beyond", "has_room"), [(-1, True), (0, True), (1, False)])
def test_several_batches_have_room_up_to_the_bytes_of_a_segment(
    beyond: int, has_room: bool
) -> None:
    assert segment().has_room_for(BASE + 5, 50 + beyond, SIZE + 50, MANY) == has_room


@pytest.mark.parametrize(("bytes_left", "has_room"), [(49, False), (50, False), (51, True)])
def test_several_batches_have_room_if_they_could_not_fill_the_index_by_an_entry_for_each_byte(
    bytes_left: int, has_room: bool
) -> None:
    there = segment(entries=4)
    assert there.has_room_for(BASE + 5, 50, MANY, 4 * 8 + bytes_left) == has_room
    there.index = None
    assert not there.has_room_for(BASE + 5, 50, MANY, MANY)


def test_batches_of_an_empty_segment_are_looked_at_one_by_one() -> None:
    """The first may be larger than a segment."""
    assert not segment(size=0).has_room_for(BASE + 5, 50, MANY, MANY)


@pytest.mark.parametrize(("beyond", "is_due"), [(-1, False), (0, False), (1, True)])
def test_a_segment_is_due_by_the_times_of_its_records(beyond: int, is_due: bool) -> None:
    there = segment(timestamp=NOW_MS - 5_000)
    assert there.is_due(NOW_MS + beyond, 0, 5_000) == is_due
    assert segment(timestamp=0).is_due(5_000 + beyond, 0, 5_000) == is_due
    assert not segment(timestamp=0).is_due(0, MANY + NOW_MS, 5_000)


@pytest.mark.parametrize(("beyond", "is_due"), [(-1, False), (0, False), (1, True)])
@pytest.mark.parametrize(("first", "timestamp"), [(-1, 0), (0, -1), (-1, -1)])
def test_a_segment_is_due_by_the_clock_where_either_has_no_time(
    first: int, timestamp: int, beyond: int, is_due: bool
) -> None:
    there = segment(timestamp=first)
    assert there.is_due(timestamp, NOW_MS + 5_000 + beyond, 5_000) == is_due
    assert not segment(size=0).is_due(timestamp, NOW_MS + 5_000 + beyond, 5_000)


def test_an_entry_comes_once_the_interval_has_passed_since_the_last() -> None:
    there = segment(size=0)
    for number, timestamp in enumerate((7, 5, 9, 9, 3, 2)):
        there.note_batch(BASE + 2 * number, BASE + 2 * number + 2, 50, timestamp, 100)
    index = there.index
    assert index is not None
    entries = list(zip(index.offsets, index.positions, index.timestamps, strict=True))
    assert entries == [(4, 100, 7), (8, 200, 9)]
    assert (there.size, there.next_offset) == (300, BASE + 12)
    assert (there.first_timestamp, there.max_timestamp) == (7, 9)
    assert there.max_timestamp_offset == BASE + 4, "the first of those with the largest time"


def test_segment_without_timestamps_has_no_max_timestamp() -> None:
    there = segment(timestamp=-1)
    assert (there.first_timestamp, there.max_timestamp, there.max_timestamp_offset) == (-1, -1, -1)


def test_cleared_segment_equals_a_new_one() -> None:
    there = segment(entries=3)
    there.clear()
    fresh = segment(size=0)
    kept = [name for name in Segment.__slots__ if name != "index"]
    assert [getattr(there, name) for name in kept] == [getattr(fresh, name) for name in kept]
    assert there.index is not None
    assert len(there.index) == 0


KIB = 1024
MIB = 1024 * KIB


@pytest.mark.parametrize(
    ("size", "needed", "segment_bytes", "expected"),
    [
        (0, 1, MIB, 64 * KIB),
        (64 * KIB, 64 * KIB + 1, MIB, 128 * KIB),
        (100 * KIB, 100 * KIB + 1, MIB, 200 * KIB),  # by as much as there is,
        (200 * MIB, 200 * MIB + 1, 1024 * MIB, 264 * MIB),  # but by no more than 64 MiB,
        (700 * KIB, 700 * KIB + 1, MIB, MIB),  # up to the segment's size,
        (0, 2 * MIB, MIB, 2 * MIB),  # and as far as is needed
        (0, 300 * KIB, MIB, 300 * KIB),
    ],
)
def test_a_file_is_extended_ahead(
    size: int, needed: int, segment_bytes: int, expected: int
) -> None:
    class Lengths(FaultyDisk):
        def ftruncate(self, fd: int, size: int, /) -> None:
            lengths.append((fd, size))

    lengths: list[tuple[int, int]] = []
    there = segment()
    there.fd, there.file_size = 3, size
    there.extend(Lengths(), needed, segment_bytes)
    assert (lengths, there.file_size) == ([(3, expected)], expected)

"""Bounds, ranges, splits and shares, without brokers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from raylog.client.cluster import TopicPartition
from raylog.ray_data.planning import (
    BadBound,
    Extent,
    OffsetRange,
    OffsetsUnavailable,
    limited,
    ranges_between,
    resolve,
    split,
)

A, B, C = (TopicPartition("t", number) for number in range(3))
EXTENTS = {A: Extent(0, 100, 1_000), B: Extent(40, 50), C: Extent(7, 7)}


def test_words_are_the_ends_of_the_log() -> None:
    assert resolve("earliest", EXTENTS, {}) == {A: 0, B: 40, C: 7}
    assert resolve("latest", EXTENTS, {}) == {A: 100, B: 50, C: 7}


def test_a_time_is_where_it_was_found_or_the_end() -> None:
    assert resolve(datetime(2026, 1, 1, tzinfo=UTC), EXTENTS, {A: 5}) == {A: 5, B: 50, C: 7}


def test_offsets_stay_as_they_are() -> None:
    assert resolve({A: 100, C: 7}, EXTENTS, {}) == {A: 100, C: 7}


@pytest.mark.parametrize("wrong", [{A: 101}, {B: 39}, {TopicPartition("t", 3): 0}])
def test_offsets_outside_the_log_are_refused(wrong: dict[TopicPartition, int]) -> None:
    with pytest.raises(OffsetsUnavailable):
        resolve(wrong, EXTENTS, {})


def test_other_words_mean_nothing() -> None:
    with pytest.raises(BadBound, match="newest"):
        resolve("newest", EXTENTS, {})


def test_ranges_leave_out_what_is_empty_and_share_the_bytes() -> None:
    assert ranges_between({A: 10, B: 50}, {A: 60}, EXTENTS) == [OffsetRange(A, 10, 60, 500)]


def test_partitions_that_bounds_leave_out_are_read_whole() -> None:
    assert ranges_between({}, {}, EXTENTS) == [
        OffsetRange(A, 0, 100, 1_000),
        OffsetRange(B, 40, 50),
    ]


def test_a_start_that_was_deleted_is_a_loss() -> None:
    with pytest.raises(OffsetsUnavailable, match="30 was deleted"):
        ranges_between({B: 30}, {}, EXTENTS)


@pytest.mark.parametrize(
    ("whole", "count"),
    [
        (OffsetRange(A, 0, 1, 0), 1),
        (OffsetRange(A, 5, 15, 0), 1),
        (OffsetRange(A, 5, 16, 0), 2),
        (OffsetRange(A, 5, 105, 0), 10),
        (OffsetRange(A, 0, 10, 1_000), 10),
        (OffsetRange(A, 0, 10, 301), 4),
        (OffsetRange(A, 0, 3, 10_000), 3),
    ],
)
def test_parts_cover_a_range_without_gap_or_overlap(whole: OffsetRange, count: int) -> None:
    parts = split([whole], records_max=10, bytes_max=100)
    assert len(parts) == count
    assert [n for part in parts for n in range(part.start, part.end)] == list(
        range(whole.start, whole.end)
    )
    sizes = [part.end - part.start for part in parts]
    assert max(sizes) <= 10
    assert max(sizes) - min(sizes) <= 1


def test_a_batch_without_limit_is_all_there_is() -> None:
    assert limited({A: 0, B: 40}, {A: 100, B: 50}, None) == {A: 100, B: 50}
    assert limited({A: 0, B: 40}, {A: 100, B: 50}, 110) == {A: 100, B: 50}


def test_a_limit_is_shared_out_by_what_waits() -> None:
    assert limited({A: 0, B: 40}, {A: 100, B: 50}, 22) == {A: 20, B: 42}


def test_none_starves_and_none_goes_back() -> None:
    ends = limited({A: 0, B: 49, C: 9}, {A: 1_000_000, B: 50, C: 7}, 10)
    assert ends == {A: 9, B: 50, C: 9}

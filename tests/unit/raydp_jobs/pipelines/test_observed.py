"""What a batch's own job reports about unparsable records, and what is read again for that."""

from __future__ import annotations

import json

from raylog.client.cluster import TopicPartition
from raylog.client.offsets import EARLIEST
from raylog.raydp_jobs.pipelines.observed import bad_ranges
from raylog.raydp_jobs.pipelines.reading import _narrowed

A, B, C = (TopicPartition("t", n) for n in range(3))


def observation(rows: int, *places: tuple[int, int]) -> str:
    """Of blocks of partitions of one topic."""
    bad = [{"_topic": "t", "_partition": partition, "block": block} for partition, block in places]
    return json.dumps({"rows": rows, "bad": bad})


def test_blocks_become_ranges() -> None:
    metrics = observation(9_000, (0, 3), (1, 0), (0, 1))
    assert bad_ranges(metrics) == {A: (1_000, 4_000), B: (0, 1_000)}


def test_a_job_that_has_seen_rows_and_nothing_bad() -> None:
    assert bad_ranges(observation(1)) == {}


def test_a_job_that_has_seen_nothing_tells_nothing() -> None:
    assert bad_ranges(observation(0)) is None


def test_reread_ranges_lie_within_the_batch() -> None:
    starts, ends = {A: 1_500, C: 7}, {A: 9_000, B: 500, C: 900}
    bad = {A: (1_000, 4_000), B: (0, 1_000)}
    assert _narrowed(starts, ends, bad) == {A: (1_500, 4_000), B: (EARLIEST, 500)}


def test_everything_is_read_again_where_nothing_is_reported() -> None:
    starts, ends = {A: 5, C: 7}, {A: 9, B: 500, C: 7}
    assert _narrowed(starts, ends, None) == {A: (5, 9), B: (EARLIEST, 500)}

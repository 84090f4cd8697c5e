"""What a batch's own job reports about unparsable records, and what is read again for that."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import MagicMock

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.offsets import EARLIEST
from raylog.raydp_jobs.pipelines.failures import BatchNotWritten
from raylog.raydp_jobs.pipelines.observed import Observer, bad_ranges
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


def reading(*marks: int) -> Any:
    """A query, or rows, in which records with these marks do not parse."""
    found: Any = MagicMock()
    text = json.dumps({"rows": 9, "bad": [], "marks": marks})
    for execution in (
        found._jsq.streamingQuery.return_value.lastExecution.return_value,
        found._jdf.queryExecution.return_value,
    ):
        execution.observedMetrics.return_value.get.return_value.get.return_value.json = lambda: text
    return found


def test_records_that_do_not_parse_must_be_the_same_when_they_are_read_again() -> None:
    observer = Observer(reading(4, 7))
    observer.check_again("sources.a", reading(7, 9, 4))
    with pytest.raises(BatchNotWritten, match=r"sources\.a: records that did not parse"):
        observer.check_again("sources.a", reading(4, 9))


def test_reread_ranges_lie_within_the_batch() -> None:
    starts, ends = {A: 1_500, C: 7}, {A: 9_000, B: 500, C: 900}
    bad = {A: (1_000, 4_000), B: (0, 1_000)}
    assert _narrowed(starts, ends, bad) == {A: (1_500, 4_000), B: (EARLIEST, 500)}


def test_everything_is_read_again_where_nothing_is_reported() -> None:
    starts, ends = {A: 5, C: 7}, {A: 9, B: 500, C: 7}
    assert _narrowed(starts, ends, None) == {A: (5, 9), B: (EARLIEST, 500)}

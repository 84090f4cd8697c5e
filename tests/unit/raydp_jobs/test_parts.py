"""Batches of several parts: which part is next, and what happens to parts without rows."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.parts import BatchPart, run_parts
from raylog.sink.commit import Event, TaskReport, WriteLost, Written
from raylog.sink.rows import Topics

OUT, BAD, BAD_1 = TopicPartition("out", 0), TopicPartition("bad", 0), TopicPartition("bad", 1)
TOPICS = Topics({"out": 1, "bad": 2})


class Runs:
    """Writes one row to each partition, and records requests."""

    def __init__(self, lost: str = "") -> None:
        self.calls: list[tuple[Any, Topics]] = []
        self._lost = lost

    def __call__(self, rows: Any, topics: Topics) -> Event:
        self.calls.append((rows, topics))
        if rows == self._lost:
            return WriteLost("an executor is gone")
        return Written([TaskReport(key, 1, 0) for key in topics.targets()])


def part(topic: str, rows: Any) -> BatchPart:
    return BatchPart([topic], lambda: rows)


def test_each_part_is_written_to_its_own_topics() -> None:
    runs = Runs()
    found = run_parts([part("out", "rows"), part("bad", "letters")], TOPICS, runs)
    assert runs.calls == [("rows", Topics({"out": 1})), ("letters", Topics({"bad": 2}))]
    assert found == Written([TaskReport(key, 1, 0) for key in (OUT, BAD, BAD_1)])


def test_a_part_without_rows_needs_no_job() -> None:
    runs = Runs()
    found = run_parts([part("out", "rows"), part("bad", None)], TOPICS, runs)
    assert len(runs.calls) == 1
    nothing = [TaskReport(BAD, 0, -1), TaskReport(BAD_1, 0, -1)]
    assert found == Written([TaskReport(OUT, 1, 0), *nothing])


def test_a_part_is_made_when_those_before_are_written() -> None:
    runs = Runs()

    def made_then() -> Any:
        assert len(runs.calls) == 1
        return "letters"

    run_parts([part("out", "rows"), BatchPart(["bad"], made_then)], TOPICS, runs)
    assert len(runs.calls) == 2


def test_lost_write_ends_the_run() -> None:
    runs = Runs(lost="rows")
    found = run_parts([part("out", "rows"), part("bad", "letters")], TOPICS, runs)
    assert found == WriteLost("an executor is gone")
    assert len(runs.calls) == 1


def test_a_part_may_only_look() -> None:
    look = BatchPart([], lambda: None)
    found = run_parts([part("out", "rows"), look], Topics({"out": 1}), Runs())
    assert found == Written([TaskReport(OUT, 1, 0)])


def test_every_topic_is_in_one_part() -> None:
    with pytest.raises(AssertionError, match="are not the sink's topics"):
        run_parts([part("out", "rows")], TOPICS, Runs())

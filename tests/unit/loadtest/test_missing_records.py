"""Records that readers should have received but did not, by the second of their schedule."""

from __future__ import annotations

import random

import numpy as np

from raylog.client import TopicPartition
from raylog.loadtest.merged_reports import MergedReports
from raylog.loadtest.missing_records import (
    UNRECEIVED,
    RecordRuns,
    as_failures,
    readers,
    unreceived,
)
from raylog.loadtest.scenario import Scenario, Threshold
from raylog.loadtest.verdicts import Measured, judge

SCENARIO = Scenario.model_validate(
    {
        "name": "s",
        "question": "?",
        "duration_s": 30,
        "topics": {"t": {}, "u": {}},
        "users": [
            {"kind": "producer", "topic": "t", "rate": 1},
            {"kind": "consumer", "topic": "t", "count": 3},
            {"kind": "group", "topic": "t", "group": "g"},
            {"kind": "group", "topic": "t", "group": "g", "processing_ms": 5},
            {"kind": "catch-up", "topic": "u"},
        ],
    }
)


def written(*second_of: int, first: int = 0) -> RecordRuns:
    """Records one behind the other, by the seconds they were meant for."""
    found = RecordRuns()
    seconds = np.array(second_of, np.int64)
    found.add(np.arange(first, first + len(seconds)), seconds)
    return found


def test_readers_are_groups_and_entries_of_consumers() -> None:
    assert readers(SCENARIO) == {("users 1", "t"), ("group g", "t")}


def received(*spans: tuple[int, int]) -> RecordRuns:
    """What was read in these spans of offsets."""
    found = RecordRuns()
    for first, end in spans:
        found.add(np.arange(first, end), np.zeros(end - first, np.int64))
    return found


def test_records_that_were_not_received_are_counted_by_second() -> None:
    found = written(0, 0, 1, 1, 1, 2)
    assert found.missing_in(received()) == {0: 2, 1: 3, 2: 1}
    assert found.missing_in(received((0, 3))) == {1: 2, 2: 1}
    assert found.missing_in(received((0, 6))) == {}


def test_records_that_a_reader_skips_were_not_received() -> None:
    found = written(*(offset // 100 for offset in range(1_000)))
    assert found.missing_in(received((0, 100), (900, 1_000))) == dict.fromkeys(range(1, 9), 100)
    assert found.missing_in(received((150, 1_000), (0, 120))) == {1: 30}, "another member"
    assert found.missing_in(received((0, 500), (400, 700), (200, 999))) == {9: 1}, "read again"


def test_what_readers_skip_of_a_log_with_gaps_is_counted_once() -> None:
    chance = random.Random(1)
    for _ in range(200):
        offsets = sorted(chance.sample(range(60), 40))  # the rest: markers, aborted records
        log, got, reads = RecordRuns(), RecordRuns(), set[int]()
        log.add(np.array(offsets), np.array(offsets) // 10)
        for _ in range(chance.randrange(6)):
            first = chance.randrange(60)
            read = [one for one in offsets[: chance.randrange(41)] if one >= first]
            got.add(np.array(read, np.int64), np.zeros(len(read), np.int64))
            reads.update(read)
        found = log.missing_in(got)
        left = [one // 10 for one in offsets if one not in reads]
        assert found == {second: left.count(second) for second in left}


def test_offsets_may_have_gaps_and_come_in_parts() -> None:
    found = written(0, 0)
    found.add(np.array([2, 3, 9, 10, 11]), np.array([0, 1, 1, 0, 0]))
    found.add(np.array([], np.int64), np.array([], np.int64))
    assert found.missing_in(received()) == {0: 5, 1: 2}
    assert found.missing_in(received((0, 4))) == {1: 1, 0: 2}
    assert found.missing_in(received((0, 11))) == {0: 1}


def test_each_reader_is_to_receive_each_record() -> None:
    logs = {
        TopicPartition("t-run", 0): written(*range(30)),
        TopicPartition("t-run", 1): written(*range(30)),
        TopicPartition("u-run", 0): written(*range(30)),
    }
    read = {
        ("group g", "t-run", 0): received((0, 30)),
        ("group g", "t-run", 1): received((0, 29)),
        ("users 1", "t-run", 0): received((0, 25)),
    }
    found = unreceived(readers(SCENARIO), read, logs, "{}-run".format, 30.0)
    alone = dict.fromkeys(range(28), 1)
    assert found == {**alone, 25: 2, 26: 2, 27: 2}, "the last 2 s may be on their way"


def test_a_reader_that_stands_still_breaks_thresholds() -> None:
    """It received everything at once until it was held up."""
    gathered = MergedReports()
    for of in (received((1, 3)), received((0, 2))):  # of two processes
        gathered.receive([("users 1", "t-run", 0, of.rows.tobytes())])
    logs = {TopicPartition("t-run", 0): written(*range(10))}
    seconds = unreceived({("users 1", "t")}, gathered.received, logs, "{}-run".format, 10.0)
    gathered.add([as_failures("end-to-end", seconds)], b"", [], None)
    found = gathered.operations(0, 10)
    assert found["end-to-end"].errors == {UNRECEIVED: 5}
    assert gathered.counted("end-to-end", 3, 8) == (0, 5)
    limits = [
        Threshold(operation="end-to-end", errors_share=0.5),
        Threshold(operation="end-to-end", percentile="p99_ms", max_ms=1e6),
    ]
    verdicts = judge(limits, Measured(found, 10, 10, 10, None))
    assert [one.held for one in verdicts] == [False, False]

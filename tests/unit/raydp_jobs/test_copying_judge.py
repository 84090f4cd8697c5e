"""The judge of the Spark job under kills, on made-up histories, and the jobs' expected results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from tests.copying.judge import BatchJudge
from tests.copying.spark_jobs import PARTITIONS, WINDOW_MS, Aggregation, Copying

JOB = Copying(6)
SIZES = {(0, 0): 4, (0, 1): 2}
CLEAN = [
    (0, "0 0 0.0"),
    (0, "3 9 0.0"),
    (1, "1 1 0.0"),
    (0, "4 16 0.1"),
    (1, "2 4 0.0"),
    (1, "5 25 0.1"),
]
"""Two batches over two partitions; partition 0 is read ahead."""


def judged(rows: Sequence[tuple[int, str]]) -> list[str]:
    """Kinds of what is wrong with rows in the order in which they were read."""
    judge = BatchJudge(JOB)
    for offset, (partition, text) in enumerate(rows):
        judge.take(partition, offset, text.encode())
    judge.finish(SIZES)
    return [line.partition(":")[0] for line in judge.lines()]


def test_nothing_is_wrong_with_whole_batches() -> None:
    assert judged(CLEAN) == []


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (CLEAN[:-1], ["lost", "torn batch"]),
        ([*CLEAN[:-1], (1, "4 16 0.1")], ["duplicate", "lost"]),
        ([*CLEAN, (1, "5 25 0.1")], ["duplicate", "torn batch"]),
        ([*CLEAN[:4], CLEAN[5], CLEAN[4]], ["late row of a batch"]),
        ([*CLEAN[:-1], (1, "5 24 0.1")], ["not expected", "lost"]),
        ([*CLEAN, (1, "6 36 0.1")], ["not expected", "torn batch"]),
        ([*CLEAN[:-1], (1, "5 25 0.0")], ["torn batch", "torn batch"]),
        ([*CLEAN[:-1], (1, "5 25 1.0")], ["torn batch", "torn batch"]),
    ],
)
def test_copy_errors_are_reported(rows: list[tuple[int, str]], wrong: list[str]) -> None:
    assert judged(rows) == wrong


def test_an_offset_that_comes_again_is_reported() -> None:
    judge = BatchJudge(JOB)
    judge.take(0, 5, b"0 0 0.0")
    judge.take(0, 5, b"3 9 0.0")
    assert list(judge.lines()) == ["offset given again: 0@5 after 5"]


def test_rows_without_a_batch_are_counted() -> None:
    """Spark's own sink does not tell the batch."""
    judge = BatchJudge(JOB)
    for offset, row in enumerate([0, 1, 1, 2, 3, 4, 5]):
        judge.take(0, offset, f"{row} {row * row} -".encode())
    assert (judge.rows, judge.distinct, judge.is_complete, judge.batches) == (7, 6, True, 0)


def test_the_spread_is_that_of_the_slowest_batch_and_the_pace_that_of_the_first_rows() -> None:
    ticks = count()
    judge = BatchJudge(JOB, clock=lambda: float(next(ticks)))
    for offset, (partition, text) in enumerate(CLEAN):
        judge.take(partition, offset, text.encode())
    assert judge.spread_s == 4.0
    assert judge.pace_s == 3.0


def write(checkpoint: Path, ends: Sequence[Sequence[int]], watermarks: Sequence[int] = ()) -> None:
    """A checkpoint whose batches read up to these offsets."""
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "sources" / "0").mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": "query"}))
    for batch, offsets in enumerate(ends):
        line = json.dumps({"source": dict(enumerate(offsets))})
        head = json.dumps({"batchWatermarkMs": watermarks[batch] if watermarks else 0})
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{head}\n{line}")
    first = json.dumps({"source": dict.fromkeys(range(len(ends[0])), 5)})
    (checkpoint / "sources" / "0" / "0").write_text(f"v1\n{first}")


def test_a_batch_of_the_copy_has_the_rows_that_were_read_for_it(tmp_path: Path) -> None:
    write(tmp_path, [(7, 6), (7, 6), (9, 10)])
    assert Copying(100).sizes({3: tmp_path}) == {(3, 0): 3, (3, 1): 0, (3, 2): 6}


def test_a_batch_of_the_aggregation_has_the_windows_that_its_watermark_closed(
    tmp_path: Path,
) -> None:
    job = Aggregation(300)
    groups = [sum(one.startswith(f"{n * WINDOW_MS}.") for one in job.ids()) for n in range(3)]
    write(tmp_path, [(0,)] * 4, [0, WINDOW_MS - 1, 2 * WINDOW_MS, 9 * WINDOW_MS])
    assert job.sizes({0: tmp_path}) == {
        (0, 0): 0,
        (0, 1): 0,
        (0, 2): groups[0] + groups[1],
        (0, 3): groups[2],
    }


def test_the_aggregation_counts_every_row_once() -> None:
    job = Aggregation(300)
    contents = [job.content(one) or "" for one in job.ids()]
    assert job.total == len(contents)
    assert sum(int(text.split(".")[0]) for text in contents) == 300
    assert sum(int(text.split(".")[1]) for text in contents) == sum(range(300))
    assert job.content("7.7") is None
    assert job.source_rows > 300 + PARTITIONS

"""A pipeline does not wait for ever for executors that never start."""

from __future__ import annotations

import pytest

from raylog.raydp_jobs.pipelines.executors import LOOK_S, LOST_S, Executors
from raylog.raydp_jobs.pipelines.failures import BatchNotWritten


class Spark:
    """A session with a clock and a count of its executors."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.there = 2
        self.asked = 0
        self.executors = Executors(self.count, lambda: self.now_s)

    def count(self) -> int:
        self.asked += 1
        return self.there

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.executors.check()


def test_a_run_without_executors_fails_after_a_while() -> None:
    spark = Spark()
    spark.after(LOST_S)
    spark.there = 0
    for _ in range(int(LOST_S / LOOK_S) - 1):
        spark.after(LOOK_S)
    with pytest.raises(BatchNotWritten, match=rf"no executor for {LOST_S:.0f} s"):
        spark.after(LOOK_S)


def test_returning_executor_resets_the_loss_timeout() -> None:
    spark = Spark()
    spark.there = 0
    spark.after(LOST_S - LOOK_S)
    spark.there = 1
    spark.after(LOOK_S)
    spark.there = 0
    spark.after(LOST_S - LOOK_S)


def test_spark_is_asked_seldom() -> None:
    spark = Spark()
    for _ in range(49):
        spark.after(LOOK_S / 50)
    assert spark.asked == 0
    spark.after(LOOK_S)
    assert spark.asked == 1

"""Checks that Spark has executors to run a pipeline's tasks.

A session without executors waits for one silently and forever. Ray restarts a lost executor, unless
Ray's head was down when it was lost. A run that fails reports the reason, and the next run has a
new session.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from raylog.raydp_jobs.pipelines.failures import BatchNotWritten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 5.0
LOST_S = 180.0
"""A run fails after this long without an executor."""


class Executors:
    """Checks a session's executors periodically; `count` returns how many there are."""

    def __init__(self, count: Callable[[], int], clock: Callable[[], float]) -> None:
        self._count = count
        self._clock = clock
        self._seen_s = self._looked_s = clock()

    def check(self) -> None:
        """Raise BatchNotWritten if there was none for too long."""
        now_s = self._clock()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        if self._count():
            self._seen_s = now_s
        elif now_s - self._seen_s >= LOST_S:
            raise BatchNotWritten(
                f"Spark has had no executor for {now_s - self._seen_s:.0f} s, and Ray starts none: "
                "too little CPU or memory is free, or the executor was lost with Ray's head"
            )


def executors_of(spark: SparkSession) -> Executors:
    """Create the check for a session."""
    return Executors(lambda: count_executors(spark), time.monotonic)


def count_executors(spark: SparkSession) -> int:
    """Return how many there are; in local mode 1, which is never lost."""
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        return 1
    tracker = context._jsc.sc().statusTracker()  # PySpark's tracker does not list executors
    return len(tracker.getExecutorInfos()) - 1  # without the driver

"""Whether Spark has anybody to run a pipeline's tasks.

A session without executors waits for some, silently and for ever. Ray starts a lost one again, but
not if its head was away when it was lost. A run that fails tells why, and the next one has a
session of its own.
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
"""After so long without an executor a run fails."""


class Executors:
    """Looked at from time to time; `count` gives how many there are."""

    def __init__(self, count: Callable[[], int], clock: Callable[[], float]) -> None:
        self._count = count
        self._clock = clock
        self._seen_s = self._looked_s = clock()

    def check(self) -> None:
        """Raise BatchNotWritten where there was none for too long."""
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
    """The executors of a session, to be looked at."""
    return Executors(lambda: count_executors(spark), time.monotonic)


def count_executors(spark: SparkSession) -> int:
    """How many there are; one in the driver's process counts, and is never lost."""
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        return 1
    tracker = context._jsc.sc().statusTracker()  # PySpark's own does not tell of executors
    return len(tracker.getExecutorInfos()) - 1  # the driver

"""The parts of a batch: rows for some of the sink's topics, each made when its turn comes.

All parts are in the batch's transaction, one Spark job after the other. So what a later one has may
depend on what came to light when an earlier one was made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raylog.raydp_jobs.commit import Event, TaskReport, Written
from raylog.raydp_jobs.rows import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Rows that go to some of the sink's topics, which no other part of the batch goes to."""

    topics: Collection[str]
    rows: Callable[[], DataFrame | None]
    """Called once in each run of the batch, under an identity that fences all earlier writers.

    Returns what `rows.record_columns` makes, or None: there are none. What it raises fails the
    batch.
    """


def run_parts(
    parts: Sequence[BatchPart], topics: Topics, run: Callable[[DataFrame, Topics], Event]
) -> Event:
    """Let `run` write the parts in their order; all of the sink's `topics` are in one of them."""
    named = [topic for part in parts for topic in part.topics]
    assert sorted(named) == sorted(topics.partitions), f"{named} are not the sink's topics"
    reports: list[TaskReport] = []
    for part in parts:
        of_part = Topics({name: topics.partitions[name] for name in part.topics})
        rows = part.rows()
        if rows is None:
            reports += [TaskReport(key, 0, -1) for key in of_part.targets()]
            continue
        event = run(rows, of_part)
        if not isinstance(event, Written):
            return event
        reports += event.reports
    return Written(reports)

"""The parts of a batch: rows for some of the sink's topics, each computed in turn.

All parts are written in the batch's transaction, by one Spark job after another. So a part may
depend on results of computing an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raylog.sink.commit import Event, TaskReport, Written
from raylog.sink.rows import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Rows for some of the sink's topics; no other part of the batch writes to these topics."""

    topics: Collection[str]
    rows: Callable[[], DataFrame | None]
    """Called once in each run of the batch, under an identity that fences all earlier writers.

    Returns the columns of `columns.record_columns`, or None for no rows. If it raises, the batch
    fails.
    """


def run_parts(
    parts: Sequence[BatchPart], topics: Topics, run: Callable[[DataFrame, Topics], Event]
) -> Event:
    """Have `run` write the parts in order; each of the sink's `topics` must be in one of them."""
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

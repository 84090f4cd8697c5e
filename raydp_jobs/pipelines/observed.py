"""Finds out which records of a batch do not parse, as a by-product of the job that parses them.

The batch's plan counts these records where it filters them out (`DataFrame.observe`). So nothing is
read again if there are none, and little otherwise. Spark merges the counts of finished tasks: a
task that runs twice may count twice, but none that the batch needed is missing.

Plans that may leave records unread, which are those with a limit, report nothing.

A record that does not parse may do so when it is read again, because its schema was registered in
between. A second observation shows that, with high probability: each record has one of 10,000
marks, and those of the first reading must be there again. Unlike counts, sets of marks stay as they
are if a task runs twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.pipelines.failures import BatchNotWritten

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_NAME = "raylog."
_MADE = f"{_NAME}made"
_BLOCK = 1_000
"""Offsets that are reported as one block, to limit the size of reports to the driver."""
_MARKS = 10_000
"""The number of different marks, for the same reason. Two records can have the same mark."""
_STOPS_EARLY = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail"})

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""First offset and exclusive end, by partition, of what must be looked at."""


def observed(rows: DataFrame, field: str, is_bad: Column) -> DataFrame:
    """Add an observation of where `is_bad` holds to the `rows` of a source or table.

    Filters above it stay above it, so that their conditions are not computed again for it.
    """
    block = functions.expr(f"_offset div {_BLOCK}").alias("block")
    place = functions.struct("_topic", "_partition", block)
    mark = functions.expr(f"pmod(xxhash64(_topic, _partition, _offset), {_MARKS})")
    return rows.observe(
        f"{_NAME}{field}",
        functions.count(functions.lit(1)).alias("rows"),
        functions.collect_set(functions.when(is_bad, place)).alias("bad"),
        functions.collect_set(functions.when(is_bad, mark)).alias("marks"),
    )


def counted(rows: DataFrame) -> DataFrame:
    """Add an observation of the number of rows to the `rows` of a transform."""
    return rows.observe(_MADE, functions.count(functions.lit(1)).alias("rows"))


def reads_all(rows: DataFrame) -> bool:
    """Return whether a query reads everything that its sources provide."""
    pending: list[Any] = [rows._jdf.queryExecution().analyzed()]
    while pending:
        plan = pending.pop()
        if plan.nodeName() in _STOPS_EARLY:
            return False
        children = plan.children()
        pending += [children.apply(number) for number in range(children.size())]
    return True


@dataclass(frozen=True, slots=True)
class Observer:
    """The observations of the batch that a query is writing."""

    query: StreamingQuery
    reads_all: bool = field(default=True)

    def bad(self, field: str) -> Ranges | None:
        """Return where records of a source do not parse, by its field; None if unknown.

        Call it after all rows of the batch were consumed.
        """
        if not self.reads_all:
            return None
        metrics = self._metrics_of(f"{_NAME}{field}")
        return None if metrics is None else bad_ranges(metrics)

    def check_again(self, field: str, again: DataFrame) -> None:
        """Raise BatchNotWritten if a record that did not parse is not so when it is read `again`.

        It would be neither in the batch nor among its dead letters. Call it after all rows of
        `again` were consumed.
        """
        name = f"{_NAME}{field}"
        if marks(self._metrics_of(name)) - marks(_metrics(again._jdf.queryExecution(), name)):
            raise BatchNotWritten(
                f"{field}: records that did not parse were read again, and now parse or are gone "
                "(was their schema registered meanwhile?)"
            )

    def made(self) -> int | None:
        """Return the row count of a `counted` batch; call it after all rows were consumed."""
        metrics = self._metrics_of(_MADE)
        return None if metrics is None else int(json.loads(metrics)["rows"])

    def _metrics_of(self, name: str) -> str | None:
        """Return an observation of the batch, as JSON."""
        return _metrics(self.query._jsq.streamingQuery().lastExecution(), name)


def _metrics(execution: Any, name: str) -> str | None:
    """Return an observation of a plan's execution, as JSON."""
    metrics = execution.observedMetrics().get(name)
    return str(metrics.get().json()) if metrics.isDefined() else None


def marks(metrics: str | None) -> set[int]:
    """Return the marks of the records that do not parse, as an observation has them."""
    return set() if metrics is None else set(json.loads(metrics)["marks"])


def bad_ranges(metrics: str) -> Ranges | None:
    """Parse an observation; None if it has seen no rows."""
    found = json.loads(metrics)
    if not found["rows"]:
        return None
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for place in found["bad"]:
        key = TopicPartition(place["_topic"], place["_partition"])
        first, end = place["block"] * _BLOCK, (place["block"] + 1) * _BLOCK
        before = ranges.get(key, (first, end))
        ranges[key] = min(first, before[0]), max(end, before[1])
    return ranges

"""Which records of a batch do not parse, told by the job that parses them.

The plan of a batch counts them where they are filtered out (`DataFrame.observe`), so that nothing
is read again if there are none, and little otherwise. Spark merges what each finished task has
counted: a task that is run twice may count twice, and none that the batch needed is left out.

Nothing is told by a plan that may leave records unread, which is one with a limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from raylog.client.cluster import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_NAME = "raylog."
_MADE = f"{_NAME}made"
_BLOCK = 1_000
"""Offsets that are told as one: it bounds what the driver gets to know of a batch."""
_STOPS_EARLY = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail"})

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""First offset, and the one behind the last, of what has to be looked at."""


def observed(rows: DataFrame, field: str, is_bad: Column) -> DataFrame:
    """`rows` of a pipeline's source or table that tell where `is_bad` holds.

    Filters above stay above, so what a filter asks for is not computed once more for it.
    """
    block = functions.expr(f"_offset div {_BLOCK}").alias("block")
    place = functions.struct("_topic", "_partition", block)
    return rows.observe(
        f"{_NAME}{field}",
        functions.count(functions.lit(1)).alias("rows"),
        functions.collect_set(functions.when(is_bad, place)).alias("bad"),
    )


def counted(rows: DataFrame) -> DataFrame:
    """`rows` of a transform that tell how many they are."""
    return rows.observe(_MADE, functions.count(functions.lit(1)).alias("rows"))


def reads_all(rows: DataFrame) -> bool:
    """Whether a query reads all that its sources give it."""
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
    """What the batch that a query is writing tells of its sources."""

    query: StreamingQuery
    reads_all: bool = field(default=True)

    def bad(self, field: str) -> Ranges | None:
        """Where records of a source do not parse, by its field; None: that is not known.

        To be asked once all rows of the batch were taken.
        """
        if not self.reads_all:
            return None
        told = self._told(f"{_NAME}{field}")
        return None if told is None else bad_ranges(told)

    def made(self) -> int | None:
        """How many rows the batch has, if they are `counted`; to be asked once they were taken."""
        told = self._told(_MADE)
        return None if told is None else int(json.loads(told)["rows"])

    def _told(self, name: str) -> str | None:
        """An observation of the batch, as JSON."""
        execution: Any = self.query._jsq.streamingQuery().lastExecution()
        told = execution.observedMetrics().get(name)
        return str(told.get().json()) if told.isDefined() else None


def bad_ranges(told: str) -> Ranges | None:
    """What an observation says, as JSON; None if it has not seen any row."""
    found = json.loads(told)
    if not found["rows"]:
        return None
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for place in found["bad"]:
        key = TopicPartition(place["_topic"], place["_partition"])
        first, end = place["block"] * _BLOCK, (place["block"] + 1) * _BLOCK
        before = ranges.get(key, (first, end))
        ranges[key] = min(first, before[0]), max(end, before[1])
    return ranges

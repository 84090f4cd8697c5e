"""How the demonstration interprets Spark's reports, and when it kills."""

from functools import partial
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from raylog.demo import streaming
from raylog.demo.job import Batch, Progress
from raylog.demo.kills import Kill
from raylog.demo.screen import DemoError


def report(number: int, start: int, end: int, *, idle: bool = False) -> dict[str, Any]:
    """One micro-batch as Spark tells of it; flights of two partitions."""
    return {
        "batchId": number,
        "durationMs": {"triggerExecution": 1500}
        if idle
        else {"triggerExecution": 1500, "addBatch": 9},
        "eventTime": {"watermark": "1970-01-01T00:00:02.000Z"},
        "stateOperators": [{"numRowsDroppedByWatermark": 1}],
        "sources": [
            {
                "startOffset": {"flights": {"0": start, "1": 0}} if start else None,
                "endOffset": {"flights": {"0": end, "1": 0}},
            }
        ],
    }


class Query:
    """A query that reports what it is given."""

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []  # Spark's name
        self.failure: Exception | None = None

    def exception(self) -> Exception | None:
        return self.failure


class Flights:
    """A stream of flights."""

    written = counted = 0

    def check(self) -> None:
        """All is well."""


def test_each_batch_is_reported_once_and_idle_triggers_are_not() -> None:
    query: Any = Query()
    progress = Progress(query)
    assert progress.fresh() == []
    query.recentProgress = [report(0, 0, 10), report(1, 10, 10, idle=True)]
    assert progress.fresh() == [Batch(0, 10, 10, 1.5, 2_000, 1)]
    query.recentProgress.append(report(1, 10, 25))
    assert [batch.rows for batch in progress.fresh()] == [15]
    assert (progress.read, progress.watermark_ms, progress.late) == (25, 2_000, 2)
    assert progress.seconds == 3.0


def test_a_query_that_failed_ends_the_demonstration() -> None:
    query: Any = Query()
    query.failure = ValueError("no disk")
    with pytest.raises(DemoError, match="no disk"):
        Progress(query).fresh()


def test_a_kill_waits_for_a_batch_and_for_the_victim_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "sleep", lambda _: None)
    query: Any = Query()
    flights: Any = Flights()
    struck: list[str] = []

    def strike(whom: str) -> str:
        struck.append(whom)
        return whom

    kills = [Kill(whom, 0.1, partial(strike, whom)) for whom in ("one", "two")]
    said = StringIO()
    watch = streaming.Watch(Console(file=said), Progress(query), flights, kills, total=100)
    flights.written = 50
    watch.look()
    assert struck == []
    query.recentProgress.append(report(0, 0, 10))
    watch.look()
    watch.look()
    assert struck == ["one"]
    query.recentProgress.append(report(1, 10, 20))
    watch.look()
    assert struck == ["one", "two"]
    assert "batch 1 is committed: one is gone" in said.getvalue()
    assert flights.counted == 20

"""Counts of what this process's sinks have written, and their Prometheus endpoint.

Counts are always kept. An application with its own Prometheus endpoint registers `SinkCollector()`
there; `listen` opens a new one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from threading import Lock
from typing import TYPE_CHECKING

from raylog.actors.metrics.counts import Histogram
from raylog.actors.metrics.exposition import metrics_of
from raylog.actors.metrics.families import sinks as families
from raylog.actors.metrics.samples import Samples

if TYPE_CHECKING:
    from prometheus_client.core import Metric

WRITTEN, REPEATED, FAILED = "written", "repeated", "failed"
_counts: dict[str, SinkCounts] = {}
_lock = Lock()
"""Queries run in threads of their own."""


class SinkCounts:
    """Counts of one sink."""

    def __init__(self) -> None:
        self.batches: Counter[str] = Counter()
        self.rows = 0
        self.runs = 0
        self.seconds = Histogram(families.BATCH_SECONDS)
        self.last_s = 0.0

    def ended(self, outcome: str, runs: int, rows: int, took_s: float) -> None:
        """Count a batch."""
        with _lock:
            self.batches[outcome] += 1
            self.runs += runs
            if outcome == WRITTEN:
                self.rows += rows
                self.seconds.observe(took_s)
                self.last_s = time.time()


def counts_of(sink_id: str) -> SinkCounts:
    """Return a sink's counts, which are kept as long as the process lives."""
    with _lock:
        return _counts.setdefault(sink_id, SinkCounts())


class SinkCollector:
    """A collector for prometheus_client."""

    def collect(self) -> Iterator[Metric]:
        """Return the current metrics of all sinks."""
        samples = Samples()
        with _lock:
            for sink_id, one in _counts.items():
                for outcome in (WRITTEN, REPEATED, FAILED):
                    samples.add(families.BATCHES, one.batches[outcome], sink_id, outcome)
                samples.add(families.ROWS, one.rows, sink_id)
                samples.add(families.RUNS, one.runs, sink_id)
                samples.histogram(families.SECONDS, one.seconds, sink_id)
                samples.add(families.LAST, one.last_s, sink_id)
        return iter(metrics_of(samples.taken))


def listen(host: str, port: int) -> int:
    """Serve metrics at http://host:port/metrics until the process ends; return the port.

    Port 0 picks a free port. Raises OSError if the port is taken.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(SinkCollector())
    server, _ = start_http_server(port, host, registry)
    return server.server_port

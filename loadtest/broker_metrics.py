"""Metrics that Raylog's brokers report at `/metrics` during a run.

Every gauge is one value of a broker, summed over its processes. If a broker does not answer, its
line has a gap.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from raylog.cli.counters import (
    Buckets,
    Process,
    bucket_growth,
    growth,
    p99_s,
    process_of,
    samples_of,
)
from raylog.cli.metrics_listeners import Address, metrics_at
from raylog.loadtest.results import Gauge

log = logging.getLogger(__name__)
EVERY_S = 5.0
_MS = 1000
_CPU = "raylog_process_cpu_seconds_total"
_BUCKET = "raylog_request_seconds_bucket"
_APIS = ("Produce", "Fetch")
_SUMS = {
    "raylog_process_resident_memory_bytes": ("memory", "bytes"),
    "raylog_process_open_fds": ("open files", ""),
    "raylog_connections": ("connections", ""),
    "raylog_under_replicated_partitions": ("under-replicated partitions", ""),
}
_SINGLE = (_CPU, *_SUMS)
Key = tuple[str, tuple[tuple[str, str], ...], str]
"""Name, labels and unit of a gauge."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """The metrics of one broker at one time."""

    at_s: float
    sums: Mapping[str, float]
    """By name, the sum over all processes."""
    cpu_s: Mapping[Process, float]
    buckets: Mapping[str, Mapping[Process, Buckets]]
    """Counts of requests so far, by API and process."""


def read_scrape(text: str, at_s: float) -> Scrape:
    """Parse the text of `/metrics`. Raises ValueError if it is something else."""
    sums: dict[str, float] = defaultdict(float)
    cpu_s: dict[Process, float] = defaultdict(float)
    buckets: dict[str, dict[Process, dict[float, float]]] = {api: {} for api in _APIS}
    for sample in samples_of(text, _is_wanted):
        if sample.name in _SUMS:
            sums[sample.name] += sample.value
        elif sample.name == _CPU:
            cpu_s[process_of(sample.labels)] += sample.value
        else:
            of_api = buckets[sample.labels["api"]]
            counts = of_api.setdefault(process_of(sample.labels), defaultdict(float))
            counts[float(sample.labels["le"])] += sample.value
    return Scrape(at_s, sums, cpu_s, buckets)


def _is_wanted(line: str) -> bool:
    name, _, labels = line.partition("{")
    return name in _SINGLE or (name == _BUCKET and any(f'api="{api}"' in labels for api in _APIS))


@dataclass(slots=True)
class BrokerMetrics:
    """Scrapes brokers and keeps the values for charts."""

    listeners: Mapping[int, Address]
    """By broker id, the address of its metrics."""
    _last: dict[int, Scrape] = field(default_factory=dict)
    _points: dict[Key, list[tuple[float, float]]] = field(default_factory=dict)

    def look(self, at_s: float) -> None:
        """Scrape every broker from `at_s` on. Blocks for a few seconds for each without an answer.

        A value has the time of its broker's answer, because others may have delayed it.
        """
        began_s = time.monotonic()
        for broker, address in self.listeners.items():
            try:
                text = metrics_at(address)
                self.take(broker, read_scrape(text, at_s + time.monotonic() - began_s))
            except (OSError, ValueError) as failure:
                log.info("no metrics of broker %d: %s", broker, failure)

    def take(self, broker: int, scrape: Scrape) -> None:
        """Keep what a broker reported."""
        before, self._last[broker] = self._last.get(broker), scrape
        labels = (("broker", str(broker)),)
        for name, (called, unit) in _SUMS.items():
            if name in scrape.sums:
                self._add((called, labels, unit), scrape.at_s, scrape.sums[name])
        if before is None or scrape.at_s <= before.at_s:
            return
        used_s = growth(before.cpu_s, scrape.cpu_s)
        if used_s is not None:
            self._add(("CPU", labels, "cores"), scrape.at_s, used_s / (scrape.at_s - before.at_s))
        for api, buckets in scrape.buckets.items():
            found_s = p99_s(bucket_growth(before.buckets.get(api, {}), buckets))
            if found_s is not None:
                key = ("request p99", (*labels, ("api", api)), "ms")
                self._add(key, scrape.at_s, found_s * _MS)

    def gauges(self) -> Iterable[Gauge]:
        """All values over time."""
        return [
            Gauge(name=name, labels=dict(labels), unit=unit, points=points)
            for (name, labels, unit), points in sorted(self._points.items())
        ]

    def _add(self, key: Key, at_s: float, value: float) -> None:
        self._points.setdefault(key, []).append((round(at_s, 1), round(value, 3)))

"""What brokers of a Raylog tell of themselves meanwhile, at their `/metrics`.

Every gauge is one value of a broker, over all its processes. Where a broker does not answer there
is a gap.
"""

from __future__ import annotations

import http.client
import logging
import math
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from raylog.cli.counters import Buckets, Process, bucket_growth, growth, process_of
from raylog.cli.metrics_listeners import Address
from raylog.loadtest.results import Gauge

log = logging.getLogger(__name__)
EVERY_S = 5.0
_TIMEOUT_S = 3.0
_PERCENTILE = 0.99
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
Key = tuple[str, tuple[tuple[str, str], ...], str]
"""Name, labels and unit of a gauge."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one broker told at one time."""

    at_s: float
    sums: Mapping[str, float]
    """By name, over all its processes."""
    cpu_s: Mapping[Process, float]
    buckets: Mapping[str, Mapping[Process, Buckets]]
    """Requests so far by API."""


def read_scrape(text: str, at_s: float) -> Scrape:
    """Read what `/metrics` answers; ValueError if it is something else."""
    sums: dict[str, float] = defaultdict(float)
    cpu_s: dict[Process, float] = defaultdict(float)
    buckets: dict[str, dict[Process, dict[float, float]]] = {api: {} for api in _APIS}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in _SUMS:
                sums[sample.name] += sample.value
            elif sample.name == _CPU:
                cpu_s[process_of(sample.labels)] += sample.value
            elif sample.name == _BUCKET and sample.labels.get("api") in buckets:
                of_api = buckets[sample.labels["api"]]
                counts = of_api.setdefault(process_of(sample.labels), defaultdict(float))
                counts[float(sample.labels["le"])] += sample.value
    return Scrape(at_s, sums, cpu_s, buckets)


def _asked(address: Address) -> str:
    host, port = address
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        text: bytes = answer.read()
    return text.decode()


def percentile(counts: Buckets) -> float | None:
    """The 99th percentile (s), as Prometheus estimates it."""
    total = max(counts.values(), default=0.0)
    if total <= 0:
        return None
    wanted, low, below = _PERCENTILE * total, 0.0, 0.0
    for bound, count in sorted(counts.items()):
        if count >= wanted:
            if math.isinf(bound):
                return low
            return low + (bound - low) * (wanted - below) / max(count - below, 1e-9)
        low, below = bound, count
    return low


@dataclass(slots=True)
class BrokerMetrics:
    """Scrapes brokers, and keeps what charts show."""

    listeners: Mapping[int, Address]
    """Where each broker serves them, by broker id."""
    _last: dict[int, Scrape] = field(default_factory=dict)
    _points: dict[Key, list[tuple[float, float]]] = field(default_factory=dict)

    def look(self, at_s: float) -> None:
        """Ask every broker. Blocks for a few seconds at most where one does not answer."""
        for broker, address in self.listeners.items():
            try:
                self.take(broker, read_scrape(_asked(address), at_s))
            except (OSError, http.client.HTTPException, ValueError) as failure:
                log.info("no metrics of broker %d: %s", broker, failure)

    def take(self, broker: int, scrape: Scrape) -> None:
        """Keep what a broker told."""
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
            found_s = percentile(bucket_growth(before.buckets.get(api, {}), buckets))
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

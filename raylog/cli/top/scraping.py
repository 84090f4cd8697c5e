"""Reads the brokers' `/metrics` for `raylog top`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raylog.cli.counters import Buckets, Process, bucket_growth, p99_s, process_of, samples_of
from raylog.cli.metrics_listeners import Address, metrics_at, metrics_listeners
from raylog.cli.top.events import BrokerMetrics

if TYPE_CHECKING:
    from raylog.client.core import Core

_MS = 1_000
_WANTED = (
    "raylog_network_bytes_total",
    "raylog_requests_total",
    "raylog_request_seconds_bucket",
    "raylog_event_loop_lag_seconds_bucket",
    "raylog_process_cpu_seconds_total",
    "raylog_process_resident_memory_bytes",
)
_FAILURES_MAX = 3
"""Failures after which an address that has never answered is dropped."""


@dataclass(slots=True)
class Scraped:
    """Metrics of the processes of one broker."""

    bytes_in: dict[Process, float] = field(default_factory=dict)
    bytes_out: dict[Process, float] = field(default_factory=dict)
    requests: dict[Process, float] = field(default_factory=dict)
    cpu_s: dict[Process, float] = field(default_factory=dict)
    memory: float | None = None
    latency: dict[Process, dict[float, float]] = field(default_factory=dict)
    loop_lag: dict[Process, dict[float, float]] = field(default_factory=dict)


def read(text: str) -> dict[int, Scraped]:
    """Parse the text of `/metrics`, by broker id. Raises ValueError if it is not in that format."""
    found: defaultdict[int, Scraped] = defaultdict(Scraped)
    for sample in samples_of(text, lambda line: line.startswith(_WANTED)):
        broker = sample.labels.get("broker", "")
        if broker.isdecimal():
            _add(found[int(broker)], sample.name, sample.labels, sample.value)
    return dict(found)


def _add(scraped: Scraped, name: str, labels: Mapping[str, str], value: float) -> None:
    process = process_of(labels)
    match name:
        case "raylog_network_bytes_total" if labels.get("direction") == "in":
            scraped.bytes_in[process] = scraped.bytes_in.get(process, 0.0) + value
        case "raylog_network_bytes_total":
            scraped.bytes_out[process] = scraped.bytes_out.get(process, 0.0) + value
        case "raylog_requests_total":
            scraped.requests[process] = scraped.requests.get(process, 0.0) + value
        case "raylog_process_cpu_seconds_total":
            scraped.cpu_s[process] = scraped.cpu_s.get(process, 0.0) + value
        case "raylog_process_resident_memory_bytes":
            scraped.memory = (scraped.memory or 0.0) + value
        case "raylog_request_seconds_bucket" if labels.get("api") != "Fetch":
            # Without fetches, which wait for records.
            _add_bucket(scraped.latency.setdefault(process, {}), labels, value)
        case "raylog_event_loop_lag_seconds_bucket":
            _add_bucket(scraped.loop_lag.setdefault(process, {}), labels, value)
        case _:
            pass


def _add_bucket(buckets: dict[float, float], labels: Mapping[str, str], value: float) -> None:
    bound = float(labels.get("le", "nan"))
    buckets[bound] = buckets.get(bound, 0.0) + value


def _ms(counts: Buckets) -> float | None:
    found_s = p99_s(counts)
    return None if found_s is None else found_s * _MS


class Scraper:
    """Scrapes brokers; percentiles cover the time since the previous scrape."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._named = tuple(dict.fromkeys(addresses))
        self._found: dict[Address, int] = {}
        """Addresses that brokers reported, with the failures of those that never answered."""
        self._answered: set[Address] = set()
        self._of: tuple[int, ...] = ()
        """Brokers that were asked for their addresses."""
        self._before: dict[int, Scraped] = {}

    async def scrape(self, core: Core) -> tuple[dict[int, BrokerMetrics], list[str]]:
        """Return the brokers' metrics, and why named addresses failed.

        An address that a broker reported may be meant for other hosts: it is dropped if it never
        answers.
        """
        brokers = tuple(sorted(core.cluster.nodes))
        if brokers != self._of:
            found = set((await metrics_listeners(core)).values()) - {*self._named}
            self._found = dict.fromkeys(found, 0)
            self._of = brokers
        scraped: dict[int, Scraped] = {}
        failures: list[str] = []
        for address, answer in (await _each((*self._named, *self._found))).items():
            if not isinstance(answer, BaseException):
                scraped |= answer
                self._answered.add(address)
            elif address not in self._found:
                failures.append(str(answer))
            elif address not in self._answered:
                self._failed(address)
        metrics = {
            one: _metrics(self._before.get(one, Scraped()), now) for one, now in scraped.items()
        }
        self._before = scraped
        return metrics, failures

    def _failed(self, address: Address) -> None:
        self._found[address] += 1
        if self._found[address] >= _FAILURES_MAX:
            del self._found[address]


async def _each(
    addresses: Iterable[Address],
) -> dict[Address, dict[int, Scraped] | OSError]:
    """Return the metrics at each address, or why it failed."""

    def one(address: Address) -> dict[int, Scraped] | OSError:
        host, port = address
        try:
            return read(metrics_at(address))
        except (OSError, ValueError) as failed:
            return OSError(f"{host}:{port}/metrics: {failed}")

    asked = list(addresses)
    answers = await asyncio.gather(*(asyncio.to_thread(one, address) for address in asked))
    return dict(zip(asked, answers, strict=True))


def _metrics(before: Scraped, now: Scraped) -> BrokerMetrics:
    return BrokerMetrics(
        now.bytes_in,
        now.bytes_out,
        now.requests,
        _ms(bucket_growth(before.latency, now.latency)),
        _ms(bucket_growth(before.loop_lag, now.loop_lag)),
        now.cpu_s,
        now.memory,
    )

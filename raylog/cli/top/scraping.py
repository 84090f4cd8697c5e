"""What brokers tell Prometheus, read for `raylog top`: their `/metrics`, where it can be found."""

from __future__ import annotations

import asyncio
import http.client
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raylog.cli.metrics_listeners import Address, metrics_listeners
from raylog.cli.top.events import BrokerMetrics

if TYPE_CHECKING:
    from raylog.client.core import Core

_TIMEOUT_S = 3.0
_BYTES_MAX = 16 * 1024 * 1024
_P99 = 0.99
_BYTES = "raylog_network_bytes_total"
_REQUESTS = "raylog_requests_total"
_LATENCY = "raylog_request_seconds_bucket"
_LOOP_LAG = "raylog_event_loop_lag_seconds_bucket"
_CPU = "raylog_process_cpu_seconds_total"
_MEMORY = "raylog_process_resident_memory_bytes"
_WANTED = (_BYTES, _REQUESTS, _LATENCY, _LOOP_LAG, _CPU, _MEMORY)
Buckets = Mapping[float, float]
"""Upper bound in seconds to how many were at most that."""


@dataclass(slots=True)
class Told:
    """Sums over the processes of one broker."""

    bytes_in: float | None = None
    bytes_out: float | None = None
    requests: float | None = None
    cpu_s: float | None = None
    memory: float | None = None
    latency: dict[float, float] = field(default_factory=dict)
    loop_lag: dict[float, float] = field(default_factory=dict)


def read(text: str) -> dict[int, Told]:
    """What the brokers in an answer tell, by id; raises ValueError for what is no such text."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = "\n".join(line for line in text.splitlines() if line.startswith(_WANTED))
    found: defaultdict[int, Told] = defaultdict(Told)
    for family in text_string_to_metric_families(f"{lines}\n"):
        for sample in family.samples:
            broker = sample.labels.get("broker", "")
            if broker.isdecimal():
                _add(found[int(broker)], sample.name, sample.labels, sample.value)
    return dict(found)


def _add(told: Told, name: str, labels: Mapping[str, str], value: float) -> None:
    match name:
        case "raylog_network_bytes_total" if labels.get("direction") == "in":
            told.bytes_in = (told.bytes_in or 0.0) + value
        case "raylog_network_bytes_total":
            told.bytes_out = (told.bytes_out or 0.0) + value
        case "raylog_requests_total":
            told.requests = (told.requests or 0.0) + value
        case "raylog_process_cpu_seconds_total":
            told.cpu_s = (told.cpu_s or 0.0) + value
        case "raylog_process_resident_memory_bytes":
            told.memory = (told.memory or 0.0) + value
        case "raylog_request_seconds_bucket" if labels.get("api") != "Fetch":
            _add_bucket(told.latency, labels, value)  # a fetch waits for records
        case "raylog_event_loop_lag_seconds_bucket":
            _add_bucket(told.loop_lag, labels, value)
        case _:
            pass


def _add_bucket(buckets: dict[float, float], labels: Mapping[str, str], value: float) -> None:
    bound = float(labels.get("le", "nan"))
    buckets[bound] = buckets.get(bound, 0.0) + value


def quantile_ms(before: Buckets, now: Buckets, share: float = _P99) -> float | None:
    """The upper bound of the bucket that a part of what came since is in; None: nothing came.

    Of the last bucket, which has no bound, it is that of the one before.
    """
    bounds = sorted(now)
    since = [now[bound] - before.get(bound, 0.0) for bound in bounds]
    if not since or since[-1] <= 0 or any(count < 0 for count in since):
        return None
    at = next(i for i, count in enumerate(since) if count >= share * since[-1])
    finite = [bound for bound in bounds[: at + 1] if bound != float("inf")]
    return finite[-1] * 1_000 if finite else None


class Scraper:
    """Scrapes brokers; quantiles are of what came since the scrape before."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._named = tuple(addresses)
        self._found: set[Address] = set()
        self._of: tuple[int, ...] = ()
        """Brokers that were asked where they tell."""
        self._before: dict[int, Told] = {}

    async def scrape(self, core: Core) -> dict[int, BrokerMetrics]:
        """What brokers tell now; raises OSError where a named address does not.

        One that a broker told is for others, if it does not answer here: it is not asked again.
        """
        brokers = tuple(sorted(core.cluster.nodes))
        if brokers != self._of:
            self._found = set((await metrics_listeners(core)).values()) - {*self._named}
            self._of = brokers
        told: dict[int, Told] = {}
        for address, answer in (await _each({*self._named, *self._found})).items():
            if not isinstance(answer, BaseException):
                told |= answer
            elif address in self._found:
                self._found.discard(address)
            else:
                raise answer
        metrics = {one: _metrics(self._before.get(one, Told()), now) for one, now in told.items()}
        self._before = told
        return metrics


async def _each(
    addresses: Iterable[Address],
) -> dict[Address, dict[int, Told] | OSError]:
    """What each address tells, or why it does not."""

    def one(address: Address) -> dict[int, Told] | OSError:
        host, port = address
        try:
            return read(_get(address))
        except (OSError, ValueError) as failed:
            return OSError(f"{host}:{port}/metrics: {failed}")

    asked = list(addresses)
    answers = await asyncio.gather(*(asyncio.to_thread(one, address) for address in asked))
    return dict(zip(asked, answers, strict=True))


def _metrics(before: Told, now: Told) -> BrokerMetrics:
    return BrokerMetrics(
        now.bytes_in,
        now.bytes_out,
        now.requests,
        quantile_ms(before.latency, now.latency) if before.latency else None,
        quantile_ms(before.loop_lag, now.loop_lag) if before.loop_lag else None,
        now.cpu_s,
        now.memory,
    )


def _get(address: Address) -> str:
    """The text at an address; raises OSError."""
    asking = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)
    try:
        asking.request("GET", "/metrics")
        with asking.getresponse() as answer:
            if answer.status != http.client.OK:
                raise OSError(f"expected status 200, found {answer.status}")
            return answer.read(_BYTES_MAX).decode("utf-8", "replace")
    except http.client.HTTPException as failed:
        raise OSError(repr(failed)) from failed
    finally:
        asking.close()

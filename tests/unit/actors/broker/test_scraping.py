"""A broker asks its processes for metrics when it is scraped, and only then."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from raylog.actors.broker.sampling import reports_for_cluster
from raylog.actors.broker.scraping import REST, REST_MS_MAX, Asked, Scraper, labelled, who_is_asked
from raylog.actors.metadata.image import BrokerRegistration, MetadataImage
from raylog.actors.metrics.families import broker as families
from raylog.actors.metrics.families import gateway, process
from raylog.actors.metrics.samples import ProcessMetrics, Sample, Samples
from raylog.actors.names import process_label
from raylog.actors.runtime.base import ActorRef, PeerLost, PeerTimeout
from raylog.wire.errors import UnsupportedVersion
from tests.worlds.decorators import in_loop
from tests.worlds.runtime import FakeRuntime, settle

GATEWAY = Asked("gateway", "c/gateway/1/3", "g", "1")
REPLICA = Asked("replica", "c/replica/1/2", "r", "1")
COUNTED: list[Sample] = [(gateway.REQUESTS.name, ("Fetch",), 5)]
CPU: list[Sample] = [(process.CPU_SECONDS.name, (), 2.5)]


SLOW_MS = 20


class Processes(FakeRuntime):
    """Scripted answers of processes; an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[str] = []

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        assert method == "metrics"
        self.asked.append(peer)
        await asyncio.sleep(0)
        answer = self.answers[peer]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def own(samples: Samples) -> None:
    samples.add(families.REPLICAS, 4)


def scraper(runtime: Processes, *others: Asked) -> Scraper:
    return Scraper(runtime, 1, own, lambda: others)  # type: ignore[arg-type]  # a fake


def value_of(samples: list[Sample], name: str, *labels: str) -> object:
    (value,) = [value for family, values, value in samples if (family, values) == (name, labels)]
    return value


@in_loop
async def test_each_series_says_whose_it_is() -> None:
    runtime = Processes(g=ProcessMetrics(7, COUNTED, CPU), r=ProcessMetrics(8, [], CPU))
    found = await scraper(runtime, REPLICA, GATEWAY).scrape()
    assert value_of(found, families.REPLICAS.name, "1") == 4
    where = ("1", "gateway", "gateway-3")
    assert value_of(found, gateway.REQUESTS.name, *where, "Fetch") == 5
    sources = [labels for name, labels, _ in found if name == process.CPU_SECONDS.name]
    assert sources == [("1", "replica", "replica-2"), where]
    assert value_of(found, families.CONTROLLERS.name, "1") == 0


@in_loop
async def test_a_process_is_notified_once_for_all_who_live_in_it() -> None:
    colocated = ActorRef("c/gateway/1/3@c/replica/1/2", "gateway", "", 0, "", "")
    host = ActorRef("c/replica/1/2", "replica", "", 0, "", "")
    hosted = [
        one._replace(peer=one.role[0]) for one in who_is_asked(1, [colocated, host], None, None)
    ]
    counted = ProcessMetrics(7, COUNTED, CPU)
    found = await scraper(Processes(g=counted, r=counted), *hosted).scrape()
    owners = [labels for name, labels, _ in found if name == process.CPU_SECONDS.name]
    assert owners == [("1", "replica", "replica-2")]
    assert value_of(found, gateway.REQUESTS.name, "1", "gateway", "gateway-3", "Fetch") == 5
    everyone = ProcessMetrics(os.getpid(), COUNTED, CPU)
    found = await scraper(Processes(g=everyone), GATEWAY).scrape()
    assert process.CPU_SECONDS.name not in [name for name, _, _ in found], "it is the broker's"


@in_loop
async def test_process_without_answer_is_skipped_and_counted() -> None:
    runtime = Processes(r=ProcessMetrics(8, COUNTED, []))
    asking = scraper(runtime, GATEWAY, REPLICA)
    for number, failure in enumerate(
        (PeerTimeout("hangs"), PeerLost("gone"), UnsupportedVersion("old")), 1
    ):
        runtime.answers["g"] = failure
        found = asyncio.ensure_future(asking.scrape())
        await settle()
        await runtime.advance(REST_MS_MAX)
        samples = await found
        assert value_of(samples, families.SCRAPE_FAILURES.name, "1", "gateway") == number
        assert [labels[2] for name, labels, _ in samples if name == gateway.REQUESTS.name] == [
            "replica-2"
        ]


@in_loop
async def test_the_controller_is_reported_without_a_broker_and_counts_as_one() -> None:
    cpu = ProcessMetrics(9, [], CPU)
    runtime = Processes(**{"c/controller/2.1": cpu, "c/supervisor": cpu})
    asked = who_is_asked(1, [], "c/controller/2.1", "c/supervisor")
    found = await scraper(runtime, *asked).scrape()
    assert value_of(found, families.CONTROLLERS.name, "1") == 1
    sources = [labels for name, labels, _ in found if name == process.CPU_SECONDS.name]
    assert sources == [("", "controller", "controller-2.1")]


def test_however_many_ask_the_processes_are_asked_once_at_a_time_and_then_left_alone() -> None:
    class Slow(Processes):
        async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
            answer = await super().call(peer, method, *args, timeout_ms=timeout_ms)
            await self.sleep(SLOW_MS / 1000)
            return answer

    async def run() -> None:
        runtime = Slow(g=ProcessMetrics(7, COUNTED, []))
        asking = scraper(runtime, GATEWAY)
        first = asyncio.ensure_future(asking.scrape())
        await settle()
        assert runtime.asked == ["g"]
        others = [asyncio.ensure_future(asking.scrape()) for _ in range(100)]
        await runtime.advance(SLOW_MS)
        assert first.done()
        await runtime.advance(REST * SLOW_MS - 1)
        assert runtime.asked == ["g"], "the process rests"
        await runtime.advance(1)
        assert runtime.asked == ["g", "g"], "those that came meanwhile share the next"
        await runtime.advance(SLOW_MS)
        answers = await asyncio.gather(*others)
        assert all(one is answers[0] for one in answers)
        assert answers[0] is not first.result()
        seconds = families.SCRAPES.bounds.index(SLOW_MS / 1000)
        await runtime.advance(REST_MS_MAX)
        last = asyncio.ensure_future(asking.scrape())
        await runtime.advance(SLOW_MS)
        value: Any = value_of(await last, families.SCRAPES.name, "1")
        assert (value[0], value[1 + seconds]) == (2 * SLOW_MS / 1000, 2)

    asyncio.run(run())


@in_loop
async def test_a_client_that_goes_takes_no_answer_from_others() -> None:
    asking = scraper(Processes(g=ProcessMetrics(7, COUNTED, [])), GATEWAY)
    leaving, staying = (asyncio.ensure_future(asking.scrape()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert value_of(await staying, families.REPLICAS.name, "1") == 4


def test_unknown_or_malformed_series_of_another_build_are_dropped() -> None:
    bounds = len(gateway.REQUEST_SECONDS.bounds)
    well: Sample = (gateway.REQUEST_SECONDS.name, ("Fetch",), (0.0, *[0] * (bounds + 1)))
    samples: list[Any] = [
        ("raylog_of_tomorrow", (), 1),
        (gateway.REQUESTS.name, ("Fetch", "more"), 1),
        (gateway.REQUESTS.name, ("Fetch",), (1.0, 2)),
        (gateway.REQUEST_SECONDS.name, ("Fetch",), (0.0, 1)),
        (gateway.REQUEST_SECONDS.name, ("Fetch",), 1),
        well,
    ]
    assert labelled(GATEWAY, samples) == [
        (well[0], ("1", "gateway", "gateway-3", "Fetch"), well[2])
    ]


def test_one_broker_tells_for_all() -> None:
    def registered(broker_id: int, *, fenced: bool) -> BrokerRegistration:
        return BrokerRegistration(broker_id, 0, (), None, "d", "i", fenced, "build", "node")

    image = MetadataImage()
    assert reports_for_cluster(image, 3), "nobody else is known"
    image.brokers = {n: registered(n, fenced=n == 1) for n in (3, 2, 1)}
    assert [n for n in (1, 2, 3) if reports_for_cluster(image, n)] == [2]


def test_processes_are_called_by_their_role_and_number() -> None:
    assert [
        process_label(name)
        for name in (
            "c/gateway/0/3@c/replica/0/1",
            "c/controller",
            "c/controller/2.1",
            "c/broker/2/0",
        )
    ] == ["gateway-3", "controller", "controller-2.1", "broker-0"]

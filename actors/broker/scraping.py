"""Collects the metrics of all processes of a broker, on request.

Metrics that nobody reads cost nothing: no process is asked and none pushes. All processes are asked
at once, with a deadline. One that does not answer is left out and counted.

Parallel scrapes share one round of calls, and the next round waits for a while. So a client that
scrapes without a pause takes at most a fifth of a core. A scrape never returns samples taken before
it was requested.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: processes answer side by side
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from raylog.actors.metrics.counts import Histogram
from raylog.actors.metrics.families import broker as families
from raylog.actors.metrics.families.process import START_TIME
from raylog.actors.metrics.families.table import FAMILIES
from raylog.actors.metrics.family import Scope
from raylog.actors.metrics.samples import ProcessMetrics, Sample, Samples, process_metrics
from raylog.actors.names import BROKER, CONTROLLER, SUPERVISOR, host_of, process_label
from raylog.actors.remote import Replica, call
from raylog.actors.runtime.base import ActorGone, ActorRef, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
TIMEOUT_MS = 2_000
"""Shorter than the limit of an HTTP exchange."""
REST = 4
"""Pause before the next scrape, as a multiple of the last one's duration."""
REST_MS_MAX = 250.0
"""Limit for that pause: a process that hangs must not delay the metrics of others."""


class Asked(NamedTuple):
    """An actor whose metrics are collected."""

    role: str
    name: str
    peer: ActorRef | str
    broker: str
    """The broker label of its series; "" if it belongs to no broker."""


class Scraper:
    """Scrapes the processes of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        own: Callable[[Samples], Awaitable[None]],
        others: Callable[[], Iterable[Asked]],
    ) -> None:
        """`own` samples the broker itself; `others` lists the actors to ask."""
        self._runtime = runtime
        self._broker = str(broker_id)
        self._own = own
        self._others = others
        self._next: asyncio.Future[list[Sample]] | None = None
        """The result for requests that arrived after the current scrape had started."""
        self._works = False
        self._seconds = Histogram(families.SCRAPE_SECONDS)
        self._failures: Counter[str] = Counter()
        """Processes that did not answer, by role."""

    async def scrape(self) -> list[Sample]:
        """Collect the samples of all processes, with all label values of each family."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if not self._works:
            self._works = True
            self._runtime.start(self._work(), "metrics")
        return await asyncio.shield(self._next)

    async def _work(self) -> None:
        while (asked := self._next) is not None:
            self._next = None
            begun_ms = self._runtime.monotonic_ms()
            asked.set_result(await self._gather())
            took_ms = self._runtime.monotonic_ms() - begun_ms
            self._seconds.observe(took_ms / 1000)
            await self._runtime.sleep(min(REST * took_ms, REST_MS_MAX) / 1000)
        self._works = False

    async def _gather(self) -> list[Sample]:
        others = list(self._others())
        answers = await asyncio.gather(*map(self._ask, others))
        itself = Asked(BROKER, f"/{BROKER}/{self._broker}/0", "", self._broker)
        own = await self._itself(others, answers)
        scraped = [(itself, own)]
        scraped += [(one, a) for one, a in zip(others, answers, strict=True) if a is not None]
        found: list[Sample] = []
        processes: set[tuple[int, object]] = set()
        for one, answer in scraped:
            samples = [*answer.samples]
            process = process_of(answer)
            if process not in processes:
                processes.add(process)
                samples += answer.process
            found += labelled(one, samples)
        return found

    async def _itself(
        self, others: Sequence[Asked], answers: Sequence[ProcessMetrics | None]
    ) -> ProcessMetrics:
        samples = Samples()
        await self._own(samples)
        controls = any(
            one.role == CONTROLLER and answer is not None
            for one, answer in zip(others, answers, strict=True)
        )
        samples.add(families.CONTROLLERS, controls)
        samples.histogram(families.SCRAPES, self._seconds)
        for role, count in self._failures.items():
            samples.add(families.SCRAPE_FAILURES, count, role)
        return process_metrics(self._runtime, samples)

    async def _ask(self, one: Asked) -> ProcessMetrics | None:
        try:
            return await call(self._runtime, one.peer, Replica.metrics, timeout_ms=TIMEOUT_MS)
        except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
            log.info("no metrics of %s: %s", one.name, failure)
            self._failures[one.role] += 1
            return None


def process_of(answer: ProcessMetrics) -> tuple[int, object]:
    """Identify a process across all machines: its id and its start time."""
    started = [value for name, _, value in answer.process if name == START_TIME.name]
    return answer.pid, started[0] if started else None


def labelled(one: Asked, samples: Iterable[Sample]) -> list[Sample]:
    """Add the labels that the scopes of the families require.

    Samples that this build does not know, or not in this shape, are left out: the controller may
    run another build.
    """
    scopes = {
        Scope.PROCESS: (one.broker, one.role, process_label(one.name)),
        Scope.BROKER: (one.broker,),
        Scope.CLUSTER: (),
    }
    found: list[Sample] = []
    for name, labels, value in samples:
        family = FAMILIES.get(name)
        if family is None or family.scope not in scopes or len(labels) != len(family.labels):
            continue
        width = len(value) if isinstance(value, tuple | list) else 0
        if width != (len(family.bounds) + 2 if family.bounds else 0):
            continue
        found.append((name, (*scopes[family.scope], *labels), value))
    return found


def who_is_asked(
    broker_id: int,
    children: Iterable[ActorRef],
    controller: str | None,
    supervisor: str | None,
) -> list[Asked]:
    """List a broker's children, hosts first, and the actors that report for the whole cluster."""
    broker = str(broker_id)
    asked = [Asked(ref.role, ref.name, ref, broker) for ref in children]
    asked.sort(key=lambda one: host_of(one.name) != one.name)
    if controller is not None:
        asked.append(Asked(CONTROLLER, controller, controller, ""))
    if supervisor is not None:
        asked.append(Asked(SUPERVISOR, supervisor, supervisor, ""))
    return asked

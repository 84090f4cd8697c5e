"""What a broker tells of itself, and whom it asks for more, when somebody wants its metrics."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from raylog.actors.broker.controller_port import ControllerPort
from raylog.actors.broker.describing import log_dir
from raylog.actors.broker.family import Family
from raylog.actors.broker.health import Standing
from raylog.actors.broker.machine import BrokerMachine
from raylog.actors.broker.scraping import Asked, Scraper, who_is_asked
from raylog.actors.broker.seat import Seat
from raylog.actors.build import BUILD
from raylog.actors.config import BrokerSettings
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metrics.families import broker as families
from raylog.actors.metrics.reporting import INTERVAL, REPORTERS, Reporter, reporters
from raylog.actors.metrics.samples import Sample, Samples
from raylog.actors.names import supervisor_name
from raylog.actors.runtime.base import Runtime

log = logging.getLogger(__name__)
STATES = ("starting", "running", "fenced", "shutting down", "shut down")


class Parts(NamedTuple):
    """What a broker consists of."""

    machine: BrokerMachine
    family: Family
    controller: ControllerPort
    seat: Seat
    path: str
    """Of its data directory."""
    starts: int
    """Process starts since the last clean shutdown."""


class BrokerMetrics:
    """The metrics of a broker and of all its processes."""

    def __init__(
        self, runtime: Runtime, cluster_id: str, parts: Parts, standing: Callable[[], Standing]
    ) -> None:
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._parts = parts
        self._standing = standing
        self._scraper = Scraper(runtime, parts.machine.broker_id, self._own, self._others)

    async def open(self, settings: BrokerSettings) -> None:
        """Begin to report, where that is wanted; raises InvalidConfig if it is not possible."""
        names = settings.items(REPORTERS)
        if names:
            made = await self._runtime.run_blocking(reporters, names)
            interval_s = settings.number(INTERVAL) / 1000
            self._runtime.start(self._report_forever(made, interval_s), "report metrics")

    async def _report_forever(self, made: Sequence[Reporter], interval_s: float) -> None:
        failing: set[Reporter] = set()
        while True:
            await self._runtime.sleep(interval_s)
            samples = await self.scrape()
            for one in made:
                try:
                    await self._runtime.run_blocking(one.report, samples, self._runtime.now_ms())
                except AssertionError:
                    raise
                except Exception:  # of a library: metrics are not worth the broker
                    if one not in failing:
                        log.exception("metrics are not reported, until this is over")
                    failing.add(one)
                else:
                    failing.discard(one)

    async def scrape(self) -> list[Sample]:
        """Everything that all processes tell."""
        return await self._scraper.scrape()

    def _others(self) -> list[Asked]:
        parts, controller, supervisor = self._parts, None, None
        broker_id, image = parts.machine.broker_id, parts.machine.image
        if tells_for_all(image, broker_id):
            controller = parts.controller.name
            supervisor = supervisor_name(self._cluster_id) if image.wanted else None
        return who_is_asked(broker_id, parts.family.refs, controller, supervisor)

    async def _own(self, samples: Samples) -> None:
        parts, standing = self._parts, self._standing()
        samples.add(families.INFO, 1, self._cluster_id, BUILD)
        for state in STATES:
            samples.add(families.STATE, state == standing.state, state)
        self._add_children(samples)
        disk = await log_dir(self._runtime, parts.path, [])
        for family, figure in (
            (families.STARTS, parts.starts),
            (families.METADATA_OFFSET, parts.machine.image.offset),
            (families.CONTROLLER_SILENCE, standing.silent_ms / 1000),
            (families.REPLICAS, standing.partitions),
            (families.OFFLINE_LOGS, standing.offline),
            (families.VOTES, parts.seat.votes),
            (families.VOTE_TROUBLE, bool(parts.seat.trouble)),
        ):
            samples.add(family, figure)
        if not disk.offline:
            samples.add(families.DISK_BYTES, disk.total_bytes)
            samples.add(families.DISK_USABLE, disk.usable_bytes)

    def _add_children(self, samples: Samples) -> None:
        counts: Counter[tuple[str, str]] = Counter()
        restarts: Counter[str] = Counter()
        for child in self._parts.family.describe():
            counts[child.role, child.state] += 1
            restarts[child.role] += child.restarts
        for (role, state), count in counts.items():
            samples.add(families.CHILDREN, count, role, state)
        for role, count in restarts.items():
            samples.add(families.RESTARTS, count, role)


def tells_for_all(image: MetadataImage, broker_id: int) -> bool:
    """Whether a broker tells of the whole cluster: of those that serve the one of the lowest id.

    While metadata is on its way two brokers may do so, or none.
    """
    serving = [one.broker_id for one in image.brokers.values() if one.is_live]
    return min(serving, default=broker_id) == broker_id

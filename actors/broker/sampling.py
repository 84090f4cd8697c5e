"""Samples a broker's metrics on request, and lists the other processes to ask."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from raylog.actors.broker.child_processes import ChildProcesses
from raylog.actors.broker.controller_handle import ControllerHandle
from raylog.actors.broker.describing import log_dir
from raylog.actors.broker.health import Standing
from raylog.actors.broker.rules.machine import BrokerMachine
from raylog.actors.broker.scraping import Asked, Scraper, who_is_asked
from raylog.actors.broker.voter_membership import VoterMembership
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
    """The parts of a broker."""

    machine: BrokerMachine
    children: ChildProcesses
    controller: ControllerHandle
    membership: VoterMembership
    path: str
    """The data directory."""
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
        """Start the configured reporters; raises InvalidConfig if that fails."""
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
                except Exception:  # from a library: must not end the broker
                    if one not in failing:
                        log.exception("metrics are not reported; further failures are not logged")
                    failing.add(one)
                else:
                    failing.discard(one)

    async def scrape(self) -> list[Sample]:
        """Collect the samples of all processes."""
        return await self._scraper.scrape()

    def _others(self) -> list[Asked]:
        parts, controller, supervisor = self._parts, None, None
        broker_id, image = parts.machine.broker_id, parts.machine.image
        if reports_for_cluster(image, broker_id):
            controller = parts.controller.name
            supervisor = supervisor_name(self._cluster_id) if image.wanted else None
        return who_is_asked(broker_id, parts.children.refs, controller, supervisor)

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
            (families.VOTES, parts.membership.votes),
            (families.VOTE_TROUBLE, bool(parts.membership.trouble)),
        ):
            samples.add(family, figure)
        if not disk.offline:
            samples.add(families.DISK_BYTES, disk.total_bytes)
            samples.add(families.DISK_USABLE, disk.usable_bytes)

    def _add_children(self, samples: Samples) -> None:
        counts: Counter[tuple[str, str]] = Counter()
        restarts: Counter[str] = Counter()
        for child in self._parts.children.describe():
            counts[child.role, child.state] += 1
            restarts[child.role] += child.restarts
        for (role, state), count in counts.items():
            samples.add(families.CHILDREN, count, role, state)
        for role, count in restarts.items():
            samples.add(families.RESTARTS, count, role)


def reports_for_cluster(image: MetadataImage, broker_id: int) -> bool:
    """Whether this broker reports for the whole cluster, as the live broker with the lowest id.

    While metadata is on its way, two brokers or none may do so.
    """
    serving = [one.broker_id for one in image.brokers.values() if one.is_live]
    return min(serving, default=broker_id) == broker_id

"""Shell of the supervisor: watches the cluster, starts brokers and updates Ray's copy of its state.

There is one per cluster, under a fixed name. It is stateless: Ray restarts it on any node, and
`raylog up` or any broker that starts creates it if it is missing. Without it brokers keep running,
and Ray restarts them; it is needed when an actor is gone for good, and for changes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from raylog.actors.controller.messages import WantedBrokers
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.names import BROKER, SUPERVISOR, broker_name, supervisor_name
from raylog.actors.remote import Controller, Method, Ts, call
from raylog.actors.runtime.base import (
    ActorSpec,
    LinkRequest,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.actors.supervisor.controllers import CALL_TIMEOUT_MS, by_controller
from raylog.actors.supervisor.notes import holds_of, losses_of, release
from raylog.actors.supervisor.rules.desired import (
    DesiredCluster,
    cluster_key,
    read_desired,
)
from raylog.actors.supervisor.rules.machine import SupervisorMachine
from raylog.actors.supervisor.starting import start_unless_held
from raylog.wire.errors import InvalidRequest, KafkaError

log = logging.getLogger(__name__)
T = TypeVar("T")
LOOK_S = 2.0
"""Interval between two looks."""


def supervisor_spec(cluster_id: str, brokers: Iterable[BrokerWanted] = ()) -> ActorSpec:
    """Return the spec of a supervisor, on a node of a broker, since Raylog is installed there."""
    args = {"cluster_id": cluster_id}
    hosts = tuple(dict(one.labels) for one in brokers)
    return ActorSpec(supervisor_name(cluster_id), SUPERVISOR, args, hosts=hosts, restarts=True)


async def ensure_supervisor(
    runtime: Runtime, cluster_id: str, brokers: Iterable[BrokerWanted] = ()
) -> None:
    """Create the supervisor if there is none; raises PeerLost, PeerTimeout, KafkaError."""
    spec = supervisor_spec(cluster_id, brokers)
    if spec.name in await runtime.names(spec.name):
        return
    try:
        await runtime.spawn(spec)
    except ValueError as taken:
        log.info("the supervisor exists already: %s", taken)


class SupervisorActor:
    """Answers `troubles` and `ping`."""

    def __init__(self, runtime: Runtime, *, cluster_id: str) -> None:
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._machine = SupervisorMachine()
        self._reported: dict[int, str] = {}
        self._is_lost = False
        """Whether the cluster is missing in Ray's key-value store."""

    async def start(self) -> None:
        """Start watching the cluster."""
        self._runtime.start(self._supervise(), "supervise")

    async def stop(self) -> None:
        """There is nothing to save."""

    def link_received(self, request: LinkRequest) -> None:
        """Refuse the request: links are not used."""
        request.fail(InvalidRequest(f"a supervisor serves no {request.kind} over links"))

    def link_lost(self, peer: int) -> None:
        """There is nothing to do: links are not used."""

    async def ping(self) -> dict[str, object]:
        """Identify the cluster."""
        return {"cluster_id": self._cluster_id}

    async def troubles(self) -> dict[int, str]:
        """Return why wanted brokers are not running, by id."""
        return dict(self._machine.troubles)

    async def _supervise(self) -> None:
        while True:
            try:
                await self._look()
            except (PeerLost, PeerTimeout, KafkaError) as failure:
                log.warning("the cluster cannot be looked at: %s", failure)
            await self._runtime.sleep(LOOK_S)

    async def _look(self) -> None:
        key = cluster_key(self._cluster_id)
        contents = await self._runtime.kv_get(key)
        if contents is None:
            if not self._is_lost:
                log.warning("Ray's key-value store has lost %s: `raylog up` finds it again", key)
            self._is_lost = True
            return
        self._is_lost = False
        desired = read_desired(contents, key)
        if desired.stopped:
            return
        names = await self._runtime.names(f"{self._cluster_id}/{BROKER}/")
        holds = await holds_of(self._runtime, self._cluster_id)
        nodes = await self._runtime.nodes()
        now_ms = self._runtime.monotonic_ms()
        starts = self._machine.decide(desired, nodes, names, now_ms, holds)
        try:
            for broker_id in self._machine.ended:
                log.info("broker %d is no longer held", broker_id)
                await release(self._runtime, self._cluster_id, broker_id, holds[broker_id])
        finally:  # brokers that are still held are started after a later look
            for one in starts:
                self._runtime.start(self._start(desired, one), f"start broker {one.broker_id}")
        losses = await losses_of(self._runtime, self._cluster_id)
        held = {*holds} - {*self._machine.ended}
        wall_ms = self._runtime.now_ms()
        for wanted in self._machine.replaceable(desired, losses, nodes, held, wall_ms):
            await self._replace(desired, names, wanted)
        self._tell()
        await self._synchronise(desired, names)

    def _tell(self) -> None:
        """Log new problems."""
        for broker_id, why in self._machine.troubles.items():
            if self._reported.get(broker_id) != why:
                log.warning("broker %d: %s", broker_id, why)
        self._reported = self._machine.troubles

    async def _start(self, desired: DesiredCluster, wanted: BrokerWanted) -> None:
        broker_id = wanted.broker_id
        try:
            held = await start_unless_held(self._runtime, desired, wanted)
        except ValueError as taken:
            log.info("broker %d runs: %s", broker_id, taken)
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            log.error("broker %d does not start: %s", broker_id, failure)
            self._machine.failed(broker_id, str(failure), self._runtime.monotonic_ms())
            return
        else:
            if held is not None:
                log.info("broker %d is not started: it %s", broker_id, held)
        self._machine.started(broker_id)

    async def _replace(
        self, desired: DesiredCluster, names: set[str], wanted: BrokerWanted
    ) -> None:
        """Replace a broker whose directory has been lost for too long."""
        broker_id, lost = wanted.broker_id, wanted.directory_id

        async def replace_it(controller: str) -> None:
            await self._call(controller, Controller.replace_broker, broker_id, lost)

        try:
            await self._by_controller(desired, names, replace_it)
        except InvalidRequest as refused:
            self._machine.refused(broker_id, str(refused), self._runtime.now_ms())
        except PeerLost as failure:
            log.info("no controller replaces broker %d: %s", broker_id, failure)
        else:
            log.warning("broker %d begins anew: its directory %s is lost", broker_id, lost)

    async def _synchronise(self, desired: DesiredCluster, names: set[str]) -> None:
        """Update Ray's copy from the metadata, after adding what the metadata does not know yet."""
        said = await self._ask(desired, names)
        if said is None or not said.brokers or said.offset < desired.offset:
            return  # the controller is unknown, or it is behind
        current = replace(desired, brokers=said.brokers, voters=said.voters, offset=desired.offset)
        if current != desired or not desired.is_in_metadata:
            current = replace(current, offset=said.offset, is_in_metadata=True)
            await self._runtime.kv_put(current.key, current.to_bytes())

    async def _ask(self, desired: DesiredCluster, names: set[str]) -> WantedBrokers | None:
        """Return what the controller answers, or None if no broker knows one that serves."""

        async def tell_and_ask(controller: str) -> WantedBrokers:
            if not desired.is_in_metadata:
                await self._call(controller, Controller.want_brokers, list(desired.brokers))
            return await self._call(controller, Controller.wanted_brokers)

        try:
            return await self._by_controller(desired, names, tell_and_ask)
        except PeerLost as failure:
            log.info("the wanted brokers are unknown: %s", failure)
            return None

    async def _by_controller(
        self, desired: DesiredCluster, names: set[str], ask: Callable[[str], Awaitable[T]]
    ) -> T:
        """Call `by_controller` with those brokers that have an actor."""
        ids = [one.broker_id for one in desired.brokers]
        there = [one for one in ids if broker_name(self._cluster_id, one) in names]
        return await by_controller(self._runtime, self._cluster_id, there, ask)

    async def _call(self, name: str, method: Method[*Ts, T], *args: *Ts) -> T:
        return await call(self._runtime, name, method, *args, timeout_ms=CALL_TIMEOUT_MS)

"""A cluster of brokers on Ray as a test sees it: started, looked at, hurt, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from raylog.actors.broker.api import BrokerStatus
from raylog.actors.cluster import (
    BrokerPlan,
    ClusterPlan,
    describe_cluster,
    plan_cluster,
    start_cluster,
    stop_cluster,
)
from raylog.actors.names import BROKER, CONTROLLER, broker_name, controller_name
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, on_node
from raylog.actors.runtime.processes import descendants
from raylog.actors.runtime.ray_node import LOOPBACK, ActorEntry, LocalRay, actors_named

if TYPE_CHECKING:
    from raylog.actors.runtime.ray import RayRuntime

T = TypeVar("T")
DEADLINE_S = 60.0
LOOK_S = 0.02
IMPORT_S = 0.7
"""An interpreter's start and import of Ray on the idle reference machine."""


def wait_until(look: Callable[[], T], what: str, timeout_s: float = DEADLINE_S) -> T:
    """The first true value that `look` gives; fails after a while."""
    deadline = time.monotonic() + timeout_s
    while not (value := look()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(LOOK_S)
    return value


def slowness() -> float:
    """How many times longer the start of a process takes here and now than on an idle machine.

    A restarted actor is such a process: where others take the processor's time, promises about
    restarts are kept as much later as this says. It is measured before what it is to judge: what
    that has left running must not excuse it.
    """
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import ray"], check=True)
    return max(1.0, (time.monotonic() - began) / IMPORT_S)


@dataclass(slots=True)
class RayCluster:
    """One cluster; its brokers keep their ports through stop and start."""

    runtime: RayRuntime
    data: Path
    brokers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[str] = ()
    ports: list[int] = field(default_factory=list)
    hosts: Sequence[str] = ()
    """Where each broker listens, if not all on loopback."""
    _plan: ClusterPlan | None = None

    def start(self) -> float:
        """Start all brokers, on the data that is there; returns the seconds until they serve."""
        began = time.monotonic()
        asyncio.run(self._start())
        return time.monotonic() - began

    async def _start(self) -> None:
        self._plan = plan_cluster(
            self.data,
            self.runtime,
            host=LOOPBACK,
            ports=self.ports or [0] * self.brokers,
            settings=self.settings,
            nodes=self.nodes,
        )
        self._plan = replace(
            self._plan, brokers=tuple(map(self._placed, self._plan.brokers, self._hosts))
        )
        self.ports = [
            one.endpoints[0].port for one in await start_cluster(self.runtime, self._plan)
        ]

    @property
    def _hosts(self) -> Sequence[str]:
        return self.hosts or [LOOPBACK] * self.brokers

    @staticmethod
    def _placed(broker: BrokerPlan, host: str) -> BrokerPlan:
        """A broker that listens at its own host."""
        listeners = broker.settings["listeners"].replace(LOOPBACK, host)
        return replace(broker, settings={**broker.settings, "listeners": listeners})

    def start_one(self, broker_id: int, node_id: str) -> float:
        """Start one broker again, on another node; returns the seconds until it serves."""
        began = time.monotonic()
        assert self._plan is not None, "the cluster was started"
        (broker,) = [one for one in self._plan.brokers if one.broker_id == broker_id]
        plan = replace(self._plan, brokers=(replace(broker, place=on_node(node_id)),))
        (status,) = asyncio.run(start_cluster(self.runtime, plan))
        assert status.endpoints[0].port == self.ports[broker_id]
        return time.monotonic() - began

    def stop(self) -> dict[int, str]:
        """Stop all brokers cleanly; returns what did not end so."""
        return asyncio.run(stop_cluster(self.runtime, self.cluster_id, self.broker_ids))

    def end(self) -> None:
        """End every actor that is left, however the cluster stands; Ray restarts none."""
        if self._plan is not None:
            asyncio.run(self._end())

    async def _end(self) -> None:
        # Who restarts others goes first.
        actors = sorted(self.actors(), key=lambda one: f"/{BROKER}/" not in one.name)
        for actor in actors:
            await self.runtime.end_for_good(actor.name)

    @property
    def cluster_id(self) -> str:
        """Its id."""
        assert self._plan is not None, "the cluster was started"
        return self._plan.cluster_id

    @property
    def broker_ids(self) -> list[int]:
        """Of all brokers that were started."""
        assert self._plan is not None, "the cluster was started"
        return [broker.broker_id for broker in self._plan.brokers]

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        places = zip(self._hosts, self.ports, strict=True)
        return ",".join(f"{host}:{port}" for host, port in places)

    def actors(self) -> list[ActorEntry]:
        """All actors of the cluster, as Ray knows them."""
        return actors_named(f"{self.cluster_id}/")

    def status(self, broker_id: int = 0) -> BrokerStatus:
        """How a broker stands."""
        return asyncio.run(describe_cluster(self.runtime, self.cluster_id, [broker_id]))[0]

    def pid(self, role: str, broker_id: int = 0) -> int:
        """The process of a role; of replicas, the one that holds most partitions. 0: none."""
        try:
            if role == CONTROLLER:
                return asyncio.run(self.runtime.find(controller_name(self.cluster_id))).pid
            if role == BROKER:
                name = broker_name(self.cluster_id, broker_id)
                return asyncio.run(self.runtime.find(name)).pid
            children = [one for one in self.status(broker_id).children if one.role == role]
        except (ActorGone, PeerLost, PeerTimeout):
            return 0
        return max(children, key=lambda one: (one.partitions, one.pid)).pid if children else 0

    def kill(self, role: str, broker_id: int = 0) -> int:
        """End a process of a role by SIGKILL; returns its pid."""
        pid = self.pid(role, broker_id)
        assert pid, f"broker {broker_id} has no {role}"
        os.kill(pid, signal.SIGKILL)
        return pid

    def until_succeeded(self, role: str, pid: int, broker_id: int = 0) -> int:
        """Wait until another process than `pid` plays a role; returns its pid."""

        def successor() -> int:
            found = self.pid(role, broker_id)
            return found if found != pid else 0

        return wait_until(successor, f"a successor of {role} {pid}")


Note = Callable[[str, float], None]
"""Notes a figure for the end of the report."""
NewCluster = Callable[..., RayCluster]
"""Makes a cluster on a test's own data, which is ended with the test."""
NewNode = Callable[..., LocalRay]
"""Starts a node more of the Ray of this session, which ends with the test."""


def kill(node: LocalRay) -> None:
    """End a node with all that runs on it."""
    for process in [*node.processes, *descendants(node.processes)]:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def create(
    bootstrap: str, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None
) -> None:
    """Create a topic as a client does."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": "0"})
    new = NewTopic(topic, partitions, config=dict(settings or {}))
    admin.create_topics([new])[topic].result(DEADLINE_S)

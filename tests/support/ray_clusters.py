"""A cluster of brokers on Ray that a test starts, inspects, disturbs and stops."""

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

from raylog.actors.broker.messages import BrokerStatus
from raylog.actors.cluster import (
    BrokerPlan,
    ClusterPlan,
    describe_cluster,
    plan_cluster,
    start_cluster,
    stop_cluster,
)
from raylog.actors.names import BROKER, CONTROLLER, broker_name, controller_name
from raylog.actors.places import on_node
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.actors.runtime.processes import descendants
from raylog.actors.runtime.ray_node import LOOPBACK, ActorEntry, LocalRay, actors_named

if TYPE_CHECKING:
    from raylog.actors.runtime.ray import RayRuntime

T = TypeVar("T")
DEADLINE_S = 60.0
LOOK_S = 0.02
IMPORT_S = 0.7
"""The time to start an interpreter and import Ray on the idle reference machine."""


def wait_until(look: Callable[[], T], what: str, timeout_s: float = DEADLINE_S) -> T:
    """Return the first true value of `look`; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := look()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(LOOK_S)
    return value


def slowness() -> float:
    """Return how much longer starting a process takes now than on an idle machine (1.0 or more).

    A restarted actor is such a process: on a loaded machine, deadlines for restarts are extended
    by this factor. Measure it before the operation to judge, so that processes left over by the
    operation do not excuse it.
    """
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import ray"], check=True)
    return max(1.0, (time.monotonic() - began) / IMPORT_S)


@dataclass(slots=True)
class RayCluster:
    """One cluster, whose brokers keep their ports when it is stopped and started."""

    runtime: RayRuntime
    data: Path
    brokers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[str] = ()
    ports: list[int] = field(default_factory=list)
    hosts: Sequence[str] = ()
    """Where each broker listens, if not on loopback."""
    _plan: ClusterPlan | None = None

    def start(self) -> float:
        """Start all brokers on the existing data; return the seconds until they serve."""
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
        """Return a plan of a broker that listens on its own host."""
        listeners = broker.settings["listeners"].replace(LOOPBACK, host)
        return replace(broker, settings={**broker.settings, "listeners": listeners})

    def start_one(self, broker_id: int, node_id: str) -> float:
        """Restart one broker on another node; return the seconds until it serves."""
        began = time.monotonic()
        assert self._plan is not None, "the cluster was started"
        (broker,) = [one for one in self._plan.brokers if one.broker_id == broker_id]
        plan = replace(self._plan, brokers=(replace(broker, place=on_node(node_id)),))
        (status,) = asyncio.run(start_cluster(self.runtime, plan))
        assert status.endpoints[0].port == self.ports[broker_id]
        return time.monotonic() - began

    def stop(self) -> dict[int, str]:
        """Stop all brokers cleanly; return what did not stop cleanly."""
        return asyncio.run(stop_cluster(self.runtime, self.cluster_id, self.broker_ids))

    def end(self) -> None:
        """End all actors, whatever the cluster's state; Ray restarts none."""
        if self._plan is not None:
            asyncio.run(self._end())

    async def _end(self) -> None:
        # Actors that restart others end first.
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
        """The ids of all brokers that were started."""
        assert self._plan is not None, "the cluster was started"
        return [broker.broker_id for broker in self._plan.brokers]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        places = zip(self._hosts, self.ports, strict=True)
        return ",".join(f"{host}:{port}" for host, port in places)

    def actors(self) -> list[ActorEntry]:
        """Return all actors of the cluster, as Ray reports them."""
        return actors_named(f"{self.cluster_id}/")

    def status(self, broker_id: int = 0) -> BrokerStatus:
        """Return a broker's status."""
        return asyncio.run(describe_cluster(self.runtime, self.cluster_id, [broker_id]))[0]

    def pid(self, role: str, broker_id: int = 0) -> int:
        """Return the pid of a role, for replicas of the process with most partitions; 0 if none."""
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
        """Kill a process of a role with SIGKILL; return its pid."""
        pid = self.pid(role, broker_id)
        assert pid, f"broker {broker_id} has no {role}"
        os.kill(pid, signal.SIGKILL)
        return pid

    def until_succeeded(self, role: str, pid: int, broker_id: int = 0) -> int:
        """Wait until a process other than `pid` has the role; return its pid."""

        def successor() -> int:
            found = self.pid(role, broker_id)
            return found if found != pid else 0

        return wait_until(successor, f"a successor of {role} {pid}")


Note = Callable[[str, float], None]
"""Records a figure for the end of the report."""
NewCluster = Callable[..., RayCluster]
"""Creates a cluster on a test's own data; it ends with the test."""
NewNode = Callable[..., LocalRay]
"""Starts another node of the session's Ray; it ends with the test."""


def kill(node: LocalRay) -> None:
    """Kill a node with all that runs on it."""
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

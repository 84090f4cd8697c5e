"""Three brokers on three Ray nodes, for fault campaigns; Ray's head runs on a fourth node."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from raylog.actors.names import BROKER, CONTROLLER, OFFSETS_TOPIC, REPLICA
from raylog.actors.runtime import ray_node
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.actors.runtime.processes import descendants
from raylog.actors.runtime.ray_node import LocalRay
from tests.cluster.faults_network import CLIENT_PORTS, HUB, Network, address_of
from tests.support.ray_clusters import DEADLINE_S, RayCluster, wait_until

BROKERS = 3
RETURN_S = 180.0
"""For a node that is lost to be missed by Ray, and for its broker to be back and level."""
STARTS_MAX = 3
_DESCRIBE_MS = 5_000


@dataclass(slots=True)
class ThreeNodeCluster:
    """The cluster, and the machines it stands for."""

    ray_cluster: RayCluster
    folder: Path
    head: LocalRay
    network: Network | None
    nodes: dict[int, LocalRay] = field(default_factory=dict)
    """Broker id to the Ray node it is on."""
    _started: int = 0

    # ---- machines ------------------------------------------------------------------------

    def start_node(self, broker_id: int) -> LocalRay:
        """Start a Ray node on the machine of a broker; again where Ray gives up, short of time."""
        for _ in range(STARTS_MAX):
            self._started += 1
            node = self._start_node(broker_id, self._started)
            if node is not None:
                self.nodes[broker_id] = node
                return node
        raise AssertionError(f"Ray gave up {STARTS_MAX} starts of a node")

    def _start_node(self, broker_id: int, index: int) -> LocalRay | None:
        run = self.folder / "nodes"
        if self.network is None:
            return ray_node.start_node(run, index=index, join=self.head.address)
        module = [sys.executable, "-m", "tests.cluster.faults_node"]
        given = [str(run), str(index), self.head.address, address_of(broker_id)]
        command = [*self.network.within(broker_id), *module, *given]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        nodes = ray_node.running_nodes(run)
        return next((one for one in nodes if one.node_id in done.stdout), None)

    def processes_of(self, broker_id: int) -> list[int]:
        """All that runs on the node of a broker."""
        node = self.nodes[broker_id]
        return [one.pid for one in (*node.processes, *descendants(node.processes))]

    def mend(self) -> None:
        """Replace every node that Ray has given up; its broker comes back with its data."""
        for broker_id, node in tuple(self.nodes.items()):
            if not self._is_alive(node):
                send(signal.SIGKILL, self.processes_of(broker_id))
                self._bring_back(broker_id)

    def _is_alive(self, node: LocalRay) -> bool:
        import ray  # it reads its environment when it is imported

        nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's
        return node.is_running and any(
            one["Alive"] for one in nodes if one["NodeID"] == node.node_id
        )

    def _bring_back(self, broker_id: int) -> None:
        gone = f"{self.ray_cluster.cluster_id}/{BROKER}/{broker_id}/"
        wait_until(
            lambda: not any(one.name.startswith(gone) for one in self.ray_cluster.actors()),
            "Ray to miss the node",
            RETURN_S,
        )
        self.ray_cluster.start_one(broker_id, self.start_node(broker_id).node_id)

    # ---- actors --------------------------------------------------------------------------

    def pid_of(self, role: str, broker_id: int) -> int:
        """A running process of that role."""
        return wait_until(
            lambda: self.ray_cluster.pid(role, broker_id), f"broker {broker_id}'s {role}"
        )

    def controllers(self) -> dict[int, str]:
        """Processes of controllers, with the nodes they are on; rivals among them."""
        prefix = f"{self.ray_cluster.cluster_id}/{CONTROLLER}"
        return {
            one.pid: one.node_id
            for one in self.ray_cluster.actors()
            if one.name.startswith(prefix) and one.pid and one.state == "ALIVE"
        }

    def settle_controller(self) -> None:
        """Have the controller on a broker's node: without one, a broker starts the next on its."""
        prefix = f"{self.ray_cluster.cluster_id}/{CONTROLLER}"
        nodes = {node.node_id for node in self.nodes.values()}
        if nodes.isdisjoint(self.controllers().values()):
            for one in self.ray_cluster.actors():
                if one.name.startswith(prefix):
                    asyncio.run(self.ray_cluster.runtime.end_for_good(one.name))
            wait_until(
                lambda: not nodes.isdisjoint(self.controllers().values()),
                "a controller on a broker's node",
            )
            self.until_all_in_sync()

    def replica_of(self, broker_id: int, topic: str, partition: int) -> tuple[int, set[int]]:
        """The process that has a partition open: its pid, and all partitions of the topic in it."""

        def look() -> tuple[int, set[int]] | None:
            with suppress(PeerLost, PeerTimeout):
                for child in self.ray_cluster.status(broker_id).children:
                    if child.role == REPLICA and child.pid:
                        held = self._held(child.name, topic)
                        if partition in held:
                            return child.pid, held
            return None

        found = wait_until(look, f"the replica of {topic}-{partition} at broker {broker_id}")
        assert found is not None
        return found

    def _held(self, name: str, topic: str) -> set[int]:
        call = self.ray_cluster.runtime.call(name, "describe", timeout_ms=_DESCRIBE_MS)
        return {one.partition for one in asyncio.run(call) if one.topic == topic}

    # ---- partitions ----------------------------------------------------------------------

    def admin(self) -> AdminClient:
        """A client without memory of what was before."""
        return AdminClient({"bootstrap.servers": self.ray_cluster.bootstrap, "log_level": "0"})

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition to leader, once each has one."""
        admin = self.admin()

        def look() -> dict[int, int] | None:
            found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
            leaders = {index: one.leader for index, one in found.items()}
            return leaders if leaders and min(leaders.values()) >= 0 else None

        leaders = wait_until(look, f"leaders of {topic}")
        assert leaders is not None
        return leaders

    def describe(self) -> Iterator[str]:
        """How everything stands, for whoever looks for what went wrong."""
        for pid, node in self.controllers().items():
            yield f"controller {pid} on node {node}"
        for topic in self.admin().list_topics(timeout=DEADLINE_S).topics.values():
            if topic.topic != OFFSETS_TOPIC:
                for index, one in topic.partitions.items():
                    yield f"{topic.topic}-{index}: leader {one.leader}, in sync {one.isrs}"
        for broker_id in range(BROKERS):
            try:
                status = self.ray_cluster.status(broker_id)
            except (PeerLost, PeerTimeout) as failure:
                yield f"broker {broker_id}: {failure}"
                continue
            yield f"broker {broker_id}: {status.state}, metadata {status.metadata_offset}"
            yield from (f"  {child}" for child in status.children)
            yield from (f"  {one}" for one in status.partitions if one.topic != OFFSETS_TOPIC)

    def until_all_in_sync(self) -> None:
        """Wait until all that was killed is back and every replica of every topic is in sync."""
        wait_until(self._all_run, "brokers and controller to run", RETURN_S)
        admin = self.admin()

        def level() -> bool:
            topics = admin.list_topics(timeout=DEADLINE_S).topics.values()
            return all(
                len(one.isrs) == BROKERS for topic in topics for one in topic.partitions.values()
            )

        wait_until(level, "all replicas to be in sync", RETURN_S)

    def _all_run(self) -> bool:
        with suppress(PeerLost, PeerTimeout):
            states = [self.ray_cluster.status(broker_id).state for broker_id in range(BROKERS)]
            return bool(self.controllers()) and set(states) == {"running"}
        return False


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Signal processes; those that are gone are passed over."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def three_node_cluster(
    folder: Path, network: Network | None, settings: Mapping[str, str]
) -> Iterator[ThreeNodeCluster]:
    """Three Ray nodes with a broker each; all of it is gone afterwards."""
    run, nodes_run = folder / "head", folder / "nodes"
    for one in (run, nodes_run):
        one.mkdir(mode=0o700)
    with ExitStack() as stack:
        host = ray_node.LOOPBACK if network is None else address_of(HUB)
        stack.callback(ray_node.stop_nodes, run)
        head = ray_node.start_node(run, host=host)
        shutil.copy(head.token_path, nodes_run / "ray.token")
        stack.callback(ray_node.stop_nodes, nodes_run)
        ray_node.connect(head.address, head.token_path, None if network is None else host)
        from raylog.actors.runtime.ray import RayRuntime  # Ray reads its environment then

        stack.callback(ray_node.disconnect)
        secret = run / "link.secret"
        secret.write_bytes(secrets.token_bytes(32))
        cluster = RayCluster(
            RayRuntime.of_driver(str(secret)),
            folder / "data",
            brokers=BROKERS,
            settings=settings,
            ports=[] if network is None else list(CLIENT_PORTS[:BROKERS]),
            hosts=[] if network is None else [address_of(one) for one in range(BROKERS)],
        )
        here = ThreeNodeCluster(cluster, folder, head, network)
        cluster.nodes = [here.start_node(broker_id).node_id for broker_id in range(BROKERS)]
        stack.callback(cluster.end)
        cluster.start()
        yield here

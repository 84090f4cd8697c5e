"""`raylog brokers stop`, `start`, `restart`, and SIGTERM, on three Ray nodes under writes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.actors.names import BROKER, CONTROLLER
from raylog.actors.runtime import ray_node
from raylog.actors.runtime.ray_node import ActorEntry, LocalRay, actors_named
from raylog.actors.supervisor.controllers import by_controller
from raylog.actors.supervisor.placing import PlacementAsked
from raylog.cli.asking import ask_actors
from raylog.cli.holding import start, stop
from raylog.cli.ray_cluster import start_on_ray, stop_on_ray, the_cluster, troubles_of
from raylog.cli.restarting import restart
from raylog.client import BlockingClient, NewTopic
from tests.cluster.test_up_down import free_ports
from tests.support.load import Reader, Writer, assert_nothing_lost
from tests.support.ray_clusters import Note, slowness, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
BROKERS = 3
PARTITIONS = 3
SOME = 20
PAUSE_S = 0.05
STOPPED_S = 20.0
INTERRUPTED_S = 2.0
"""A planned move may keep a partition from writing for so long."""


class Cluster:
    """Three brokers on three Ray nodes, each on the node with its label."""

    def __init__(self, data: Path, nodes: list[LocalRay]) -> None:
        self.nodes = nodes
        self.address = nodes[0].address
        settings = {"leader.imbalance.check.interval.seconds": "1"}
        asked = PlacementAsked(
            str(data), port=free_ports(BROKERS), settings=settings, cpus=0.1, memory_bytes=50 << 20
        )
        record = start_on_ray(self.address, asked, insecure_ray=False, tell=print)
        self.cluster_id = record.cluster_id
        self.bootstrap = ",".join(record.bootstrap)

    def actors(self, role: str) -> list[ActorEntry]:
        """The living actors of a role."""
        return [one for one in actors_named(f"{self.cluster_id}/{role}") if one.state == "ALIVE"]

    def controller(self) -> ActorEntry:
        """The controller that serves; where starts take long others come up, and end."""
        desired = the_cluster(self.address)
        ids = [one.broker_id for one in desired.brokers]

        async def name_of(controller: str) -> str:
            return controller

        name = ask_actors(
            desired, lambda runtime: by_controller(runtime, desired.cluster_id, ids, name_of)
        )
        (found,) = [one for one in self.actors(CONTROLLER) if one.name == name]
        return found

    def pids(self) -> set[int]:
        """Of the brokers and the controller."""
        return {self.controller().pid, *(one.pid for one in self.actors(BROKER))}

    def troubles(self) -> list[str]:
        """Why brokers do not run."""
        return troubles_of(self.address, the_cluster(self.address))

    def leaders(self, topic: str) -> set[int]:
        """Who leads the partitions of a topic."""
        with BlockingClient(self.bootstrap) as client:
            return {one.leader for one in client.describe_partitions([topic]).values()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    run, data = tmp_path_factory.mktemp("ray"), tmp_path_factory.mktemp("data")
    nodes: list[LocalRay] = []
    try:
        for number in range(BROKERS):
            joined = nodes[0].address if nodes else None
            labels = {"raylog-broker": str(number)}
            nodes.append(ray_node.start_node(run, index=number, join=joined, cpus=1, labels=labels))
        ray_node.connect(nodes[0].address, nodes[0].token_path)
        cluster = Cluster(data, nodes)
        yield cluster
        for process in nodes[-1].processes:  # its machine is away when the cluster is stopped
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: len(ray_node.live_nodes()) < BROKERS, "Ray to miss a node")
        began = time.monotonic()
        assert stop_on_ray(cluster.address, data, 60, print) == {}
        assert time.monotonic() - began < STOPPED_S * slowness()
        assert actors_named(f"{cluster.cluster_id}/") == []
    finally:
        ray_node.disconnect()
        assert ray_node.stop_nodes(run) == []


@contextlib.contextmanager
def written(cluster: Cluster, topic: str) -> Iterator[Writer]:
    """A topic that is written to meanwhile; all records are there at the end."""
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topics([NewTopic(topic, PARTITIONS, replication_factor=BROKERS)])
    ends = (cluster.bootstrap, topic, PARTITIONS)
    with Reader(*ends) as reader, Writer(*ends, pause_s=PAUSE_S) as writer:
        writer.until_acknowledged(SOME)
        writer.longest_s()
        yield writer
        writer.until_acknowledged(SOME)
        writer.finish()
        assert_nothing_lost(writer, reader)


def test_brokers_and_the_controller_are_restarted_in_turn(
    cluster: Cluster, note: Note, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cluster.pids()
    assert len(before) == BROKERS + 1
    with written(cluster, "restarted") as writer:
        restart(every=True, address=cluster.address)
        note("longest_s", longest_s := writer.longest_s())
    assert longest_s < INTERRUPTED_S * slowness()
    assert not before & cluster.pids()
    assert len(cluster.pids()) == BROKERS + 1
    said = capsys.readouterr().err
    assert said.index("broker 0 serves again") < said.index("broker 2 serves again")
    assert "the controller serves again" in said


def test_a_stopped_broker_stays_so_until_it_is_started(cluster: Cluster) -> None:
    stop([1], address=cluster.address)
    assert "broker 1: is held: it was stopped by command" in cluster.troubles()
    assert len(cluster.actors(BROKER)) == BROKERS - 1
    start([1], address=cluster.address)
    start([1], address=cluster.address)
    assert len(cluster.actors(BROKER)) == BROKERS
    wait_until(lambda: not cluster.troubles(), "no trouble")


def test_the_brokers_of_this_machine_are_stopped(cluster: Cluster) -> None:
    stop(here=True, address=cluster.address)
    (held,) = [one for one in cluster.troubles() if "its machine is going down" in one]
    assert held.startswith("broker 0: ")
    start(here=True, address=cluster.address)
    assert len(cluster.actors(BROKER)) == BROKERS


def test_a_broker_that_is_told_to_end_moves_its_leaders_first(cluster: Cluster, note: Note) -> None:
    with written(cluster, "ended") as writer:
        wait_until(lambda: cluster.leaders("ended") == {0, 1, 2}, "preferred leaders")
        (broker,) = [one for one in cluster.actors(BROKER) if "/broker/1/" in one.name]
        everybody = [one for one in actors_named(f"{cluster.cluster_id}/") if "/1/" in one.name]
        children = {one.pid for one in everybody if one.state == "ALIVE"} - {broker.pid}
        writer.longest_s()
        for pid in (*children, broker.pid):
            with contextlib.suppress(
                ProcessLookupError
            ):  # a gateway may live in a replica's process
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: broker.pid not in cluster.pids(), "the end of the process")
        writer.until_acknowledged(SOME)
        note("longest_s", longest_s := writer.longest_s())
        assert longest_s < INTERRUPTED_S * slowness()
        wait_until(lambda: len(cluster.actors(BROKER)) == BROKERS, "Ray to start it again")

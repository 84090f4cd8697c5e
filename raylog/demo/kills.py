"""Kills processes under the pipeline with SIGKILL."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep

from raylog.actors.cluster import describe_cluster
from raylog.actors.names import REPLICA
from raylog.actors.runtime.ray_node import actors_named
from raylog.cluster_record import ClusterRecord, read_record
from raylog.demo.cluster import Cluster, leader_of
from raylog.demo.screen import DemoError

FAILOVER_S = 30.0
_CALL_MS = 10_000
_LOOK_S = 0.05
_EXECUTOR = "raydp-executor"


@dataclass(slots=True)
class Kill:
    """A kill that is due once a share of the events is written."""

    whom: str
    after: float
    """From 0 to 1."""
    strike: Callable[[], str]
    """Kills. Returns what was done and what followed."""


def plan(cluster: Cluster, topic: str) -> list[Kill]:
    """Kill an executor, and the leader of partition 0 of a topic."""
    return [
        Kill("the executor", 0.3, kill_executor),
        Kill("the leader", 0.6, lambda: kill_leader(cluster, topic, 0)),
    ]


def kill_executor() -> str:
    """Kill a Spark executor. This process must be connected to Ray."""
    executors = [one for one in actors_named(_EXECUTOR) if one.state == "ALIVE" and one.pid]
    if not executors:
        raise DemoError("no Spark executor is running")
    victim = executors[0]
    os.kill(victim.pid, signal.SIGKILL)
    return f"Spark executor {victim.name}, process {victim.pid}; {len(executors) - 1} left"


def kill_leader(cluster: Cluster, topic: str, partition: int) -> str:
    """Kill the process that leads a partition, and wait for the next leader."""
    record = read_record(cluster.data / "run")
    assert record is not None, "the cluster is up"
    leader = leader_of(cluster.bootstrap, topic, partition)
    pid = asyncio.run(_leading_process(record, leader, topic, partition))
    began = monotonic()
    os.kill(pid, signal.SIGKILL)

    found = leader
    while found in {leader, -1}:
        if monotonic() - began > FAILOVER_S:
            raise DemoError(f"{topic}-{partition} has no other leader after {FAILOVER_S:.0f} s")
        sleep(_LOOK_S)
        found = leader_of(cluster.bootstrap, topic, partition)
    return (
        f"process {pid} of broker {leader}, leader of {topic}-{partition}; "
        f"broker {found} leads after {monotonic() - began:.1f} s"
    )


async def _leading_process(
    record: ClusterRecord, broker_id: int, topic: str, partition: int
) -> int:
    """Return the process id of a broker's process that hosts a partition."""
    from raylog.actors.runtime.ray import RayRuntime  # only while this process is a driver

    runtime = RayRuntime.of_driver(record.secret_path)
    (broker,) = await describe_cluster(runtime, record.cluster_id, [broker_id])
    for child in broker.children:
        if child.role == REPLICA and child.pid:
            held = await runtime.call(child.name, "describe", timeout_ms=_CALL_MS)
            if any((one.topic, one.partition) == (topic, partition) for one in held):
                return child.pid
    raise DemoError(f"no process of broker {broker_id} has {topic}-{partition} open")

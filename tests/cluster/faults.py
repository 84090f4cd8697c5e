"""Three brokers on three Ray nodes under random faults, with the history checker on.

`make faults SECONDS=600 SEED=1`: processes are killed and stopped, a whole node is lost and comes
back; after each fault it waits until every partition can be written and all replicas are in sync,
and says how long both took. Ends with the checker's verdict: 0 if nothing was wrong.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated

import typer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from raylog.actors.names import BROKER, CONTROLLER, GATEWAY, REPLICA
from raylog.actors.runtime import ray_node
from raylog.actors.runtime.processes import descendants
from raylog.actors.runtime.ray_node import LocalRay
from tests.checker.report import show
from tests.checker.workload import Plan, Workload
from tests.support.load import Reader, Writer, assert_nothing_lost
from tests.support.ray_clusters import DEADLINE_S, RayCluster, wait_until

BROKERS, PARTITIONS = 3, 6
TOPIC = "timed"
ROLES = (REPLICA, GATEWAY, BROKER, CONTROLLER)
PAUSE_S = (1.0, 20.0)
NODE_CHANCE = 0.1
"""Of a fault, to be the loss of a node."""
RETURN_S = 180.0
"""For a node that is lost to be missed by Ray, and for its broker to be back and level."""
PLAN = Plan(
    producers=3, consumers=2, members=2, partitions=6, replicas=3, min_insync=2, records_per_s=100
)


@dataclass(slots=True)
class Site:
    """The cluster, and the machines it stands for."""

    cluster: RayCluster
    join: str
    nodes_run: Path
    admin: AdminClient
    nodes: dict[int, LocalRay]
    """Broker id to the Ray node it is on; broker 0 is on the head, which is not lost."""
    next_node: int = BROKERS
    away_s: dict[str, list[float]] = field(default_factory=dict)
    """Kind of fault to the times that some partition could not be written."""

    def until_all_in_sync(self) -> None:
        """Wait until every replica of every topic is in sync."""

        def level() -> bool:
            topics = self.admin.list_topics(timeout=DEADLINE_S).topics.values()
            return all(
                len(one.isrs) == BROKERS for topic in topics for one in topic.partitions.values()
            )

        wait_until(level, "all replicas to be in sync", RETURN_S)

    def pid_of(self, role: str, broker_id: int) -> int:
        """A running process of that role; the controller is nobody's."""
        if role != CONTROLLER:
            return self.cluster.pid(role, broker_id)
        prefix = f"{self.cluster.cluster_id}/{CONTROLLER}"
        found = [one.pid for one in self.cluster.actors() if one.name.startswith(prefix)]
        return next((pid for pid in found if pid), 0)

    def lose_node(self, broker_id: int) -> None:
        """End a node with all that runs on it."""
        node = self.nodes[broker_id]
        for process in [*node.processes, *descendants(node.processes)]:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    def bring_back(self, broker_id: int) -> None:
        """Start the broker again on a new node, with the data of the old one."""
        gone = f"{self.cluster.cluster_id}/{BROKER}/{broker_id}/"
        wait_until(
            lambda: not any(one.name.startswith(gone) for one in self.cluster.actors()),
            "Ray to miss the node",
            RETURN_S,
        )
        node = ray_node.start_node(self.nodes_run, index=self.next_node, join=self.join)
        self.next_node += 1
        self.nodes[broker_id] = node
        self.cluster.start_one(broker_id, node.node_id)


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Three Ray nodes with a broker each; all of it is gone afterwards."""
    run, nodes_run = folder / "head", folder / "nodes"
    for one in (run, nodes_run):
        one.mkdir(mode=0o700)
    with ExitStack() as stack:
        head = ray_node.start_node(run)
        stack.callback(ray_node.stop_nodes, run)
        shutil.copy(head.token_path, nodes_run / "ray.token")
        stack.callback(ray_node.stop_nodes, nodes_run)
        others = [
            ray_node.start_node(nodes_run, index=index, join=head.address)
            for index in range(1, BROKERS)
        ]
        ray_node.connect(head.address, head.token_path)
        from raylog.actors.runtime.ray import RayRuntime  # Ray reads its environment then

        stack.callback(ray_node.disconnect)
        secret = run / "link.secret"
        secret.write_bytes(secrets.token_bytes(32))
        nodes = dict(enumerate([head, *others]))
        cluster = RayCluster(
            RayRuntime.of_driver(str(secret)),
            folder / "data",
            brokers=BROKERS,
            settings={"gateway.in.replica.process": "false"},
            nodes=[node.node_id for node in nodes.values()],
        )
        stack.callback(cluster.end)
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": "0"})
        yield Site(cluster, head.address, nodes_run, admin, nodes)


def kill(site: Site, role: str, broker_id: int, _: Random) -> str:
    """SIGKILL."""
    os.kill(site.pid_of(role, broker_id), signal.SIGKILL)
    return "killed"


def pause(site: Site, role: str, broker_id: int, random: Random) -> str:
    """SIGSTOP for a while."""
    pid, seconds = site.pid_of(role, broker_id), random.uniform(*PAUSE_S)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)  # not a wait for something: it is what is done to the process
    with suppress(ProcessLookupError):  # it was given up meanwhile
        os.kill(pid, signal.SIGCONT)
    return f"stopped for {seconds:.1f} s"


def hurt(site: Site, random: Random, writer: Writer, say: Callable[[str], None]) -> None:
    """One fault, and what came of it."""
    broker_id = random.randrange(BROKERS)
    began = time.monotonic()
    if random.random() < NODE_CHANCE and broker_id != 0:
        kind, what = "node", f"node of broker {broker_id} lost"
        site.lose_node(broker_id)
        away_s = writer.until_acknowledged()
        site.bring_back(broker_id)
    else:
        role, fault = random.choice(ROLES), random.choice((kill, kill, pause))
        kind = f"{role} {fault.__name__}"
        done = fault(site, role, broker_id, random)
        what = f"{role} of broker {broker_id} {done}"
        away_s = writer.until_acknowledged()
    site.until_all_in_sync()
    site.away_s.setdefault(kind, []).append(away_s)
    say(f"{what}: written again after {away_s:.2f} s, level after {time.monotonic() - began:.1f} s")


def campaign(folder: Path, seconds: float, seed: int, console: Console) -> bool:
    """Faults for a while; whether the clients saw nothing wrong."""
    random = Random(seed)
    with site(folder) as here:
        config = {"min.insync.replicas": "2"}
        topic = NewTopic(TOPIC, PARTITIONS, BROKERS, config=config)
        here.admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
        bootstrap = here.cluster.bootstrap
        with (
            Workload(bootstrap, folder, PLAN) as workload,
            Reader(bootstrap, TOPIC, PARTITIONS) as reader,
            Writer(bootstrap, TOPIC, PARTITIONS, pause_s=0.02) as writer,
        ):
            writer.until_acknowledged()
            here.until_all_in_sync()
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                hurt(here, random, writer, console.print)
            writer.finish()
            assert_nothing_lost(writer, reader)
        for kind, times in sorted(here.away_s.items()):
            console.print(
                f"{kind:20} {len(times):3} times, not written for "
                f"{median(times):.2f} s (median), {max(times):.2f} s (longest)"
            )
    show(workload.verdict, console)
    for failure in workload.failures:
        console.print(failure)
    return workload.verdict.valid and not workload.failures


def main(
    seconds: Annotated[float, typer.Option(min=1)] = 600.0,
    seed: Annotated[int, typer.Option()] = 1,
) -> None:
    """Hurt a cluster of three nodes at random and judge what its clients saw."""
    with tempfile.TemporaryDirectory(prefix="raylog-faults-") as folder:
        clean = campaign(Path(folder), seconds, seed, Console(highlight=False, soft_wrap=True))
    raise typer.Exit(0 if clean else 1)


if __name__ == "__main__":
    typer.run(main)

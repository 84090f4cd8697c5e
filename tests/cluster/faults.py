"""Three brokers on three machines under random faults, checked by the history checker.

`make faults SECONDS=600 SEED=1 KINDS=kill,pause TIMES=40`: processes are killed and stopped, whole
nodes are lost, and networks are cut if namespaces are permitted (`faults_kinds` has the list).
Each kind comes once before any is repeated. After each fault it waits until every partition can be
written and all replicas are in sync. Two kinds of clients write and read meanwhile, in one history.
Ends with a table of the times until the next acknowledged write and the checker's verdict: 0 if
nothing was wrong.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from confluent_kafka.admin import NewTopic
from rich.console import Console

from bench.jars import MissingToolError, fetch
from tests.checker.java_clients import SOURCES
from tests.checker.report import show
from tests.checker.workload import Plan, Workload
from tests.cluster import faults_network
from tests.cluster.faults_figures import Figures, Probe
from tests.cluster.faults_kinds import KINDS, Scene, chosen
from tests.cluster.faults_network import Network, NoNamespacesError
from tests.cluster.three_node_cluster import BROKERS, ThreeNodeCluster, three_node_cluster
from tests.support.load import Reader, assert_nothing_lost
from tests.support.ray_clusters import DEADLINE_S

PARTITIONS = 6
TOPIC = "timed"
ALL = "kill,pause,cut"


def plan(*, java: bool) -> Plan:
    """What clients do; with Java's, half of them are."""
    each = 2 if java else 0
    return Plan(
        producers=2,
        consumers=2,
        members=2,
        partitions=6,
        replicas=3,
        min_insync=2,
        records_per_s=30,
        java_producers=each,
        java_consumers=each // 2,
        java_members=each,
    )


def has_java(console: Console) -> bool:
    """Whether Java's clients can take part; says so where not."""
    try:
        fetch(SOURCES)
    except MissingToolError as missing:
        console.print(f"without Java clients: {missing}")
        return False
    return True


def deck(kinds: list[str], times: int, random: Random) -> Iterator[str]:
    """Kinds in random order, all of them once before any comes again; `times` 0: without end."""
    rounds = 0
    while not times or rounds < times:
        yield from random.sample(kinds, len(kinds))
        rounds += 1


def hurt(kind: str, scene: Scene, probe: Probe, figures: Figures) -> str:
    """One fault; returns what came of it."""
    fault = KINDS[kind](scene)
    fault.strike()
    mark = probe.mark()
    time.sleep(fault.seconds)  # not a wait for something: that is how long it lasts
    if fault.relieve is not None:
        fault.relieve()
    silence_s = probe.silence_s(mark, fault.partitions, fault.seconds)
    scene.cluster.mend()
    scene.cluster.until_all_in_sync()
    level_s = time.monotonic() - mark.at_s
    figures.note(kind, silence_s, level_s)
    return f"{fault.text}: not written for {silence_s:.2f} s, all level after {level_s:.1f} s"


class Campaign:
    """One run: a cluster, its clients, and faults until the time is over or all have come."""

    def __init__(self, folder: Path, console: Console, seed: int) -> None:
        self.figures = Figures()
        self._folder = folder
        self._console = console
        self._random = Random(seed)
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Progress."""
        load = os.getloadavg()[0]
        self._console.print(f"[{time.monotonic() - self._began:5.0f} s, load {load:4.1f}] {text}")

    def _hurt(self, kind: str, scene: Scene, probe: Probe) -> None:
        """One fault; where what it broke does not come back, how everything stands then."""
        try:
            self.say(f"{kind}: {hurt(kind, scene, probe, self.figures)}")
        except AssertionError:
            self.say(f"{kind}: not served again; {probe.standing()}")
            for line in scene.cluster.describe():
                self._console.print(line, markup=False)
            raise

    def run(self, here: ThreeNodeCluster, kinds: list[str], seconds: float, times: int) -> bool:
        """Faults for a while; whether the clients saw nothing wrong."""
        topic = NewTopic(TOPIC, PARTITIONS, BROKERS, config={"min.insync.replicas": "2"})
        admin = here.admin()
        admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
        bootstrap = here.ray_cluster.bootstrap
        clients = plan(java=has_java(self._console))
        scene = Scene(here, self._random, TOPIC)
        with (
            Workload(bootstrap, self._folder, clients) as workload,
            Reader(bootstrap, TOPIC, PARTITIONS) as reader,
            Probe(bootstrap, TOPIC, PARTITIONS, pause_s=0.05) as probe,
        ):
            probe.until_acknowledged()
            here.until_all_in_sync()
            self.say("the cluster is up")
            ends_at = time.monotonic() + seconds
            for kind in deck(kinds, times, self._random):
                if time.monotonic() > ends_at:
                    break
                self._hurt(kind, scene, probe)
            probe.finish()
            assert_nothing_lost(probe, reader)
            self.say(f"{probe.acknowledged_count:,} records of the probe, none lost")
        show(workload.verdict, self._console)
        for failure in workload.failures:
            self._console.print(failure, markup=False)
        return workload.verdict.valid and not workload.failures


def network_of(console: Console) -> Network | None:
    """Networks for the nodes, or none; may begin this program anew within one."""
    if not faults_network.is_hub():
        try:
            faults_network.enter_hub()
        except NoNamespacesError as missing:
            console.print(f"without cuts: {missing}", markup=False)
            return None
    return Network(BROKERS)


def main(
    seconds: Annotated[float, typer.Option(min=1)] = 600.0,
    seed: Annotated[int, typer.Option()] = 1,
    kinds: Annotated[str, typer.Option(help="Names or their beginnings, with commas.")] = ALL,
    times: Annotated[int, typer.Option(min=0, help="Of each kind; 0: till the end.")] = 0,
    together: Annotated[bool, typer.Option(help="Gateways in replicas' processes.")] = False,
    folder: Annotated[Path | None, typer.Option(help="New, short; logs stay there.")] = None,
) -> None:
    """Hurt a cluster of three nodes at random and judge what its clients saw."""
    console = Console(highlight=False, soft_wrap=True, width=110)
    network = network_of(console)
    settings = {"gateway.in.replica.process": "true" if together else "false"}
    with tempfile.TemporaryDirectory(prefix="raylog-faults-") as temporary:
        home = folder or Path(temporary)
        home.mkdir(exist_ok=True)
        campaign = Campaign(home, console, seed)
        try:
            with network or nullcontext(), three_node_cluster(home, network, settings) as here:
                which = chosen(kinds, cuts=network is not None)
                clean = campaign.run(here, which, seconds, times)
        finally:
            if campaign.figures.silence_s:
                console.print(campaign.figures.table())
    raise typer.Exit(0 if clean else 1)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()

"""Exactly-once under kills: a consume-transform-produce job on three brokers, every record judged.

`make copying RECORDS=100000 KILL_EVERY=10 CLIENTS=mixed` (or confluent, or java): three copiers in
one group, each a process with a transactional id of its own, copy nine partitions to nine in
transactions that carry their offsets; some are aborted on purpose. All the time a read_committed
reader looks at the sink, and every few seconds a process, drawn at random, is killed with SIGKILL:
a copier, a Broker actor, a broker with all its children, the leader of a sink's partition, a
gateway, the coordinator of a copier's transactions or of the group, the controller. Ends when the
reader has seen every record, with the figures and the verdict: 0 if every record of the source was
there once and in order, none of an aborted transaction was, and no transaction was torn, for this
reader and for one that came later.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from raylog.actors.names import GROUP, TRANSACTION
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.cluster.copying_copier import Job
from tests.cluster.copying_ends import SinkReader, Source
from tests.cluster.copying_fleet import CONFLUENT, Fleet
from tests.cluster.copying_judge import Ends, Judge
from tests.cluster.faults_kinds import WHO, Scene
from tests.cluster.faults_site import Site, send, site
from tests.support.ray_clusters import DEADLINE_S, LOOK_S, wait_until
from tests.support.wire_client import WireClient

SOURCE, SINK, GROUP_ID, COPIER = "source", "sink", "copiers", "copier"
CLIENTS = {
    "confluent": [CONFLUENT] * 3,
    "java": ["java"] * 3,
    "mixed": [CONFLUENT, "java", CONFLUENT],
}
WHOLE = "whole broker"
VICTIMS = ("copier", "broker", WHOLE, "leader", "gateway", "transaction", "group", "controller")
STUCK_S = 240.0
"""Without any record for the reader, the job is taken to be stuck."""
_KEY_TYPES = {GROUP: 0, TRANSACTION: 1}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is copied, and by whom."""

    records: int
    records_per_s: float
    """Of the source, while it is being filled."""
    kinds: list[str]
    """Of copiers."""
    partitions: int = 9
    replicas: int = 3
    min_insync: int = 2
    size: int = 750
    """Records of a transaction."""
    aborts: float = 0.02
    """Share of transactions that are aborted on purpose."""


class Work:
    """The job on a cluster: topics, source, copiers and reader."""

    def __init__(self, bootstrap: str, folder: Path, plan: Plan) -> None:
        _create_topics(bootstrap, plan)
        job = Job(
            bootstrap,
            source=SOURCE,
            sink=SINK,
            group=GROUP_ID,
            transactional_id=COPIER,
            life=0,
            size=plan.size,
            aborts=plan.aborts,
            notes="",
        )
        self.fleet = Fleet(job, plan.kinds, folder)
        self.source = Source(
            bootstrap,
            SOURCE,
            partitions=plan.partitions,
            records=plan.records,
            records_per_s=plan.records_per_s,
        )
        self.reader = SinkReader(bootstrap, SINK, plan.partitions, Judge(plan.partitions))
        self._bootstrap = bootstrap
        self._plan = plan

    def run(self, each: Callable[[], None]) -> Ends:
        """Copy all; `each` is called again and again meanwhile. Returns what copiers knew."""
        with self.source, self.reader, self.fleet:
            progress = (0, time.monotonic())
            while not self.is_done:
                self._check(progress)
                if self.reader.seen != progress[0]:
                    progress = self.reader.seen, time.monotonic()
                each()
                time.sleep(LOOK_S)
            self.fleet.finish()
        return Ends.load(self.fleet.notes)

    def progress(self) -> str:
        """How far it is."""
        return f"{self.source.acknowledged:,} written, {self.reader.seen:,} copied"

    @property
    def is_done(self) -> bool:
        """Whether the reader has seen the end of every partition."""
        return self.source.is_written and self.reader.judge.numbers == self.source.sent

    def _check(self, progress: tuple[int, float]) -> None:
        self.fleet.mend()
        failures = [*self.source.failures, *self.reader.failures, *self.fleet.failures]
        assert not failures, failures[:3]
        silent_s = time.monotonic() - progress[1]
        assert silent_s < STUCK_S, f"no record for {silent_s:.0f} s after {progress[0]:,}"

    def judge(self, ends: Ends) -> Iterator[str]:
        """What was wrong, for the reader beside the job, one that comes now, and the offsets."""
        self.reader.judge.finish(self.source.sent, ends)
        yield from self.reader.judge.lines()
        fresh = Judge(self._plan.partitions)
        with SinkReader(self._bootstrap, SINK, self._plan.partitions, fresh) as later:
            wait_until(
                lambda: later.failures or later.judge.numbers == self.source.sent,
                "the sink to be read again",
                5 * DEADLINE_S,
            )
        later.judge.finish(self.source.sent, ends)
        yield from (f"read again: {line}" for line in [*later.judge.lines(), *later.failures])
        if self.offsets() != self.source.sent:
            yield f"the group's offsets are {self.offsets()}, not {self.source.sent}"

    def offsets(self) -> dict[int, int]:
        """The group's committed offsets."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": GROUP_ID})
        asked = [TopicPartition(SOURCE, index) for index in range(self._plan.partitions)]
        found = consumer.committed(asked, DEADLINE_S)
        consumer.close()
        return {one.partition: one.offset for one in found}


def _create_topics(bootstrap: str, plan: Plan) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": "0"})
    config = {"min.insync.replicas": str(plan.min_insync)}
    topics = [
        NewTopic(name, plan.partitions, plan.replicas, config=config) for name in (SOURCE, SINK)
    ]
    for made in admin.create_topics(topics).values():
        made.result(DEADLINE_S)


def coordinator_of(port: int, role: str, key: str) -> int:
    """The broker that coordinates a group or a transactional id, as another knows it; -1: none."""
    with WireClient("127.0.0.1", port) as client:
        asked = FindCoordinatorRequest(key=key, key_type=_KEY_TYPES[role])
        node_id = client.ask(asked, 3).node_id
    assert isinstance(node_id, int)
    return node_id


def coordinator_process(scene: Scene, role: str, key: str) -> int:
    """The process that coordinates a group or a transactional id."""
    cluster = scene.site.cluster

    def look() -> int | None:
        asked = cluster.ports[scene.some_broker()]
        try:
            found = coordinator_of(asked, role, key)
        except (OSError, EOFError):
            return None
        return cluster.pid(role, found) if found >= 0 else None

    pid = wait_until(look, f"the {role} coordinator of {key}")
    assert pid is not None
    return pid


def kill_coordinator(scene: Scene, role: str, key: str) -> str:
    """The process that coordinates a group or a transactional id; returns whom that was."""
    pid = coordinator_process(scene, role, key)
    send(signal.SIGKILL, [pid])
    return f"{role} coordinator of {key}, process {pid}"


def kill_whole_broker(scene: Scene) -> str:
    """A broker's process and those of all its children, at once; returns whom that was."""
    broker_id = scene.some_broker()
    alive = [one for one in scene.site.cluster.actors() if one.pid and one.state == "ALIVE"]
    pids = {one.pid for one in alive if one.name.split("/")[2:3] == [str(broker_id)]}
    send(signal.SIGKILL, pids)
    return f"broker {broker_id} with its children, {len(pids)} processes"


class Killer:
    """Kills somebody every so many seconds, each kind once before any comes again."""

    def __init__(
        self, scene: Scene, work: Work, every_s: float, say: Callable[[str], None]
    ) -> None:
        self.kills: Counter[str] = Counter()
        self._scene = scene
        self._fleet = work.fleet
        self._work = work
        self._every_s = every_s
        self._next_at = time.monotonic() + every_s
        self._deck: list[str] = []
        self._say = say

    def look(self) -> None:
        """Kill somebody if it is time; the first once the job is under way."""
        if not self._work.reader.seen:
            self._next_at = time.monotonic() + self._every_s
        if time.monotonic() >= self._next_at:
            kind = self._draw()
            self._say(f"{self._work.progress()}; killed: {self._kill(kind)}")
            self.kills[kind] += 1
            self._next_at = time.monotonic() + self._every_s

    def _draw(self) -> str:
        if not self._deck:
            self._deck = self._scene.random.sample(VICTIMS, len(VICTIMS))
        return self._deck.pop()

    def _kill(self, kind: str) -> str:
        number = self._scene.random.randrange(len(self._fleet.jobs))
        if kind == "copier":
            self._fleet.kill(number)
            return f"copier {number}"
        if kind in _KEY_TYPES:
            key = GROUP_ID if kind == GROUP else self._fleet.jobs[number].transactional_id
            return kill_coordinator(self._scene, kind, key)
        if kind == WHOLE:
            return kill_whole_broker(self._scene)
        victim = WHO[kind](self._scene)
        send(signal.SIGKILL, victim.pids)
        return victim.text


class Campaign:
    """One run on three Ray nodes."""

    def __init__(self, folder: Path, plan: Plan, console: Console) -> None:
        self._folder = folder
        self._plan = plan
        self._console = console
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Progress."""
        load = os.getloadavg()[0]
        took_s = time.monotonic() - self._began
        self._console.print(f"[{took_s:5.0f} s, load {load:4.1f}] {text}", markup=False)

    def run(self, here: Site, kill_every_s: float, random: Random) -> bool:
        """Copy all under kills; whether it was exactly once."""
        work = Work(here.cluster.bootstrap, self._folder, self._plan)
        killer = Killer(Scene(here, random, SINK), work, kill_every_s, self.say)
        began = time.monotonic()
        ends = work.run(killer.look)
        took_s = time.monotonic() - began
        wrong = list(work.judge(ends))
        for line in [*wrong[:50], *self._figures(work, ends, killer.kills, took_s)]:
            self._console.print(line, markup=False)
        return not wrong

    def _figures(self, work: Work, ends: Ends, kills: Counter[str], took_s: float) -> Iterator[str]:
        reader = work.reader
        yield (
            f"{reader.seen:,} records in {took_s:.0f} s, of {reader.judge.transactions:,} "
            f"transactions; known to be committed {len(ends.committed):,}, "
            f"aborted {len(ends.aborted):,}; copiers {', '.join(self._plan.kinds)}"
        )
        yield f"kills {kills.total()}: {_counted(kills)}"
        yield f"copiers that ended by themselves: {work.fleet.ends.total()}"
        yield f"errors told to copiers: {_counted(ends.errors)}"
        yield f"longest time without a record for the reader: {reader.silence_s:.1f} s"
        yield f"anomalies: {reader.judge.counts.total()}"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"


def main(
    records: Annotated[int, typer.Option(min=1)] = 100_000,
    records_per_s: Annotated[float, typer.Option(min=1, help="Into the source.")] = 1_000.0,
    kill_every: Annotated[float, typer.Option(min=1, help="Seconds.")] = 10.0,
    clients: Annotated[str, typer.Option(help="confluent, java or mixed.")] = "mixed",
    seed: Annotated[int, typer.Option()] = 1,
    folder: Annotated[Path | None, typer.Option(help="New, short; logs stay there.")] = None,
) -> None:
    """Copy under kills and judge what came of it."""
    console = Console(highlight=False, soft_wrap=True, width=110)
    plan = Plan(records, records_per_s, CLIENTS[clients])
    with ExitStack() as stack:
        home = folder or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="raylog-copying-"))
        )
        home.mkdir(exist_ok=True)
        here = stack.enter_context(site(home, None, {"gateway.in.replica.process": "false"}))
        clean = Campaign(home, plan, console).run(here, kill_every, Random(seed))
    raise typer.Exit(0 if clean else 1)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()

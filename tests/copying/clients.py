"""Exactly-once under kills: a consume-transform-produce job on three brokers, every record judged.

`make copying RECORDS=100000 KILL_EVERY=10 CLIENTS=mixed` (or confluent, or java): three copiers in
one group copy nine partitions to nine. Each is a process with its own transactional id, and its
transactions contain the offsets; some are aborted on purpose. All the time a read_committed
reader reads the sink, and every few seconds a process, drawn at random, is killed with SIGKILL: a
copier, a Broker actor, a broker with all its children, the leader of a sink's partition, a gateway,
the coordinator of a copier's transactions or of the group, the controller. The run ends when the
reader has seen every record. It prints figures and a verdict, and exits with 0 if every record of
the source came once and in order, no aborted record came, and no transaction was torn, for this
reader and for one that read the sink later.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from raylog.actors.names import GROUP, TRANSACTION
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.cluster.faults_kinds import WHO, Scene
from tests.cluster.three_node_cluster import send
from tests.copying.campaign import (
    SINK,
    SOURCE,
    Telling,
    counted,
    create_topics,
    offsets_of,
    read_again,
    three_nodes,
    watch,
)
from tests.copying.copier import Job
from tests.copying.ends import SinkReader, Source
from tests.copying.fleet import CONFLUENT, Fleet
from tests.copying.judge import Ends, TransactionJudge
from tests.support.ray_clusters import DEADLINE_S, wait_until
from tests.support.wire_client import WireClient

GROUP_ID, COPIER = "copiers", "copier"
CLIENTS = {
    "confluent": [CONFLUENT] * 3,
    "java": ["java"] * 3,
    "mixed": [CONFLUENT, "java", CONFLUENT],
}
WHOLE = "whole broker"
VICTIMS = ("copier", "broker", WHOLE, "leader", "gateway", "transaction", "group", "controller")
STUCK_S = 240.0
"""The job is stuck if the reader gets no record for this long."""
_KEY_TYPES = {GROUP: 0, TRANSACTION: 1}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is copied, and by which copiers."""

    records: int
    records_per_s: float
    """How fast the source is filled."""
    kinds: list[str]
    """The kinds of the copiers."""
    partitions: int = 9
    replicas: int = 3
    min_insync: int = 2
    size: int = 750
    """Records per transaction."""
    aborts: float = 0.02
    """Share of transactions that are aborted on purpose."""


class Work:
    """The job on a cluster: topics, source, copiers and reader."""

    def __init__(self, bootstrap: str, folder: Path, plan: Plan) -> None:
        create_topics(
            bootstrap, plan.partitions, replicas=plan.replicas, min_insync=plan.min_insync
        )
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
        self.reader = SinkReader(
            bootstrap, SINK, plan.partitions, TransactionJudge(plan.partitions)
        )
        self._bootstrap = bootstrap
        self._partitions = plan.partitions

    def run(self, each: Callable[[], None]) -> Ends:
        """Copy everything, calling `each` repeatedly; return what the copiers recorded."""

        def look() -> None:
            self.fleet.mend()
            failures = [*self.source.failures, *self.fleet.failures]
            assert not failures, failures[:3]
            each()

        with self.source, self.reader, self.fleet:
            watch(self.reader, lambda: self._is_read(self.reader), look, STUCK_S)
            self.fleet.finish()
        return Ends.load(self.fleet.notes)

    def progress(self) -> str:
        """Return the progress as text."""
        return f"{self.source.acknowledged:,} written, {self.reader.seen:,} copied"

    def _is_read(self, reader: SinkReader[TransactionJudge]) -> bool:
        """Return whether a reader has reached the end of every partition."""
        return self.source.is_written and reader.judge.numbers == self.source.sent

    def judge(self, ends: Ends) -> Iterator[str]:
        """Yield what was wrong for the running reader, for a later one, and in the offsets."""
        fresh = TransactionJudge(self._partitions)
        read_again(self._bootstrap, self._partitions, fresh, self._is_read, 5 * DEADLINE_S)
        for name, judge in (("", self.reader.judge), ("read again: ", fresh)):
            judge.finish(self.source.sent, ends)
            yield from (f"{name}{line}" for line in judge.lines())
        offsets = offsets_of(self._bootstrap, GROUP_ID, self._partitions)
        if offsets != self.source.sent:
            yield f"the group's offsets are {offsets}, not {self.source.sent}"


def coordinator_of(port: int, role: str, key: str) -> int:
    """Return the broker that coordinates a group or a transactional id; -1 if none does."""
    with WireClient("127.0.0.1", port) as client:
        asked = FindCoordinatorRequest(key=key, key_type=_KEY_TYPES[role])
        node_id = client.ask(asked, 3).node_id
    assert isinstance(node_id, int)
    return node_id


def coordinator_process(scene: Scene, role: str, key: str) -> int:
    """Return the pid of the coordinator of a group or a transactional id."""
    cluster = scene.cluster.ray_cluster

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
    """Kill the coordinator of a group or a transactional id; return a description."""
    pid = coordinator_process(scene, role, key)
    send(signal.SIGKILL, [pid])
    return f"{role} coordinator of {key}, process {pid}"


def kill_whole_broker(scene: Scene) -> str:
    """Kill a broker with all its children at once; return a description."""
    broker_id = scene.some_broker()
    alive = [one for one in scene.cluster.ray_cluster.actors() if one.pid and one.state == "ALIVE"]
    pids = {one.pid for one in alive if one.name.split("/")[2:3] == [str(broker_id)]}
    send(signal.SIGKILL, pids)
    return f"broker {broker_id} with its children, {len(pids)} processes"


class Killer:
    """Kills a process every `every_s` seconds; each kind comes once before any is repeated."""

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
        """Kill a process if it is time; the first one only after the job has begun."""
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


def figures(work: Work, ends: Ends, kills: Counter[str], took_s: float) -> Iterator[str]:
    """Yield the results of the run."""
    reader = work.reader
    yield (
        f"{reader.seen:,} records in {took_s:.0f} s, of {reader.judge.transactions:,} "
        f"transactions; known to be committed {len(ends.committed):,}, "
        f"aborted {len(ends.aborted):,}; copiers {', '.join(work.fleet.kinds)}"
    )
    yield f"kills {kills.total()}: {counted(kills)}"
    yield f"copiers that ended by themselves: {work.fleet.ends.total()}"
    yield f"errors told to copiers: {counted(ends.errors)}"
    yield f"longest time without a record for the reader: {reader.silence_s:.1f} s"
    yield f"anomalies: {reader.judge.counts.total()}"


def main(
    records: Annotated[int, typer.Option(min=1)] = 100_000,
    records_per_s: Annotated[float, typer.Option(min=1, help="Into the source.")] = 1_000.0,
    kill_every: Annotated[float, typer.Option(min=1, help="Seconds.")] = 10.0,
    clients: Annotated[str, typer.Option(help="confluent, java or mixed.")] = "mixed",
    seed: Annotated[int, typer.Option()] = 1,
    folder: Annotated[Path | None, typer.Option(help="New, short; logs stay there.")] = None,
) -> None:
    """Copy under kills and judge what came of it."""
    plan = Plan(records, records_per_s, CLIENTS[clients])
    telling = Telling()
    with three_nodes(folder, {"gateway.in.replica.process": "false"}) as here:
        work = Work(here.ray_cluster.bootstrap, here.folder, plan)
        killer = Killer(Scene(here, Random(seed), SINK), work, kill_every, telling.say)
        began = time.monotonic()
        ends = work.run(killer.look)
        took_s = time.monotonic() - began
        wrong = list(work.judge(ends))
        telling.tell([*wrong[:50], *figures(work, ends, killer.kills, took_s)])
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()

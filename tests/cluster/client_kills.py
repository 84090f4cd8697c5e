"""Our own client's guarantees under kills: every way to consume, every record judged.

`make client-kills SECONDS=600 SEED=1`: three brokers on Ray; two idempotent producers, and groups
that process then commit, commit then process, or copy in transactions, by hand, by `eos.process`
and by a ParallelConsumer, in both group protocols (`client_kills_teams` has the list). Each client
is a process. Until the time is over,

- random clients are killed with SIGKILL and restarted; are stopped with SIGSTOP for longer than
  their session; are stopped, replaced by another client with the same ids, and then continued
  beside it; leave in order and come back; or an extra member comes and goes;
- processes of brokers are killed: the leader of a partition, the coordinator of a group or of a
  transactional id, a Broker actor, a broker with all its children, the controller.

Then faults and producers stop, and the groups drain. The history checker judges the topic, and
`tests.checker.promises` each group. Prints a table. Exits with 0 if nothing was wrong; otherwise
the logs are kept.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from confluent_kafka.admin import NewTopic
from rich.console import Console
from rich.table import Table

from raylog.actors.names import GROUP, TRANSACTION
from raylog.actors.runtime import ray_node
from tests.checker.anomalies import Verdict
from tests.checker.check import check
from tests.checker.history import History
from tests.checker.journal import read_journals
from tests.checker.operations import FinalRead, Operation, Poll, Span
from tests.checker.promises import (
    Effect,
    Findings,
    Promise,
    judge_effects,
    judge_processing,
    judge_sessions,
)
from tests.checker.report import show
from tests.cluster.client_kills_fleet import FAULTS, Fleet, Place
from tests.cluster.client_kills_teams import GROUPS, TEAMS, Team
from tests.cluster.client_kills_watch import (
    Records,
    Watch,
    read_with_librdkafka,
    read_with_our_client,
)
from tests.cluster.faults import deck
from tests.cluster.faults_kinds import WHO, Scene
from tests.cluster.three_node_cluster import BROKERS, ThreeNodeCluster, send
from tests.copying.clients import WHOLE, kill_coordinator, kill_whole_broker
from tests.support.ray_clusters import DEADLINE_S, RayCluster, wait_until

TOPIC, PARTITIONS = "records", 6
SETTINGS = {
    "gateway.in.replica.process": "true",
    "replica.actors.max": "1",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "200",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
BROKER_FAULTS = ["leader", "broker", WHOLE, GROUP, TRANSACTION, "controller"]
STEP_S = 0.1
TELLS_S = 10.0
DRAIN_S = 240.0


@contextmanager
def brokers(folder: Path) -> Iterator[ThreeNodeCluster]:
    """Three brokers on one Ray node; all of it is gone afterwards."""
    run = folder / "ray"
    run.mkdir(mode=0o700)
    with ExitStack() as stack:
        stack.callback(ray_node.stop_nodes, run)
        node = ray_node.start_node(run)
        ray_node.connect(node.address, node.token_path)
        from raylog.actors.runtime.ray import RayRuntime  # Ray reads its environment then

        stack.callback(ray_node.disconnect)
        secret = run / "link.secret"
        secret.write_bytes(secrets.token_bytes(32))
        runtime = RayRuntime.of_driver(str(secret))
        cluster = RayCluster(runtime, folder / "data", brokers=BROKERS, settings=SETTINGS)
        stack.callback(cluster.end)
        cluster.start()
        yield ThreeNodeCluster(cluster, folder, node, None)


class Campaign:
    """One run."""

    def __init__(
        self, here: ThreeNodeCluster, folder: Path, console: Console, seed: int, rate: float
    ) -> None:
        self._cluster = here
        self._bootstrap = here.ray_cluster.bootstrap
        self._folder = folder
        self._console = console
        self._random = Random(seed)
        self._began = time.monotonic()
        self._broker_kills: Counter[str] = Counter()
        place = Place(self._bootstrap, folder, TOPIC, PARTITIONS, rate)
        self._fleet = Fleet(place, TEAMS, Random(f"{seed} clients"))
        self._watch = Watch(self._bootstrap, TOPIC, PARTITIONS, GROUPS)
        self._scene = Scene(here, self._random, TOPIC)

    def say(self, text: str) -> None:
        """Progress."""
        load = os.getloadavg()[0]
        took_s = time.monotonic() - self._began
        self._console.print(f"[{took_s:5.0f} s, load {load:4.1f}] {text}", markup=False)

    def run(self, seconds: float, broker_every_s: float, client_every_s: float) -> bool:
        """Faults for a while, then calm, then the verdict."""
        self._create_topics()
        with self._watch, self._fleet:
            self.say(f"the cluster is up; {len(self._fleet.all_running)} clients start")
            wait_until(self._all_have_begun, "all groups to commit", DRAIN_S)
            self.say("all groups are at work")
            self._hurt(seconds, broker_every_s, client_every_s)
            self._drain()
        return self._judge()

    def _create_topics(self) -> None:
        names = [TOPIC, *(team.sink for team in GROUPS if team.sink)]
        config = {"min.insync.replicas": "2"}
        new = [NewTopic(name, PARTITIONS, BROKERS, config=config) for name in names]
        admin = self._cluster.admin()
        for made in admin.create_topics(new).values():
            made.result(DEADLINE_S)

    def _all_have_begun(self) -> bool:
        self._fleet.look()
        return all(self._watch.seen.values()) or bool(self._fleet.failures)

    # -- faults --------------------------------------------------------------------------------

    def _hurt(self, seconds: float, broker_every_s: float, client_every_s: float) -> None:
        ends_at = time.monotonic() + seconds
        steps = [
            _Every(client_every_s, deck(list(FAULTS), 0, self._random), self._hurt_client),
            _Every(broker_every_s, deck(BROKER_FAULTS, 0, self._random), self._kill_at_broker),
            _Every(TELLS_S, iter(self._progress, None), str),
        ]
        while time.monotonic() < ends_at and not self._fleet.failures:
            for step in steps:
                if outcome := step.look():
                    self.say(outcome)
            self._fleet.look()
            time.sleep(STEP_S)

    def _hurt_client(self, kind: str) -> str:
        self._fleet.hurt(kind)
        return ""  # there are too many; `faults.log` has them

    def _kill_at_broker(self, kind: str) -> str:
        self._broker_kills[kind] += 1
        if kind == WHOLE:
            return f"killed: {kill_whole_broker(self._scene)}"
        if kind in (GROUP, TRANSACTION):
            return f"killed: {kill_coordinator(self._scene, kind, self._some_key(kind))}"
        victim = WHO[kind](self._scene)
        send(signal.SIGKILL, victim.pids)
        return f"killed: {victim.text}"

    def _some_key(self, role: str) -> str:
        team = self._random.choice([one for one in GROUPS if one.sink or role == GROUP])
        return team.name if role == GROUP else f"{team.name}-0"

    def _progress(self) -> str:
        lags = {team.name: self._watch.lag(team.name) for team in GROUPS}
        slowest = max(lags, key=lambda name: lags[name])
        return (
            f"{self._watch.written:,} written; behind at most {lags[slowest]:,} ({slowest}); "
            f"{len(self._fleet.all_running)} clients run, {self._fleet.faults.total()} hurt; "
            f"{self._broker_kills.total()} kills at brokers"
        )

    def _drain(self) -> None:
        """No more faults: producers end, groups come to the end, all clients end."""
        self._fleet.calm()
        self.say("no more faults: producers end, groups drain")
        self._fleet.end(lambda slot: not slot.team.is_group)
        self._cluster.until_all_in_sync()
        rounds = self._watch.rounds + 2  # what is known by then was asked for after the last record

        def drained() -> bool:
            self._fleet.look()
            return self._watch.rounds > rounds and not any(
                self._watch.lag(team.name) for team in GROUPS
            )

        try:
            wait_until(drained, "groups to drain", DRAIN_S)
        except AssertionError as failure:
            self._fleet.failures.append(f"{failure}; {self._progress()}")
        self._fleet.end(lambda _: True)
        self.say(f"all ended; {self._progress()}")

    # -- the verdict ---------------------------------------------------------------------------

    def _judge(self) -> bool:
        log = self._read(TOPIC)
        journals = read_journals(
            (path for team in TEAMS for path in self._fleet.journals(team)), TOPIC
        )
        verdict = check(History.of([*journals.operations, *_final(log)]))
        history = History.of(journals.operations)
        offsets = {value: offset for _, offset, value in log}
        found = {"producers": judge_sessions(history.sends, offsets, journals.failed)}
        for team in GROUPS:
            found[team.name] = self._judge_group(team, log)
        self._show(verdict, found)
        wrong = sum(one.counts.total() for one in found.values())
        return verdict.valid and not wrong and not self._fleet.failures

    def _judge_group(self, team: Team, log: Records) -> Findings:
        seen = self._watch.seen[team.name]
        values: dict[int, list[str]] = {index: [] for index in range(PARTITIONS)}
        for partition, _, value in log:
            values[partition].append(value)
        if team.promise is Promise.EXACTLY_ONCE:
            effects = [_effect(*record) for record in self._read(team.sink)]
            return judge_effects(values, effects, seen, team.order)
        assert team.promise is not None, "it is a group"
        done = read_journals(self._fleet.journals(team), TOPIC).done
        ends = {partition: len(of) for partition, of in values.items()}
        return judge_processing(team.promise, ends, done, seen, team.order)

    def _read(self, topic: str) -> Records:
        """A topic, as two clients read it."""
        found = read_with_librdkafka(self._bootstrap, topic, PARTITIONS)
        ours = read_with_our_client(self._bootstrap, topic, PARTITIONS)
        if found != ours:
            differing = sorted(set(found) ^ set(ours))[:3]
            self._fleet.failures.append(
                f"librdkafka reads {len(found):,} records of {topic}, our client {len(ours):,}: "
                f"{differing}"
            )
        return found

    def _show(self, verdict: Verdict, found: Mapping[str, Findings]) -> None:
        show(verdict, self._console)
        self._console.print(self._table(found))
        for name, findings in found.items():
            for line in findings.shown:
                self._console.print(f"{name}: {line}", markup=False)
        for failure in self._fleet.failures:
            self._console.print(failure, markup=False)
        self.say(f"at clients: {_counted(self._fleet.faults)}; {self._fleet.fenced} were fenced")
        self.say(f"kills at brokers: {_counted(self._broker_kills)}")
        unanswered = self._watch.unanswered
        self.say(f"commits looked at {self._watch.rounds} times, {unanswered} without an answer")

    def _table(self, found: Mapping[str, Findings]) -> Table:
        table = Table("clients", "promise", "lives", "records", "processed", "again", "never")
        table.add_column("anomalies")
        for team in TEAMS:
            one = found[team.name]
            lives = sum(slot.lives for slot in self._fleet.slots if slot.team is team)
            counts = (lives, one.records, one.processed, one.repeated, one.missing)
            wrong = one.counts.total()
            table.add_row(
                team.name,
                team.promise or "acknowledged is kept",
                *(f"{count:,}" for count in counts),
                f"[red]{wrong}[/red]" if wrong else "[green]0[/green]",
            )
        return table


class _Every:
    """An action repeated at an interval."""

    def __init__(self, every_s: float, kinds: Iterator[str], action: Callable[[str], str]) -> None:
        self._every_s = every_s
        self._kinds = kinds
        self._action = action
        self._next_at = time.monotonic() + every_s

    def look(self) -> str:
        """Do it if it is time; what there is to be told."""
        if time.monotonic() < self._next_at:
            return ""
        outcome = self._action(next(self._kinds))
        self._next_at = time.monotonic() + self._every_s
        return outcome


def _final(log: Records) -> list[Operation]:
    """The final read of the topic as the checker wants it."""
    now_ns = time.monotonic_ns()
    operations: list[Operation] = []
    spans = []
    for index in range(PARTITIONS):
        ones = [record for record in log if record[0] == index]
        offsets, values = [one[1] for one in ones], [one[2] for one in ones]
        operations.append(Poll("final", now_ns, now_ns, [((TOPIC, index), offsets, values)]))
        spans.append(Span((TOPIC, index), 0, offsets[-1] + 1 if offsets else 0))
    return [*operations, FinalRead("final", now_ns, now_ns, spans)]


def _effect(partition: int, offset: int, text: str) -> Effect:
    of, at, key, value = text.split(" ", 3)
    return Effect(int(of), int(at), value, key, f"{partition}@{offset}")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"


def main(
    seconds: Annotated[float, typer.Option(min=1)] = 600.0,
    seed: Annotated[int, typer.Option()] = 1,
    rate: Annotated[float, typer.Option(min=1, help="Records a second of each producer.")] = 60.0,
    broker_every: Annotated[float, typer.Option(min=1, help="Seconds.")] = 12.0,
    client_every: Annotated[float, typer.Option(min=0.1, help="Seconds.")] = 1.5,
    folder: Annotated[Path | None, typer.Option(help="New, short; logs stay there.")] = None,
) -> None:
    """Hurt brokers and clients at random and judge what each group promised."""
    console = Console(highlight=False, soft_wrap=True, width=110)
    home = folder or Path(tempfile.mkdtemp(prefix="raylog-kills-"))
    home.mkdir(exist_ok=True)
    with brokers(home) as here:
        clean = Campaign(here, home, console, seed, rate).run(seconds, broker_every, client_every)
    if clean and folder is None:
        shutil.rmtree(home)
    else:
        console.print(f"logs: {home}", markup=False)
    raise typer.Exit(0 if clean else 1)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()

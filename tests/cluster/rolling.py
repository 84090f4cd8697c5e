"""Three brokers restart in turn, and partitions move, while the checker's clients work.

`make rolling`: `raylog up --brokers 3`, `raylog brokers restart`, `raylog topics reassign --wait`,
each as a user would type it. One topic has three replicas of which two must be in sync; the other
has two of three, so its reassignment copies records. Beside the checked clients, a producer that
never retries shows the errors that others hide by retrying. Ends with 0 if there was no anomaly and
every error was retriable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console

from raylog.client import BlockingClient
from raylog.wire.errors import ErrorCode
from tests.checker.history import load
from tests.checker.operations import Outcome
from tests.checker.report import show
from tests.checker.workload import Plan, Workload
from tests.support.librdkafka import QUICK
from tests.support.working import Working

BROKERS = 3
COMMAND_S = 600.0
PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
}
"""Of librdkafka's own: connections that break, and requests that go with them."""
OF_REBALANCES = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
}
"""Of commits: members of the checked group come and go all the time."""
KEPT = Plan(
    producers=2, consumers=1, members=2, partitions=6, replicas=3, min_insync=2, records_per_s=150
)
MOVED = Plan(
    producers=2,
    consumers=1,
    members=1,
    partitions=20,
    replicas=2,
    min_insync=1,
    records_per_s=200,
    record_bytes=4_000,
    seed=2,
)
Say = Callable[[str], object]


class Checked(Workload):
    """A workload whose clients also report their errors."""

    @property
    def errors(self) -> Counter[int]:
        """Codes of what its clients were told."""
        return self._recorder.errors


class BareProducer(Working):
    """A producer that never retries: each error of a broker fails a record."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__()
        self.errors: Counter[int] = Counter()
        self.acknowledged = 0
        self._settings = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "message.send.max.retries": "0",
            "enable.idempotence": "false",
            "linger.ms": "0",
        }
        self._topic, self._partitions = topic, partitions

    def work(self) -> None:
        """Until `ending`."""
        producer = Producer(self._settings | QUICK)
        while not self.ending.is_set():
            for partition in range(self._partitions):
                producer.produce(
                    self._topic, b"bare", partition=partition, on_delivery=self._delivered
                )
            producer.poll(0.05)
            while len(producer) > 10 * self._partitions and not self.ending.is_set():
                producer.poll(0.05)
        producer.flush(COMMAND_S)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors[error.code()] += 1


@dataclass(frozen=True, slots=True)
class Shell:
    """The command line, with one data directory."""

    data: Path

    def run(self, *arguments: str) -> str:
        """Run a command; raises AssertionError with its last words where it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "raylog.cli", *arguments],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, f"raylog {arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def cluster(self) -> Iterator[str]:
        """Three brokers; gives their addresses."""
        given = ("--brokers", str(BROKERS), "--port", "0", "--data", str(self.data))
        said = self.run("up", "--detach", *given)
        try:
            yield next(line for line in said.splitlines() if line.startswith("127.0.0.1:"))
        finally:
            self.run("down", "--data", str(self.data))


@dataclass(slots=True)
class Report:
    """What was done when, and what clients saw of it."""

    steps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name to begin and end, in ns of the monotonic clock."""
    longest_s: dict[str, float] = field(default_factory=dict)
    """Step to the longest wait of a record for its acknowledgement."""
    errors: Counter[int] = field(default_factory=Counter)
    """Errors that checked clients were told of."""
    bare: Counter[int] = field(default_factory=Counter)
    """Errors of the producer that repeats nothing."""
    failures: list[str] = field(default_factory=list)
    """What must not be."""

    @contextmanager
    def step(self, name: str, say: Say) -> Iterator[None]:
        """Something that is done to the cluster."""
        began_ns = time.monotonic_ns()
        yield
        self.steps[name] = began_ns, time.monotonic_ns()
        say(f"{name}: {(time.monotonic_ns() - began_ns) / 1e9:.1f} s")

    def judge(self, workload: Checked) -> None:
        """Take in what a workload's clients saw, once it has ended."""
        self.errors += workload.errors
        self.failures += workload.failures
        self.failures += [str(one.message) for one in workload.verdict.anomalies]
        for send in load([workload.path]).sends:
            if send.outcome is not Outcome.OK:
                self.failures.append(f"{send.value} was not acknowledged: {send.outcome}")
            for name, (began_ns, ended_ns) in self.steps.items():
                if send.invoked_ns < ended_ns and send.completed_ns > began_ns:
                    waited_s = (send.completed_ns - send.invoked_ns) / 1e9
                    self.longest_s[name] = max(self.longest_s.get(name, 0.0), waited_s)

    def lines(self) -> Iterator[str]:
        """What was found."""
        for name, (began_ns, ended_ns) in self.steps.items():
            yield (
                f"{name:24} {(ended_ns - began_ns) / 1e9:6.1f} s, a record waited "
                f"{self.longest_s.get(name, 0.0):.2f} s at most for its acknowledgement"
            )
        yield f"errors told by clients: {_named(self.errors)}"
        yield f"errors without repeats: {_named(self.bare)}"

    def end(self) -> None:
        """Note errors after which nothing could be repeated."""
        for codes, allowed in ((self.errors, OF_REBALANCES), (self.bare, set())):
            self.failures += [
                f"an error for good: {_name(code)}"
                for code in codes
                if not (code in PASSING or code in allowed or _is_retriable(code))
            ]


def _is_retriable(code: int) -> bool:
    return code > 0 and ErrorCode(code).retriable


def _name(code: int) -> str:
    return ErrorCode(code).name if code > 0 else KafkaError(code).name()


def _named(codes: Mapping[int, int]) -> str:
    found = sorted(codes.items(), key=lambda one: -one[1])
    return ", ".join(f"{_name(code)} {count}" for code, count in found) or "none"


def moves(bootstrap: str, topic: str, count: int) -> dict[str, object]:
    """A plan that takes each partition's replicas one broker further: `count` of them move."""
    with BlockingClient(bootstrap) as client:
        known = sorted(client.describe_partitions([topic]).items())
    rows = [
        {
            "topic": topic,
            "partition": key.partition,
            "replicas": [(broker + 1) % BROKERS for broker in found.replicas],
        }
        for key, found in known[:count]
    ]
    return {"version": 1, "partitions": rows}


def restart(shell: Shell, broker_id: int, report: Report, say: Say) -> None:
    """Restart one broker."""
    with report.step(f"restart of broker {broker_id}", say):
        said = shell.run("brokers", "restart", str(broker_id), "--data", str(shell.data))
    if "cleanly" in said:
        report.failures.append(said)


def reassign(
    shell: Shell, bootstrap: str, topic: str, count: int, report: Report, say: Say
) -> None:
    """Move partitions, and see that they are where they should be."""
    plan = shell.data.parent / "moves.json"
    plan.write_text(json.dumps(moves(bootstrap, topic, count)))
    common = ("topics", "reassign", "--bootstrap", bootstrap, "--from-file", str(plan))
    with report.step(f"{count} partitions moved", say):
        shell.run(*common, "--execute", "--wait")
    shell.run(*common, "--verify")


def rolling(
    folder: Path, brokers: int, count: int, say: Say, *, kept: Plan = KEPT, moved: Plan = MOVED
) -> tuple[Report, list[Checked]]:
    """Restart so many brokers, move so many partitions; what the clients saw of it."""
    report = Report()
    homes = [folder / "kept", folder / "moved"]
    for home in homes:
        home.mkdir()
    shell = Shell(folder / "data")
    with (
        shell.cluster() as bootstrap,
        Checked(bootstrap, homes[0], kept) as first,
        Checked(bootstrap, homes[1], moved) as second,
    ):
        bare_topic = f"{second.topic}-bare"
        given = ("-p", "6", "--replication-factor", "3", "-c", "min.insync.replicas=2")
        shell.run("topics", "create", bare_topic, "--bootstrap", bootstrap, *given)
        with BareProducer(bootstrap, bare_topic, 6) as bare:
            for broker_id in range(brokers):
                restart(shell, broker_id, report, say)
            reassign(shell, bootstrap, second.topic, count, report, say)
    if bare.acknowledged == 0:
        report.failures.append("the producer that repeats nothing was never acknowledged")
    report.bare += bare.errors
    report.judge(first)
    report.judge(second)
    report.end()
    return report, [first, second]


def main(
    brokers: Annotated[int, typer.Option(min=0, max=BROKERS, help="To restart.")] = BROKERS,
    partitions: Annotated[int, typer.Option(min=0, max=20, help="To move.")] = 20,
    folder: Annotated[
        Path | None, typer.Option(help="For data and histories; else they are dropped.")
    ] = None,
) -> None:
    """Restart brokers and move partitions under load, and judge what the clients saw."""
    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="raylog-rolling-") as temporary:
        home = folder or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        report, workloads = rolling(home, brokers, partitions, console.print)
    for workload in workloads:
        show(workload.verdict, console)
    for line in [*report.lines(), *report.failures[:20]]:
        console.print(line, markup=False)
    raise typer.Exit(1 if report.failures else 0)


if __name__ == "__main__":
    typer.run(main)

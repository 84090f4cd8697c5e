"""`python -m bench.client_libraries`: compares Python's Kafka clients.

For each broker, record size, codec and kind of work, every library runs in a process of its own,
one after another, in rounds that each begin with another library. The brokers are Apache Kafka
(needs Java and Maven) and Raylog's embedded broker, unless `--bootstrap` names others. Figures are
records per second of the client's CPU time (user and system, all threads) and of wall-clock time,
and the peak growth of the process. A ratio compares Raylog's client with another one in the same
round, and the median over the rounds is reported. TARGETS has the ratios that must be reached.
`raylog` is the blocking client, `raylog-asyncio` the other one. aiokafka is compared with both.

| work | Raylog | confluent-kafka | kafka-python, aiokafka |
|---|---|---|---|
| send, keyed | `send` | `produce` | `send` |
| rows | `send_rows` | `produce` | – |
| table | `send_table` | `produce` | – |
| callback | `send(on_delivery=…)` | `produce(on_delivery=…)` | `add_callback` |
| future | `submit` | a Future set by the callback | `send` |
| latency | `send_and_wait` | `produce`, `flush` | `send(…).get()`, `send_and_wait` |
| poll | `poll` | `consume` | `poll`, `getmany` |
| poll_table | `poll_table` | `consume` | – |
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import report
from bench.client_library_worker import Task
from bench.peers import ApacheKafka, Reachable
from raylog.client import Admin, NewTopic
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import KafkaError

RAYLOG, RAYLOG_ASYNCIO, CONFLUENT, KAFKA_PYTHON, AIOKAFKA = LIBRARIES = (
    "raylog",
    "raylog-asyncio",
    "confluent-kafka",
    "kafka-python",
    "aiokafka",
)
WORKS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "send": ("produce", "send", LIBRARIES),
    "keyed": ("produce", "keyed", LIBRARIES),
    "rows": ("produce", "rows", (RAYLOG, RAYLOG_ASYNCIO, CONFLUENT)),
    "table": ("produce", "table", (RAYLOG, RAYLOG_ASYNCIO, CONFLUENT)),
    "callback": ("produce", "callback", (RAYLOG, CONFLUENT, KAFKA_PYTHON)),
    "future": ("produce", "future", LIBRARIES),
    "latency": ("produce", "latency", LIBRARIES),
    "poll": ("consume", "records", (RAYLOG, CONFLUENT, KAFKA_PYTHON, AIOKAFKA)),
    "poll_table": ("consume", "table", (RAYLOG, CONFLUENT)),
}
"""By name: direction, the worker's mode, and the participating libraries."""
TARGETS = {
    ("send", CONFLUENT): 0.6,
    ("send", KAFKA_PYTHON): 5.0,
    ("send", AIOKAFKA): 5.0,
    ("keyed", CONFLUENT): 0.35,
    ("table", CONFLUENT): 2.0,
    ("poll", CONFLUENT): 0.6,
    ("poll", KAFKA_PYTHON): 5.0,
    ("poll", AIOKAFKA): 5.0,
    ("poll_table", CONFLUENT): 3.0,
}
"""The least ratio of records per CPU-second between Raylog's client and another one."""
_SLOW = {KAFKA_PYTHON: 8, AIOKAFKA: 8}
"""Divisors of the number of records for slow libraries."""
_READ = 10
"""How many times more records to read than to send. Some clients prefetch 64 MiB."""
_WORKER_TIMEOUT_S = 300.0
_LATENCY_RECORDS = 500


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement that all libraries make in turn."""

    broker: str
    work: str
    size: int
    codec: str


@dataclass(slots=True)
class Figures:
    """The results of all rounds for one library and case."""

    per_cpu_s: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    grown_mib: list[float] = field(default_factory=list)


Results = dict[tuple[Case, str], Figures]


class Bed:
    """Topics on one broker, and the worker processes."""

    def __init__(self, bootstrap: str, partitions: int, records: int) -> None:
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._records = records
        self._filled: dict[tuple[int, str], str] = {}
        self._mark = os.getpid()

    def run(self, library: str, case: Case) -> dict[str, float]:
        """Run one measurement. Returns the worker's result."""
        direction, work, _ = WORKS[case.work]
        records = self._count(library, case)
        if direction == "consume":
            return self._worker(
                Task(library, work, *self._source(case), records, case.size, case.codec), direction
            )
        topic = f"bench-{self._mark}-{library}"
        self._create(topic)
        try:
            task = Task(
                library,
                work,
                self._bootstrap,
                topic,
                self._partitions,
                records,
                case.size,
                case.codec,
            )
            return self._worker(task, direction)
        finally:
            self._delete(topic)

    def close(self) -> None:
        """Delete the filled topics."""
        for topic in self._filled.values():
            self._delete(topic)

    def _count(self, library: str, case: Case) -> int:
        if case.work == "latency":
            return _LATENCY_RECORDS
        more = _READ if WORKS[case.work][0] == "consume" else 1
        return max(1, more * self._records * 100 // max(case.size, 100) // _SLOW.get(library, 1))

    def _source(self, case: Case) -> tuple[str, str, int]:
        """The topic with the records of a case, filled at the first request."""
        topic = self._filled.get((case.size, case.codec))
        if topic is None:
            topic = f"bench-{self._mark}-filled-{case.size}-{case.codec}"
            self._create(topic)
            records = self._count(RAYLOG, case)
            fill = Task(
                RAYLOG,
                "rows",
                self._bootstrap,
                topic,
                self._partitions,
                records,
                case.size,
                case.codec,
            )
            self._worker(fill, "produce")
            self._filled[case.size, case.codec] = topic
        return self._bootstrap, topic, self._partitions

    def _create(self, topic: str) -> None:
        with Admin(self._bootstrap) as admin:
            admin.create_topics([NewTopic(topic, self._partitions, 1)])

    def _delete(self, topic: str) -> None:
        with Admin(self._bootstrap) as admin:
            try:
                admin.delete_topics([topic])
            except KafkaError as error:
                Console(stderr=True).print(f"{topic} is left behind: {error}")

    @staticmethod
    def _worker(task: Task, direction: str) -> dict[str, float]:
        command = [
            sys.executable,
            "-m",
            "bench.client_library_worker",
            json.dumps(asdict(task)),
            direction,
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_WORKER_TIMEOUT_S, check=False
        )
        said: dict[str, float] = {}
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                said.update(json.loads(line))
        if done.returncode != 0 or not said.get("records"):
            raise RuntimeError(f"{task}: {said}\n{done.stderr[-2000:]}")
        return said


@contextlib.contextmanager
def brokers(bootstraps: list[str]) -> Iterator[dict[str, str]]:
    """Run the brokers to measure against. Yields bootstrap servers by name."""
    with contextlib.ExitStack() as running:
        if bootstraps:
            given = [running.enter_context(Reachable(one, one).run()) for one in bootstraps]
            yield {peer.name: peer.address for peer in given}
        else:
            kafka = running.enter_context(ApacheKafka().run())
            embedded = running.enter_context(EmbeddedBroker())
            yield {kafka.name: kafka.address, "Raylog": embedded.bootstrap}


def measure(
    beds: dict[str, Bed], cases: list[Case], libraries: list[str], rounds: int, console: Console
) -> Results:
    """Run all rounds. Each begins with another library."""
    results: Results = {}
    for number in range(rounds):
        for case in cases:
            able = [one for one in libraries if one in WORKS[case.work][2]]
            turn = number % len(able)
            for library in able[turn:] + able[:turn]:
                said = beds[case.broker].run(library, case)
                figures = results.setdefault((case, library), Figures())
                figures.grown_mib.append(said["grown_mib"])
                if "p50_ms" in said:
                    figures.p50_ms.append(said["p50_ms"])
                    figures.p99_ms.append(said["p99_ms"])
                else:
                    figures.per_cpu_s.append(said["records"] / said["cpu_s"])
                    figures.per_s.append(said["records"] / said["wall_s"])
        console.print(f"round {number + 1} of {rounds}")
    return results


def ratio(results: Results, case: Case, other: str, own: str = RAYLOG) -> float | None:
    """The median over the rounds of one library's records per CPU-second to another's."""
    ours, theirs = results.get((case, own)), results.get((case, other))
    if ours is None or theirs is None or not ours.per_cpu_s or not theirs.per_cpu_s:
        return None
    return median(a / b for a, b in zip(ours.per_cpu_s, theirs.per_cpu_s, strict=True))


def lines_of(results: Results) -> list[list[str]]:
    """The cells of the report."""
    lines = []
    for (case, library), figures in results.items():
        how = [case.broker, case.work, str(case.size), case.codec, library]
        grown = f"{max(figures.grown_mib):.0f}"
        if figures.p50_ms:
            p50, p99 = median(figures.p50_ms), median(figures.p99_ms)
            lines.append([*how, f"p50 {p50:.2f} ms", f"p99 {p99:.2f} ms", "", grown, ""])
            continue
        found = ratios(results, case, library)
        spread = f"{min(figures.per_cpu_s):,.0f}-{max(figures.per_cpu_s):,.0f}"
        cells = [f"{median(figures.per_cpu_s):,.0f}", f"{median(figures.per_s):,.0f}", spread]
        lines.append([*how, *cells, grown, found])
    return lines


def ratios(results: Results, case: Case, other: str) -> str:
    """The ratios of Raylog's clients to another one: the blocking one, for aiokafka both."""
    owns = () if other == RAYLOG else (RAYLOG, RAYLOG_ASYNCIO) if other == AIOKAFKA else (RAYLOG,)
    found = (ratio(results, case, other, own) for own in owns)
    return ", ".join(f"{one:.2f}" for one in found if one is not None)


def missed(results: Results) -> list[str]:
    """Descriptions of the targets that were missed."""
    said = []
    for case, other in results:
        target, found = TARGETS.get((case.work, other)), ratio(results, case, other)
        if target is not None and found is not None and found < target:
            said.append(
                f"{case.work} of {case.size} B, {case.codec}, at {case.broker}: expected "
                f"{target:g} times the records per CPU-second of {other}, found {found:.2f}"
            )
    return said


HEADINGS = [
    "broker",
    "work",
    "B",
    "codec",
    "library",
    "records/CPU-s",
    "records/s",
    "spread, CPU",
    "MiB grown",
    "Raylog / it, CPU",
]
MODULE = "bench.client_libraries"


def main(
    bootstrap: Annotated[
        list[str] | None, typer.Option(help="A broker to measure against, host:port; repeatable.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 10,
    sizes: Annotated[str, typer.Option(help="Bytes of values, with commas.")] = "100,1024",
    codecs: Annotated[str, typer.Option(help="With commas.")] = "none,zstd",
    works: Annotated[str, typer.Option(help=f"Of {', '.join(WORKS)}.")] = ",".join(WORKS),
    libraries: Annotated[str, typer.Option(help="With commas.")] = ",".join(LIBRARIES),
    records: Annotated[int, typer.Option(help="Of 100 B; larger ones are fewer.")] = 400_000,
    partitions: Annotated[int, typer.Option(min=1)] = 6,
    markdown: Annotated[bool, typer.Option(help="Print Markdown.")] = False,
    write_docs: Annotated[
        bool, typer.Option(help="Replace the section of docs/BENCHMARKS.md.")
    ] = False,
) -> None:
    """Measure and print. The exit code is 1 if a target was missed."""
    console = Console(stderr=True)
    with brokers(bootstrap or []) as addresses, contextlib.ExitStack() as filled:
        beds = {name: Bed(address, partitions, records) for name, address in addresses.items()}
        for bed in beds.values():
            filled.callback(bed.close)
        cases = [
            Case(name, work, int(size), codec)
            for work in works.split(",")
            for size in sizes.split(",")
            for codec in codecs.split(",")
            for name in beds
        ]
        results = measure(beds, cases, libraries.split(","), rounds, console)
    lines = lines_of(results)
    circumstances = report.circumstances()
    rule = ["---"] * 5 + ["---:"] * 5
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in [HEADINGS, rule, *lines])
    if markdown:
        print(text)
    else:
        table = Table(*HEADINGS)
        for cells in lines:
            table.add_row(*cells)
        Console(width=160).print(table)
    console.print(circumstances, soft_wrap=True)
    if write_docs:
        report.write_section(f"{circumstances}; {rounds} rounds.\n\n{text}", MODULE)
    for target in missed(results):
        console.print(target, soft_wrap=True)
    raise typer.Exit(bool(missed(results)))


if __name__ == "__main__":
    typer.run(main)

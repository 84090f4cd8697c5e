"""`python -m bench.client_libraries`: Python's Kafka clients beside one another.

For each record size and codec and kind of work, every library works in a process of its own against
the same broker, one after the other, in rounds that begin with another one each. Figures are
records per second of the client's CPU time (user and system, all threads) and per second of the
clock; ratios are Raylog's to another's within a round, and their median over the rounds.

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

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import report
from bench.client_library_worker import Task
from raylog.client import Admin, NewTopic
from raylog.wire.errors import KafkaError

RAYLOG, CONFLUENT, KAFKA_PYTHON, AIOKAFKA = LIBRARIES = (
    "raylog",
    "confluent-kafka",
    "kafka-python",
    "aiokafka",
)
WORKS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "send": ("produce", "send", LIBRARIES),
    "keyed": ("produce", "keyed", LIBRARIES),
    "rows": ("produce", "rows", (RAYLOG, CONFLUENT)),
    "table": ("produce", "table", (RAYLOG, CONFLUENT)),
    "callback": ("produce", "callback", (RAYLOG, CONFLUENT, KAFKA_PYTHON)),
    "future": ("produce", "future", LIBRARIES),
    "latency": ("produce", "latency", LIBRARIES),
    "poll": ("consume", "records", LIBRARIES),
    "poll_table": ("consume", "table", (RAYLOG, CONFLUENT)),
}
"""Name to direction, what the worker is told, and who takes part."""
_SLOW = {KAFKA_PYTHON: 8, AIOKAFKA: 8}
"""They get that much less to do."""
_WORKER_TIMEOUT_S = 300.0
_LATENCY_RECORDS = 500


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the report."""

    work: str
    size: int
    codec: str


@dataclass(slots=True)
class Figures:
    """What the rounds gave for one library and case."""

    per_cpu_s: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)


Results = dict[tuple[Case, str], Figures]


class Bed:
    """Topics on one broker, and the workers' processes."""

    def __init__(self, bootstrap: str, partitions: int, records: int) -> None:
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._records = records
        self._filled: dict[tuple[int, str], str] = {}
        self._mark = os.getpid()

    def run(self, library: str, case: Case) -> dict[str, float]:
        """One measurement: what the worker says."""
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
        """Delete what was filled."""
        for topic in self._filled.values():
            self._delete(topic)

    def _count(self, library: str, case: Case) -> int:
        if case.work == "latency":
            return _LATENCY_RECORDS
        return max(1, self._records * 100 // max(case.size, 100) // _SLOW.get(library, 1))

    def _source(self, case: Case) -> tuple[str, str, int]:
        """A topic that holds the records of a case, filled when first asked for."""
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
        if done.returncode != 0 or said.get("records", 0) < task.records:
            raise RuntimeError(f"{task}: {said}\n{done.stderr[-2000:]}")
        return said


def measure(
    bed: Bed, cases: list[Case], libraries: list[str], rounds: int, console: Console
) -> Results:
    """All rounds; each begins with another library."""
    results: Results = {}
    for number in range(rounds):
        for case in cases:
            able = [one for one in libraries if one in WORKS[case.work][2]]
            turn = number % len(able)
            for library in able[turn:] + able[:turn]:
                said = bed.run(library, case)
                figures = results.setdefault((case, library), Figures())
                if "p50_ms" in said:
                    figures.p50_ms.append(said["p50_ms"])
                    figures.p99_ms.append(said["p99_ms"])
                else:
                    figures.per_cpu_s.append(said["records"] / said["cpu_s"])
                    figures.per_s.append(said["records"] / said["wall_s"])
        console.print(f"round {number + 1} of {rounds}")
    return results


def ratio(results: Results, case: Case, other: str) -> float | None:
    """Raylog's records per CPU-second to another's: the median over the rounds."""
    ours, theirs = results.get((case, RAYLOG)), results.get((case, other))
    if ours is None or theirs is None or not ours.per_cpu_s or not theirs.per_cpu_s:
        return None
    return median(a / b for a, b in zip(ours.per_cpu_s, theirs.per_cpu_s, strict=True))


def lines_of(results: Results) -> list[list[str]]:
    """The report's cells."""
    lines = []
    for (case, library), figures in results.items():
        how = [case.work, str(case.size), case.codec, library]
        if figures.p50_ms:
            p50, p99 = median(figures.p50_ms), median(figures.p99_ms)
            lines.append([*how, f"p50 {p50:.2f} ms", f"p99 {p99:.2f} ms", "", ""])
            continue
        found = ratio(results, case, library) if library != RAYLOG else None
        spread = f"{min(figures.per_cpu_s):,.0f}-{max(figures.per_cpu_s):,.0f}"
        cells = [f"{median(figures.per_cpu_s):,.0f}", f"{median(figures.per_s):,.0f}", spread]
        lines.append([*how, *cells, "" if found is None else f"{found:.2f}"])
    return lines


HEADINGS = [
    "work",
    "B",
    "codec",
    "library",
    "records/CPU-s",
    "records/s",
    "spread, CPU",
    "Raylog / it, CPU",
]


def main(
    bootstrap: Annotated[str, typer.Option(help="The broker, host:port.")],
    rounds: Annotated[int, typer.Option(min=1)] = 10,
    sizes: Annotated[str, typer.Option(help="Bytes of values, with commas.")] = "100,1024",
    codecs: Annotated[str, typer.Option(help="With commas.")] = "none,zstd",
    works: Annotated[str, typer.Option(help=f"Of {', '.join(WORKS)}.")] = "send,keyed,rows,poll",
    libraries: Annotated[str, typer.Option(help="With commas.")] = ",".join(LIBRARIES),
    records: Annotated[int, typer.Option(help="Of 100 B; larger ones are fewer.")] = 400_000,
    partitions: Annotated[int, typer.Option(min=1)] = 6,
    markdown: Annotated[bool, typer.Option(help="As Markdown.")] = False,
) -> None:
    """Measure and print."""
    console = Console(stderr=True)
    cases = [
        Case(work, int(size), codec)
        for work in works.split(",")
        for size in sizes.split(",")
        for codec in codecs.split(",")
    ]
    bed = Bed(bootstrap, partitions, records)
    try:
        results = measure(bed, cases, libraries.split(","), rounds, console)
    finally:
        bed.close()
    lines = lines_of(results)
    if markdown:
        rule = ["---"] * 4 + ["---:"] * 4
        print("".join(f"| {' | '.join(cells)} |\n" for cells in [HEADINGS, rule, *lines]))
    else:
        table = Table(*HEADINGS)
        for cells in lines:
            table.add_row(*cells)
        Console(width=140).print(table)
    console.print(report.circumstances(), soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)

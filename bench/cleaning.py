"""The cost of the log cleaner, and its effect on clients: `python -m bench.cleaning`.

Compacted topics of 1 GiB are written and cleaned one after another, with pauses between them.
Meanwhile another process writes 1-KiB records to another topic of the same broker at a fixed rate.
The 99th percentile of their acknowledgement latency during cleaning may be at most twice that of
the pauses (otherwise the exit code is 1). With `--kafka` Apache Kafka is measured as well.
"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated

import typer
from confluent_kafka import Producer
from rich.console import Console

from bench import report
from bench.__main__ import end_on_termination
from bench.filling import fill, refused
from bench.measure import environment, marked_processes
from bench.peers import ApacheKafka, Peer, Raylog, Source
from bench.quantiles import quantile, quantile_text
from raylog import BlockingClient
from raylog.client import NewTopic, Resource, ResourceType

MODULE = "bench.cleaning"
RATIO_MOST = 2.0
SEGMENT_BYTES = 100 * 1024**2
OTHER_TOPIC = "other"
NEVER, SOON = {"min.cleanable.dirty.ratio": "1"}, {"min.cleanable.dirty.ratio": "0"}
SETTINGS = {"log.cleaner.backoff.ms": "100"}
QUIET_S = 20.0
"""Time without cleaning before each log."""
RESTS_S = 3.0
"""A log counts as clean if it is small enough and its size has not changed for this time."""
SETTLE_S = 12.0
"""After this time, written records are durable and may be cleaned."""
CLEAN_TIMEOUT_S = 900.0
LOOK_S = 0.5
HELPER = "raylog.actors.runtime.worker_process"

app = typer.Typer(add_completion=False)
say = Console(stderr=True)


# ---- the clients ---------------------------------------------------------------------------------


@app.command()
def write(address: str, topic: str, rate: int) -> None:
    """Write 1-KiB records at a fixed rate until standard input ends.

    Prints when each was sent and how long it took, in seconds of the monotonic clock.
    """
    found: list[tuple[float, float]] = []
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    value = random.Random(1).randbytes(1024)
    following = monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        sent = monotonic()

        def answered(error: object, _: object, sent: float = sent) -> None:
            if error is not None:
                refused(error)
            found.append((sent, monotonic() - sent))

        producer.produce(topic, value, on_delivery=answered)
        following += 1 / rate
        while (left := following - monotonic()) > 0:
            producer.poll(left)
    producer.flush(30)
    json.dump(found, sys.stdout)


@dataclass(slots=True)
class Writer:
    """The process that writes during the cleaning. It has `latencies` once it has ended."""

    process: subprocess.Popen[str]
    latencies: list[tuple[float, float]] = field(default_factory=list)

    def end(self) -> None:
        """End the process and collect its latencies."""
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise RuntimeError("the writer failed")
        self.latencies = [(sent, took) for sent, took in json.loads(output)]


@contextmanager
def writing(address: str, rate: int) -> Iterator[Writer]:
    """Write to the other topic within the context."""
    command = [sys.executable, "-m", MODULE, "write", address, OTHER_TOPIC, str(rate)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment("none")
    )
    try:
        yield Writer(process)
    finally:
        process.kill()
        process.wait()


# ---- one cleaning --------------------------------------------------------------------------------


@dataclass(slots=True)
class Cleaning:
    """The cleaning of one log."""

    began: float
    ended: float
    before_bytes: int
    after_bytes: int
    peak_bytes: int
    """Peak resident memory of the cleaner's process; 0 if it has no process of its own."""

    @property
    def rate(self) -> float:
        """MiB of the log per second."""
        return self.before_bytes / 2**20 / (self.ended - self.began)


def clean(client: BlockingClient, topic: str, mark: str, shape: Shape) -> Cleaning:
    """Let a topic be cleaned and wait for it."""
    before = size = _size(client, topic)
    client.alter_configs(Resource(ResourceType.TOPIC, topic), SOON)
    began = changed = monotonic()
    peak = 0
    goal_bytes = shape.goal_bytes(before)
    while size > goal_bytes or monotonic() - changed < RESTS_S:
        if monotonic() - began > CLEAN_TIMEOUT_S:
            raise TimeoutError(f"{topic} is not clean after {CLEAN_TIMEOUT_S:.0f} s")
        sleep(LOOK_S)
        peak = max(peak, _helper_peak(mark))
        now = _size(client, topic)
        if now != size:
            size, changed = now, monotonic()
    client.alter_configs(Resource(ResourceType.TOPIC, topic), NEVER)
    return Cleaning(began, changed, before, size, peak)


def _watch(client: BlockingClient, topic: str, mark: str, seconds: float) -> None:
    """Poll as often as during cleaning, because polling uses the broker's time, too."""
    end = monotonic() + seconds
    while monotonic() < end:
        sleep(LOOK_S)
        _helper_peak(mark)
        _size(client, topic)


def _size(client: BlockingClient, topic: str) -> int:
    return sum(
        partition.size_bytes
        for directory in client.describe_log_dirs()
        for partition in directory.partitions
        if partition.topic == topic
    )


def _helper_peak(mark: str) -> int:
    """Peak resident memory of the cleaner's process in bytes; 0 if there is none now."""
    for pid in marked_processes(mark):
        try:
            if HELPER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        return int(line.split()[1]) * 1024
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return 0


# ---- the run -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """The data to write."""

    megabytes: int
    size: int
    keys: int
    rounds: int
    rate: int

    def goal_bytes(self, written_bytes: int) -> float:
        """The largest size of a clean log: its keys and the active segment."""
        records = self.megabytes * 1024**2 / self.size
        drawn = self.keys * (1 - (1 - 1 / self.keys) ** records)
        return float(drawn * (self.size + 100) + written_bytes % SEGMENT_BYTES)


@dataclass(slots=True)
class Result:
    """The measurements of one broker."""

    name: str
    cleanings: list[Cleaning]
    quiet_s: list[float]
    busy_s: list[float]
    """Latencies of the other topic's records during cleaning, in seconds."""

    @property
    def ratio(self) -> float:
        """99th percentile during cleaning divided by that without."""
        return _known_p99(self.busy_s) / _known_p99(self.quiet_s)


def _known_p99(latencies_s: Sequence[float]) -> float:
    found = quantile(latencies_s, 0.99)
    assert found is not None, f"{len(latencies_s)} records are too few for a 99th percentile"
    return found


def _p50_and_p99_ms(latencies_s: Sequence[float]) -> str:
    half, most = quantile(latencies_s, 0.5), quantile(latencies_s, 0.99)
    return f"{quantile_text(half, 2, 1000)} / {quantile_text(most, 1, 1000)}"


def _numbers(shape: Shape) -> Iterator[int]:
    """The key numbers of a log: random ones, or each once."""
    count = shape.megabytes * 1024**2 // shape.size
    rng = random.Random(shape.megabytes)
    return (number if shape.keys >= count else rng.randrange(shape.keys) for number in range(count))


def measure(peer: Peer, shape: Shape) -> Result:
    """Fill the topics, then clean one after another."""
    topics = [f"compacted-{number}" for number in range(shape.rounds)]
    config = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), **NEVER}
    with BlockingClient(peer.address) as client:
        client.create_topics([NewTopic(topic, 1, 1, configs=config) for topic in topics])
        client.create_topics([NewTopic(OTHER_TOPIC, 1, 1)])
        for topic in topics:
            say.print(f"{peer.name}: writing {shape.megabytes} MiB to {topic}")
            fill(peer.address, topic, _numbers(shape), shape.size)
        sleep(SETTLE_S)
        quiet: list[tuple[float, float]] = []
        cleanings = []
        with writing(peer.address, shape.rate) as writer:
            for topic in topics:
                _watch(client, topic, peer.mark, QUIET_S)
                cleanings.append(clean(client, topic, peer.mark, shape))
                began = cleanings[-1].began
                quiet.append((began - QUIET_S + 2, began))
                say.print(f"{peer.name}: {topic} at {cleanings[-1].rate:.1f} MiB/s")
            writer.end()
    busy = [(each.began, each.ended) for each in cleanings]
    return Result(peer.name, cleanings, _within(writer, quiet), _within(writer, busy))


def _within(writer: Writer, spans: list[tuple[float, float]]) -> list[float]:
    return [
        took for sent, took in writer.latencies if any(begin <= sent < end for begin, end in spans)
    ]


def _row(result: Result) -> str:
    first = result.cleanings[0]
    rates = ", ".join(f"{each.rate:.0f}" for each in result.cleanings)
    peak = max(each.peak_bytes for each in result.cleanings)
    return (
        f"| {result.name} | {first.before_bytes / 2**20:.0f} to {first.after_bytes / 2**20:.0f} "
        f"| {rates} | {f'{peak / 2**20:.0f}' if peak else 'not apart'} "
        f"| {_p50_and_p99_ms(result.quiet_s)} | {_p50_and_p99_ms(result.busy_s)} "
        f"| {result.ratio:.2f} |"
    )


def section(results: Sequence[Result], shape: Shape) -> str:
    """The section for docs/BENCHMARKS.md."""
    rows = "\n".join(map(_row, results))
    return (
        f"{report.circumstances()}.\n\n"
        f"{shape.rounds} logs of {shape.megabytes} MiB each, records of {shape.size} B, "
        f"{shape.keys:,} keys, segments of {SEGMENT_BYTES // 2**20} MiB; {shape.rate} records of "
        "1 KiB a second to another topic, acks=all.\n\n"
        "| | a log, MiB | cleaned, MiB/s | cleaner's peak memory, MiB "
        "| p50 / p99 without, ms | p50 / p99 meanwhile, ms | ratio of the p99 |\n"
        f"|---|---|---|---|---|---|---|\n{rows}\n"
    )


@app.command()
def run(
    megabytes: Annotated[int, typer.Option(help="of each log")] = 1124,
    size: Annotated[int, typer.Option(help="bytes of a record")] = 1024,
    keys: Annotated[int, typer.Option(help="different ones")] = 200_000,
    rounds: Annotated[int, typer.Option(help="logs cleaned")] = 3,
    rate: Annotated[int, typer.Option(help="records a second to the other topic")] = 250,
    *,
    kafka: Annotated[bool, typer.Option(help="Apache Kafka beside it (needs Java)")] = False,
    write_docs: Annotated[bool, typer.Option(help="replace the section in the docs")] = False,
) -> None:
    """Measure and print. Fails if clients of the other topic wait too long."""
    end_on_termination()
    shape = Shape(megabytes, size, keys, rounds, rate)
    sources: list[Source] = [Raylog(SETTINGS)]
    if kafka:
        sources.append(ApacheKafka(SETTINGS))
    results = []
    for source in sources:
        with source.run() as peer:
            results.append(measure(peer, shape))
            say.print(_row(results[-1]))
    text = section(results, shape)
    print(text)
    if write_docs:
        report.write_section(text, MODULE)
    if results[0].ratio > RATIO_MOST:
        sys.exit(1)


if __name__ == "__main__":
    app()

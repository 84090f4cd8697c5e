"""The flights through Raylog with two other Kafka clients, without Spark and Java.

`python -m raylog.demo clients` writes the 336,776 flights that left New York in 2013 with
librdkafka (idempotent producer, keyed by tail number, with the scheduled departure as timestamp),
reads them back with aiokafka, and compares a SHA-256 per partition. With `--bootstrap` it runs
against any broker that speaks Kafka's protocol.
"""

import asyncio
import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from raylog.demo.cluster import check_reachable, local_cluster, temporary_topic
from raylog.demo.flights import Event, load_flights
from raylog.demo.producing import Writer
from raylog.demo.screen import DemoError, Steps, bars, screen

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer

IDLE_TIMEOUT_S = 20.0
"""Reading fails after this time without a record."""


@dataclass(slots=True)
class Digests:
    """Per partition, the count and a SHA-256 over all records in order."""

    counts: dict[int, int] = field(default_factory=dict)
    payload_bytes: int = 0
    _hashes: dict[int, "hashlib._Hash"] = field(default_factory=dict)

    def add(self, partition: int, timestamp_ms: int, key: bytes | None, value: bytes) -> None:
        """Add the next record of a partition."""
        if partition not in self._hashes:
            self._hashes[partition] = hashlib.sha256()
            self.counts[partition] = 0
        key_length = -1 if key is None else len(key)
        prefix = struct.pack(">qii", timestamp_ms, key_length, len(value))
        self._hashes[partition].update(prefix + (key or b"") + value)
        self.counts[partition] += 1
        self.payload_bytes += max(0, key_length) + len(value)

    def of(self, partition: int) -> str:
        """Return the hexadecimal SHA-256 of a partition; empty if it has no record."""
        return self._hashes[partition].hexdigest() if partition in self._hashes else ""

    @property
    def total(self) -> str:
        """The SHA-256 over the partitions' digests in ascending order."""
        return hashlib.sha256("".join(map(self.of, sorted(self._hashes))).encode()).hexdigest()

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(self.counts.values())


def write(
    bootstrap: str, topic: str, events: Sequence[Event], steps: Steps
) -> tuple[Digests, float]:
    """Produce all events. Returns their digests and the seconds until all were acknowledged."""
    written = Digests()
    for event in events:
        written.add(event.partition, event.timestamp_ms, event.key, event.value)
    writer = Writer(bootstrap)
    began = monotonic()
    writer.write(topic, events, steps.reached)
    seconds = monotonic() - began
    steps.reached(len(events))
    return written, seconds


def read(bootstrap: str, topic: str, counts: dict[int, int], steps: Steps) -> tuple[Digests, float]:
    """Consume `counts` records per partition. Returns their digests and the seconds it took."""
    return asyncio.run(_read(bootstrap, topic, counts, steps))


async def _read(
    bootstrap: str, topic: str, counts: dict[int, int], steps: Steps
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
        return await _take(consumer, sum(counts.values()), steps)
    finally:
        await consumer.stop()


async def _take(consumer: "AIOKafkaConsumer", expected: int, steps: Steps) -> tuple[Digests, float]:
    found = Digests()
    began = last = monotonic()
    while found.records < expected:
        fetched = await consumer.getmany(timeout_ms=500)
        for records in fetched.values():
            for record in records:
                found.add(record.partition, record.timestamp, record.key, record.value)
        if fetched:
            last = monotonic()
            steps.reached(found.records)
        elif monotonic() - last > IDLE_TIMEOUT_S:
            raise DemoError(f"only {found.records} of {expected} records came back")
    return found, monotonic() - began


def run(reach: Callable[[], str], partitions: int, limit: int | None, say: Console) -> bool:
    """Write and read the flights at the broker that `reach` returns when it is ready.

    Returns whether the digests of all partitions are equal.
    """
    began = monotonic()
    events = load_flights(partitions, limit=limit)
    say.print(f"{len(events):,} flights of 2013 prepared in {monotonic() - began:.1f} s")
    bootstrap = reach()
    with temporary_topic(bootstrap, partitions) as topic, bars(say) as display:
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


def clients(
    bootstrap: Annotated[
        str, typer.Option(help="Use this broker (host:port) and start none.")
    ] = "",
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic.")] = 6,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many flights, for a quick try.")
    ] = None,
) -> None:
    """Write a real event log with one Kafka client, read it with another, compare the digests."""
    say = screen()
    began = monotonic()
    try:
        if bootstrap:
            check_reachable(bootstrap)
            agree = run(lambda: bootstrap, partitions, limit, say)
        else:
            with local_cluster(say, brokers=1) as ready:
                agree = run(lambda: ready().bootstrap, partitions, limit, say)
    except ModuleNotFoundError as failure:
        say.print(f"[red]{failure.name} is missing:[/red] pip install confluent-kafka aiokafka")
        raise typer.Exit(2) from failure
    except DemoError as failure:
        say.print(f"[red]{failure}")
        raise typer.Exit(2) from failure
    say.print(f"{monotonic() - began:.1f} s in all")
    raise typer.Exit(0 if agree else 1)

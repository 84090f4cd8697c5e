"""Spark's sources and sinks: `python -m bench.spark` (needs Java 17 and Maven).

One Spark session on this machine's two cores, with one broker each of Raylog and Apache Kafka:

- the Kafka source reads the same records from both, in turn;
- the exactly-once sink and Spark's own Kafka sink copy a topic, in turn, on each of the two;
- a stream with a trigger of one second gets records at a fixed rate: how long until a reader of
  committed records has them, for both sinks.

The exit code is 1 if the sink is below 0.7 of Spark's own, or the source below 0.8 of Apache
Kafka's.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Annotated

import typer
from confluent_kafka import Consumer, Producer
from rich.console import Console

from bench import quantiles, report
from bench.__main__ import end_on_termination
from bench.filling import fill, refused
from bench.peers import ApacheKafka, Peer, Raylog, temporary_directory
from raylog import BlockingClient
from raylog.client import NewTopic
from raylog.raydp_jobs.session import local_session
from raylog.raydp_jobs.sink import raylog_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

MODULE = "bench.spark"
SINK_LEAST, SOURCE_LEAST = 0.7, 0.8
PARTITIONS = 6
BATCHES = 4
"""Micro-batches per copy."""
OWN, SPARKS = "exactly once", "Spark's own"
LATENCY_RATE = 200
LATENCY_START_S, LATENCY_WARM_S, LATENCY_S = 120.0, 60.0, 30.0
"""The JIT of the JVM needs the first minute."""

say = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Shape:
    """The data to read and write."""

    source_megabytes: int
    source_bytes: int
    copied: int
    copied_bytes: int
    rounds: int


@dataclass(slots=True)
class Results:
    """Rows/s of the source by peer, and of sinks by peer and sink. Latencies in ms by sink."""

    read: dict[str, list[float]] = field(default_factory=dict)
    written: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    latency: dict[str, list[float]] = field(default_factory=dict)


# ---- Spark ---------------------------------------------------------------------------------------


@contextmanager
def spark_here(folder: Path) -> Iterator[SparkSession]:
    """Run Spark in a JVM of this process, with one task per core."""
    configs = {
        "spark.driver.memory": "2g",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    with local_session("bench", "local[2]", configs=configs) as session:
        session.sparkContext.setLogLevel("ERROR")
        yield session


def read_all(spark: SparkSession, peer: Peer, count: int) -> float:
    """Read the topic `source`. Returns rows per second."""
    df = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", peer.address)
        .option("subscribe", "source")
        .load()
    )
    began = monotonic()
    df.selectExpr("key", "value").write.format("noop").mode("overwrite").save()
    return count / (monotonic() - began)


def stream_of(spark: SparkSession, peer: Peer, topic: str, **options: str) -> DataFrame:
    """A stream with the keys and values of a topic."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", peer.address)
        .option("subscribe", topic)
        .options(**options)
    )
    return reader.load().select("key", "value")


def writer_of(
    df: DataFrame, sink: str, peer: Peer, topic: str, checkpoint: Path
) -> DataStreamWriter:
    """A query's writer with one of the sinks."""
    writer = df.writeStream.option("checkpointLocation", str(checkpoint))
    if sink == OWN:
        return writer.foreachBatch(raylog_sink(peer.address, topic, topic, str(checkpoint)))
    return (
        writer.format("kafka")
        .option("kafka.bootstrap.servers", peer.address)
        .option("topic", topic)
    )


def copy(
    spark: SparkSession, peer: Peer, sink: str, topic: str, folder: Path, shape: Shape
) -> float:
    """Copy the topic `copied` to a new one.

    Returns rows per second, including the query's start.
    """
    with BlockingClient(peer.address) as client:
        client.create_topics([NewTopic(topic, PARTITIONS)])
    df = stream_of(
        spark,
        peer,
        "copied",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=str(shape.copied // BATCHES),
    )
    began = monotonic()
    query = writer_of(df, sink, peer, topic, folder / topic).trigger(availableNow=True).start()
    query.awaitTermination()
    return shape.copied / (monotonic() - began)


# ---- latency -------------------------------------------------------------------------------------


def latency(spark: SparkSession, peer: Peer, sink: str, folder: Path) -> list[float]:
    """Milliseconds from before a record is sent until a reader of the copy has it."""
    source, copy_topic = f"slow-{len(sink)}", f"slow-copy-{len(sink)}"
    with BlockingClient(peer.address) as client:
        client.create_topics([NewTopic(source, PARTITIONS), NewTopic(copy_topic, PARTITIONS)])
    df = stream_of(spark, peer, source)
    writer = writer_of(df, sink, peer, copy_topic, folder / copy_topic)
    query = writer.trigger(processingTime="1 second").start()
    ended = threading.Event()
    sender = threading.Thread(target=send_slowly, args=(peer.address, source, ended))
    sender.start()
    try:
        return watch(peer.address, copy_topic, query.exception)
    finally:
        ended.set()
        sender.join()
        query.stop()


def send_slowly(address: str, topic: str, ended: threading.Event) -> None:
    """Send records with their send time in ns until told to stop."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    while not ended.wait(1 / LATENCY_RATE):
        producer.produce(topic, struct.pack(">q", time_ns()), on_delivery=_must_be_taken)
        producer.poll(0)
    producer.flush(30)


def _must_be_taken(error: object, _: object) -> None:
    if error is not None:
        refused(error)


def watch(address: str, topic: str, failure: Callable[[], object]) -> list[float]:
    """Read committed records for a while. Returns the latencies after the warm-up."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([topic])
    found: list[float] = []
    try:
        if not consumer.consume(1, LATENCY_START_S):
            sys.exit(f"nothing was copied in {LATENCY_START_S:g} s: {failure()}")
        counted = monotonic() + LATENCY_WARM_S
        while (now := monotonic()) < counted + LATENCY_S:
            if failure() is not None:
                sys.exit(f"the query failed: {failure()}")
            message = consumer.poll(0.5)
            if message is not None and not message.error() and now >= counted:
                (sent_ns,) = struct.unpack(">q", message.value() or b"")
                found.append((time_ns() - sent_ns) / 1e6)
    finally:
        consumer.close()
    return found


# ---- the run -------------------------------------------------------------------------------------


def measure(peers: list[Peer], shape: Shape) -> Results:
    """Run all measurements. The first round of each is a warm-up."""
    results = Results()
    source_count = shape.source_megabytes * 1024**2 // shape.source_bytes
    for peer in peers:
        say.print(f"{peer.name}: writing what is read")
        with BlockingClient(peer.address) as client:
            client.create_topics([NewTopic(name, PARTITIONS) for name in ("source", "copied")])
        fill(peer.address, "source", range(source_count), shape.source_bytes)
        fill(peer.address, "copied", range(shape.copied), shape.copied_bytes)
    with temporary_directory("spark") as folder, spark_here(folder) as spark:
        for number in range(-1, shape.rounds):
            for peer in peers:
                rate = read_all(spark, peer, source_count)
                say.print(f"{number + 1}: {peer.name}, source: {rate:,.0f} rows/s")
                if number >= 0:
                    results.read.setdefault(peer.name, []).append(rate)
                for sink in (SPARKS, OWN):
                    topic = f"copy-{len(sink)}-{number + 1}"
                    rate = copy(spark, peer, sink, topic, folder / str(peers.index(peer)), shape)
                    say.print(f"{number + 1}: {peer.name}, sink {sink}: {rate:,.0f} rows/s")
                    if number >= 0:
                        results.written.setdefault((peer.name, sink), []).append(rate)
        for sink in (SPARKS, OWN):
            say.print(f"Raylog: latency with the sink {sink}")
            results.latency[sink] = latency(spark, peers[0], sink, folder)
    return results


def ratio(above: list[float], below: list[float]) -> float:
    """The median of the rounds' ratios."""
    return median(a / b for a, b in zip(above, below, strict=True))


def section(results: Results, shape: Shape, peers: list[Peer]) -> str:
    """The figures as Markdown."""
    raylog, kafka = (peer.name for peer in peers)
    source = ratio(results.read[raylog], results.read[kafka])
    lines = [
        report.circumstances(),
        "",
        f"Spark 3.5.7, local[2]; one broker each, {PARTITIONS} partitions; medians of "
        f"{shape.rounds} rounds in turn after one to warm up.",
        "",
        f"| | {raylog}, rows/s | {kafka}, rows/s |",
        "|---|---|---|",
        f"| Kafka source, {shape.source_megabytes} MiB of {shape.source_bytes} B "
        f"| {median(results.read[raylog]):,.0f} ({source:.2f} of Kafka's) "
        f"| {median(results.read[kafka]):,.0f} |",
    ]
    of = f"{shape.copied:,} rows of {shape.copied_bytes} B in {BATCHES} micro-batches"
    for sink in (SPARKS, OWN):
        cells = []
        for name in (raylog, kafka):
            rates = results.written[name, sink]
            against = ratio(rates, results.written[name, SPARKS])
            ratio_text = f" ({against:.2f} of Spark's own)" if sink == OWN else ""
            cells.append(f"{median(rates):,.0f}{ratio_text}")
        lines.append(f"| sink, {sink}: {of} | {' | '.join(cells)} |")
    head = "trigger of 1 s, until a reader has it, ms, in a query's second minute"
    lines += ["", f"| {head} | p50 | p99 |", "|---|---|---|"]
    for sink, found in results.latency.items():
        cuts = [quantiles.quantile(found, part) for part in (0.5, 0.99)]
        half, most = (quantiles.quantile_text(one, 0) for one in cuts)
        lines.append(f"| sink, {sink}, {len(found):,} records | {half} | {most} |")
    return "\n".join(lines) + "\n"


def main(
    source_megabytes: Annotated[int, typer.Option(help="of the topic that is read")] = 1024,
    source_bytes: Annotated[int, typer.Option(help="of each record there")] = 1024,
    copied: Annotated[int, typer.Option(help="records that are copied")] = 500_000,
    copied_bytes: Annotated[int, typer.Option(help="of each of them")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="counted, in turn")] = 3,
    *,
    write_docs: Annotated[bool, typer.Option(help="replace the section in the docs")] = False,
) -> None:
    """Measure and print. Fails if Raylog is too slow."""
    end_on_termination()
    shape = Shape(source_megabytes, source_bytes, copied, copied_bytes, rounds)
    with ExitStack() as running:
        peers = [running.enter_context(one.run()) for one in (Raylog(), ApacheKafka())]
        results = measure(peers, shape)
    text = section(results, shape, peers)
    print(text)
    if write_docs:
        report.write_section(text, MODULE)
    raylog, kafka = (peer.name for peer in peers)
    sink = ratio(results.written[raylog, OWN], results.written[raylog, SPARKS])
    if sink < SINK_LEAST or ratio(results.read[raylog], results.read[kafka]) < SOURCE_LEAST:
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)

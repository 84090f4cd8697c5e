"""A producer and a consumer with librdkafka, which the benchmark runs in their own process."""

import json
import random
import sys
from time import perf_counter
from typing import Annotated, Any

import typer
from confluent_kafka import Consumer, Producer, TopicPartition

CHUNK = 500
"""Records per call of librdkafka, all for one partition."""

IDLE_TIMEOUT_S = 20.0

app = typer.Typer(add_completion=False)


@app.command()
def produce(
    address: str,
    topic: str,
    partitions: int,
    records: int,
    size: Annotated[int, typer.Option()],
    acks: Annotated[str, typer.Option()] = "all",
    linger_ms: Annotated[int, typer.Option()] = 5,
    batch_bytes: Annotated[int, typer.Option()] = 65_536,
) -> None:
    """Produce `records` values of `size` bytes, in chunks for one partition after another."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": acks,
            "linger.ms": linger_ms,
            "batch.size": batch_bytes,
            "queue.buffering.max.kbytes": 65_536,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: sys.exit(f"a record was refused: {error}"),
        }
    )
    value = bytes(random.Random(size).choices(range(65, 91), k=size))
    producer.list_topics(topic, timeout=IDLE_TIMEOUT_S)
    began = perf_counter()
    left, partition = records, 0
    while left:
        chunk: list[Any] = [{"value": value} for _ in range(min(CHUNK, left))]
        left -= _enqueue(producer, topic, chunk, partition)
        partition = (partition + 1) % partitions
    if producer.flush(IDLE_TIMEOUT_S):
        sys.exit("records were left unsent")
    _report(records, perf_counter() - began)


def _enqueue(producer: Producer, topic: str, chunk: list[Any], partition: int) -> int:
    """Enqueue as many records as the queue accepts. The caller offers the rest again."""
    try:
        taken: int = producer.produce_batch(topic, chunk, partition=partition)
    except BufferError:
        taken = 0
    producer.poll(0 if taken == len(chunk) else 0.01)
    return taken


@app.command()
def consume(address: str, topic: str, partitions: int, records: int) -> None:
    """Read `records` from the beginning of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    began = perf_counter()
    found = 0
    while found < records:
        fetched = consumer.consume(min(10_000, records - found), timeout=IDLE_TIMEOUT_S)
        if not fetched:
            sys.exit(f"only {found} of {records} records came back")
        failed = next((m.error() for m in fetched if m.error() is not None), None)
        if failed is not None:
            sys.exit(f"reading failed: {failed}")
        found += len(fetched)
    seconds = perf_counter() - began
    consumer.close()
    _report(found, seconds)


def _report(records: int, seconds: float) -> None:
    print(json.dumps({"records": records, "seconds": seconds}))


if __name__ == "__main__":
    app()

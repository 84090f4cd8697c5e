"""`python -m bench.parallel`: workers that sleep 10 ms per record, on one partition.

The upper limit is one record per worker in 10 ms. The table shows the share of that limit that a
ParallelConsumer reaches, and that of bare threads or tasks that only sleep at the same time: late
timers slow down both. Rounds alternate between the kinds of workers, and the median counts. All
workers are started before the time is taken.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import report
from raylog.client import BlockingClient, TopicPartition
from raylog.client.admin.topics import NewTopic
from raylog.client.interceptors import ConsumerRecord
from raylog.client.parallel.consumer import ParallelConsumer
from raylog.testing import EmbeddedBroker

SLEEP_S = 0.010
LOOK_S = 0.002
KINDS = ("thread", "asyncio", "process")
CELLS = (1, 8, 64)


def sleep(record: ConsumerRecord) -> None:
    """Process a record in threads and processes."""
    time.sleep(SLEEP_S)


async def sleep_in_loop(record: ConsumerRecord) -> None:
    """Process a record in tasks."""
    await asyncio.sleep(SLEEP_S)


def of_the_consumer(bootstrap: str, kind: str, cells: int, seconds: float) -> float:
    """The share of the limit that a ParallelConsumer reaches."""
    topic = f"{kind}-{cells}-{time.time_ns()}"
    count = round(cells * seconds / SLEEP_S)
    consumer = ParallelConsumer(
        bootstrap,
        [topic],
        sleep_in_loop if kind == "asyncio" else sleep,
        group_id=topic,
        workers=cells,
        worker_kind=kind,
        partitions=[TopicPartition(topic, 0)],
        auto_offset_reset="earliest",
    )
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(topic, 1)])
        _fill(client, topic, cells)
        thread = threading.Thread(target=consumer.run)
        thread.start()
        _until(consumer, thread, cells)  # each of them has started a worker
        _fill(client, topic, count)
    first, began_s = _until(consumer, thread, 2 * cells)
    last, ended_s = _until(consumer, thread, count)
    consumer.stop()
    thread.join()
    return (last - first) * SLEEP_S / (ended_s - began_s) / cells


def _fill(client: BlockingClient, topic: str, count: int) -> None:
    with client.producer() as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, b"%d" % number)


def _until(consumer: ParallelConsumer, thread: threading.Thread, count: int) -> tuple[int, float]:
    """Wait for `count` processed records. Returns their number and the time."""
    while (found := consumer.statistics().processed) < count:
        assert thread.is_alive(), "the consumer has ended"
        time.sleep(LOOK_S)
    return found, time.monotonic()


def of_threads(cells: int, seconds: float) -> float:
    """The share of the limit that bare threads reach."""
    turns = round(seconds / SLEEP_S)

    def work() -> None:
        for _ in range(turns):
            time.sleep(SLEEP_S)

    threads = [threading.Thread(target=work) for _ in range(cells)]
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return turns * SLEEP_S / (time.monotonic() - began_s)


def of_tasks(cells: int, seconds: float) -> float:
    """The share of the limit that bare tasks reach."""
    turns = round(seconds / SLEEP_S)

    async def work() -> None:
        for _ in range(turns):
            await asyncio.sleep(SLEEP_S)

    async def all_of_them() -> float:
        began_s = time.monotonic()
        await asyncio.gather(*(work() for _ in range(cells)))
        return turns * SLEEP_S / (time.monotonic() - began_s)

    return asyncio.run(all_of_them())


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often all is measured.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of a measured run.")] = 2.0,
    kind: Annotated[list[str] | None, typer.Option(help="thread, asyncio, process.")] = None,
) -> None:
    """Measure and print."""
    kinds = kind or list(KINDS)
    bare: dict[str, Callable[[int, float], float]] = {"asyncio": of_tasks}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with EmbeddedBroker() as broker:
        for _ in range(rounds):
            for cells in CELLS:
                for one in kinds:
                    ours = of_the_consumer(broker.bootstrap, one, cells, seconds)
                    beside = bare.get(one, of_threads)(cells, seconds)
                    found.setdefault((one, cells), []).append((ours, beside))
    table = Table("workers", "cells", "consumer", "bare", title="part of cells x 100 records/s")
    for (one, cells), runs in found.items():
        ours, beside = (statistics.median(part) for part in zip(*runs, strict=True))
        table.add_row(one, str(cells), f"{ours:.2f}", f"{beside:.2f}")
    console = Console()
    console.print(table)
    console.print(report.circumstances())


if __name__ == "__main__":
    typer.run(main)

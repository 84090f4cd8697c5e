"""Large clean histories created in one pass, and the speed of the check on them.

Run `python -m tests.checker.large`. Producers, some of them transactional, write rounds of records
to all partitions, and readers follow. The model in `model.py` covers more, but its time grows with
the square of the steps.
"""

from __future__ import annotations

import gc
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import process_time
from typing import Annotated

import typer
from rich.console import Console

from tests.checker.anomalies import Kind
from tests.checker.check import check
from tests.checker.history import load
from tests.checker.lines import encode
from tests.checker.operations import (
    Action,
    Assign,
    Batch,
    Begin,
    End,
    FinalRead,
    Operation,
    Outcome,
    Partition,
    Poll,
    Send,
    Span,
    Start,
)

PARTITIONS = 12
READERS = 3
PRODUCERS = 10
TRANSACTIONAL_EVERY = 5
"""One producer in this many is transactional."""
_ROUND = 5
"""Records per producer and round."""
SECONDS_MAX = 120.0
"""On one core."""
BYTES_MAX = 3_000_000_000
LOST_EVERY = 200_000
"""One acknowledged record in this many is hidden from all readers."""


@dataclass(slots=True)
class _Log:
    partition: Partition
    end: int = 0
    unread: list[list[tuple[int, str]]] = field(
        default_factory=lambda: [[] for _ in range(READERS)]
    )


class _Large:
    """The state between rounds."""

    def __init__(self, seed: int, lost_every: int) -> None:
        self.logs = [_Log(("load", index)) for index in range(PARTITIONS)]
        self.lost: list[str] = []
        self._random = Random(seed)
        self._now_ns = 0
        self._sent = 0
        self._acknowledged = 0
        self._transactions = 0
        self._lost_every = lost_every

    def tick(self) -> int:
        self._now_ns += 7
        return self._now_ns

    def assign(self, reader: str) -> Assign:
        starts = [Start(log.partition, 0) for log in self.logs]
        return Assign(reader, self.tick(), starts)

    def produce(self, number: int) -> Iterator[Operation]:
        """One round of a producer: a few records, in a transaction or not."""
        process = f"producer-{number}"
        if number % TRANSACTIONAL_EVERY:
            yield from self._sends(process, None)
            return
        self._transactions += 1
        name = f"t{self._transactions}"
        yield Begin(process, self.tick(), name)
        action = Action.ABORT if self._random.random() < 0.1 else Action.COMMIT
        yield from self._sends(process, name, visible=action is Action.COMMIT)
        yield End(process, self.tick(), self.tick(), name, action, Outcome.OK)
        for log in self.logs:
            log.end += 1

    def _sends(self, process: str, within: str | None, *, visible: bool = True) -> Iterator[Send]:
        for _ in range(_ROUND):
            log = self._random.choice(self.logs)
            self._sent += 1
            value = f"v{self._sent}"
            begun_ns = self.tick()
            if self._random.random() < 0.02:
                ended = self.tick()
                yield Send(process, log.partition, value, begun_ns, ended, Outcome.UNKNOWN)
                continue
            offset = log.end
            log.end += 1
            self._acknowledged += 1
            if self._lost_every and self._acknowledged % self._lost_every == 0 and visible:
                self.lost.append(value)
            elif visible:
                for unread in log.unread:
                    unread.append((offset, value))
            ended = self.tick()
            yield Send(process, log.partition, value, begun_ns, ended, Outcome.OK, offset, within)

    def poll(self, number: int, *, all_of_it: bool = False) -> Iterator[Poll]:
        """The polls of a reader: mostly everything new in each partition."""
        for log in self.logs:
            unread = log.unread[number]
            if not unread or not (all_of_it or self._random.random() < 0.5):
                continue
            batch: Batch = (log.partition, [at for at, _ in unread], [value for _, value in unread])
            log.unread[number] = []
            yield Poll(f"reader-{number}", self.tick(), self.tick(), [batch], read_committed=True)


def large_history(
    operations: int, seed: int, lost: list[str], every: int = 0
) -> Iterator[Operation]:
    """About this many operations. `lost` gets the values that are hidden, one in `every`."""
    large = _Large(seed, every)
    count = 0
    for number in range(READERS):
        yield large.assign(f"reader-{number}")
    while count < operations:
        for number in range(PRODUCERS):
            for operation in large.produce(number):
                count += 1
                yield operation
        for number in range(READERS):
            for poll in large.poll(number):
                count += 1
                yield poll
    begun_ns = large.tick()
    for number in range(READERS):
        yield from large.poll(number, all_of_it=True)
        spans = [Span(log.partition, 0, log.end) for log in large.logs]
        yield FinalRead(f"reader-{number}", begun_ns, large.tick(), spans)
    lost += large.lost


def main(
    operations: Annotated[int, typer.Option(min=1)] = 1_000_000,
    seed: Annotated[int, typer.Option()] = 1,
) -> None:
    """Write a large history, read it and check it. Fails if that is slow, large or wrong."""
    console = Console()
    lost: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for operation in large_history(operations, seed, lost, LOST_EVERY):
                file.write(encode(operation) + "\n")
        megabytes = path.stat().st_size / 1e6
        began = process_time()
        history = load([path])
        loaded = process_time()
        verdict = check(history)
        done = process_time()
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    counts = verdict.counts
    console.print(
        f"{counts.operations:,} operations ({counts.sends:,} sends, {counts.polls:,} polls of "
        f"{counts.records_polled:,} records, {counts.transactions:,} transactions), "
        f"{megabytes:.0f} MB: read in {loaded - began:.1f} s of one core, "
        f"checked in {done - loaded:.1f} s, "
        f"peak {peak_bytes / 1e9:.2f} GB"
    )
    found = {one.values[0] for one in verdict.of(Kind.LOST_WRITE)}
    assert found == set(lost), f"expected the lost writes {lost}, found {sorted(found)}"
    assert len(verdict.anomalies) == len(lost), verdict.anomalies[:3]
    assert done - began <= SECONDS_MAX, f"expected at most {SECONDS_MAX:g} s"
    assert peak_bytes <= BYTES_MAX, f"expected at most {BYTES_MAX / 1e9:g} GB"


if __name__ == "__main__":
    gc.disable()  # nothing is cyclic here, and the collector would traverse everything repeatedly
    typer.run(main)

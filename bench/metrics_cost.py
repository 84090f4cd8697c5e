"""`python -m bench.metrics_cost`: the CPU time that a broker's metrics add to a request.

Nothing turns the metrics off, so a broker of its own (`bench.uncounted`) runs the same code without
the lines that count, in turn with the code as it is. A pair is the same load on both, one after the
other, and the order changes from pair to pair; its ratio is that of the CPU times of the broker's
process, user and system. Each start of the broker has another memory layout and hash seed, which
matter by as much as is measured: the pairs of several starts count. Told is the median over all
pairs, with the interval in which it lies in 95 % of the samples that are drawn anew from the starts
and from the pairs of each (bootstrap). `--same` has both sides count: its ratio must be 1, and its
interval says how exact the others are.

The load is sent from this process by bare sockets, in frames that were made before. What a Produce
request counts is timed alone, too: in a loop, without a broker, with everything in the cache.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, cast

import typer
from rich.console import Console

from bench import report
from bench.metrics_load import LOADS, VALUE_BYTES, Load
from bench.options import Only, WriteDocs
from bench.uncounted import COUNTED, CPU, READY, UNCOUNTED
from raylog.actors.gateway.connection import ClientConnection, Slot
from raylog.actors.gateway.counts import NOT_COUNTED, GatewayCounts
from raylog.actors.replica.counts import TopicCounts
from raylog.wire.api import ApiKey

RATIO_MAX = 1.02
RESAMPLES = 2_000
INTERVAL = (0.025, 0.975)
STOP_TIMEOUT_S = 30.0
ALONE_TIMES = 2_000
ALONE_REPEATS = 200
HEADINGS = (
    "load",
    "records a request",
    "CPU a request, µs",
    "counting a request, ns",
    "a record, ns",
    "ratio",
    "95 %",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """CPU times of the broker for the same load, in ns a request."""

    counted: float
    uncounted: float

    @property
    def ratio(self) -> float:
        """What counting makes of it."""
        return self.counted / self.uncounted


@dataclass(slots=True)
class Figures:
    """The pairs of one load, by start of the broker."""

    starts: list[list[Pair]] = field(default_factory=list)

    @property
    def pairs(self) -> list[Pair]:
        """Of all starts."""
        return [pair for start in self.starts for pair in start]

    @property
    def ratio(self) -> float:
        """The median over all pairs."""
        return statistics.median(pair.ratio for pair in self.pairs)

    @property
    def request_ns(self) -> float:
        """Median CPU time of a request, counting included."""
        return statistics.median(pair.counted for pair in self.pairs)

    @property
    def counting_ns(self) -> float:
        """Of it, what the ratio says counting takes."""
        return self.request_ns * (1 - 1 / self.ratio)

    def interval(self) -> tuple[float, float]:
        """Bounds of the ratio, from medians of starts, and pairs of each, drawn with repetition."""
        chance = random.Random(1)
        starts = [[pair.ratio for pair in start] for start in self.starts]
        found = sorted(_drawn_median(starts, chance) for _ in range(RESAMPLES))
        low, high = (found[round(part * (RESAMPLES - 1))] for part in INTERVAL)
        return low, high


def _drawn_median(starts: Sequence[Sequence[float]], chance: random.Random) -> float:
    drawn = [chance.choices(start, k=len(start)) for start in chance.choices(starts, k=len(starts))]
    return statistics.median(ratio for start in drawn for ratio in start)


def alone_ns() -> float:
    """What a Produce request of one batch counts, by itself: the best of some loops, in ns."""
    gateway, topic = GatewayCounts(topics_max=1), TopicCounts()
    slot = Slot(cast(ClientConnection, None), 0, time.monotonic())  # it is never filled
    answer = [b"answer"]

    def count() -> None:
        gateway.bytes_in += VALUE_BYTES
        slot.begun_s = slot.taken_s
        slot.left_s = 0.0
        slot.api_counts = NOT_COUNTED
        counts = slot.api_counts = gateway.apis[ApiKey.PRODUCE]
        counts.requests += 1
        topic.batches_in += 1
        topic.bytes_in += VALUE_BYTES
        topic.records_in += 1
        slot.api_counts.answered(slot, time.monotonic())
        gateway.bytes_out += len(answer[0]) if len(answer) == 1 else sum(map(len, answer))

    timer = timeit.Timer(count, timer=time.thread_time)
    return min(timer.repeat(ALONE_REPEATS, ALONE_TIMES)) * 1e9 / ALONE_TIMES


class Broker:
    """The process that is measured."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        first = self._line()
        assert first.startswith(READY), f"expected the broker's address, found {first!r}"
        self.address = first.removeprefix(READY)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the broker has ended; its error is above"
        return line

    def told(self, command: str) -> int:
        """Have it do a command; its CPU time so far, in ns."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return int(self._line())


@contextmanager
def broker_process() -> Iterator[Broker]:
    """A new one, which ends with the block."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.uncounted"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=report.ROOT,
    )
    with process:
        try:
            yield Broker(process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()


def measured(broker: Broker, load: Load, pairs: int, sides: tuple[str, str]) -> list[Pair]:
    """Pairs of one start, after one of each that does not count."""
    found: list[Pair] = []
    with load.connected(broker.address) as run:
        for number in range(pairs + 1):
            order = [0, 1] if number % 2 else [1, 0]
            cpu_ns = [0.0, 0.0]
            for side in order:
                before_ns = broker.told(sides[side])
                requests = run()
                cpu_ns[side] = (broker.told(CPU) - before_ns) / requests
            found.append(Pair(*cpu_ns))
    return found[1:]


def table_of(found: dict[Load, Figures]) -> str:
    """One row for each load, in Markdown."""
    rows = [list(HEADINGS), ["---"] + ["---:"] * (len(HEADINGS) - 1)]
    rows += [cells_of(load, figures) for load, figures in found.items()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def cells_of(load: Load, figures: Figures) -> list[str]:
    """A row: requests in µs, counting in ns for a request and for a record."""
    low, high = figures.interval()
    counting = figures.counting_ns
    return [
        load.name,
        f"{load.records:,}",
        f"{figures.request_ns / 1000:.1f}",
        f"{counting:,.0f}",
        f"{counting / load.records:,.1f}" if load.records else "",
        f"{figures.ratio:.3f}",
        f"{low:.3f}–{high:.3f}",
    ]


def main(
    starts: Annotated[int, typer.Option(min=1, help="Processes, one after the other.")] = 10,
    pairs: Annotated[int, typer.Option(min=1, help="Of each load in each process.")] = 20,
    only: Only = None,
    same: Annotated[bool, typer.Option("--same", help="Count on both sides.")] = False,
    write_docs: WriteDocs = False,
) -> None:
    """Measure and print; fails where metrics cost more than 2 %."""
    loads = [one for one in LOADS if not only or any(word in one.name for word in only)]
    found = {load: Figures() for load in loads}
    sides = (COUNTED, COUNTED if same else UNCOUNTED)
    say = Console(stderr=True)
    for number in range(starts):
        say.print(f"start {number + 1} of {starts}")
        with broker_process() as broker:
            for load, figures in found.items():
                figures.starts.append(measured(broker, load, pairs, sides))
    text = (
        f"{report.circumstances()}.\n\n{starts} starts of the broker, {pairs} pairs of each load "
        f"in each. The counting alone takes {alone_ns():,.0f} ns.\n\n{table_of(found)}"
    )
    print(text)
    if write_docs:
        report.write_section(text, "bench.metrics_cost")
    dear = [load.name for load, figures in found.items() if figures.ratio > RATIO_MAX]
    if dear:
        say.print(f"[red]expected ratios of {RATIO_MAX} at most; more have: {', '.join(dear)}")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

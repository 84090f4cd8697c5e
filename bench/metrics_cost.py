"""`python -m bench.metrics_cost`: the CPU time that metrics add to a request of a broker.

Metrics cannot be turned off, so a special broker (`bench.uncounted`) runs the same code without the
lines that count, in turn with the original code. A pair is the same load on both, one after the
other, and the order changes from pair to pair. Its ratio is that of the CPU times of the broker's
process, user and system. Each start of the broker has another memory layout and hash seed, with
effects as large as the measured one, so the pairs of several starts count. The result is the median
over all pairs, with a 95 % bootstrap interval, resampled over starts and over the pairs of each.
With `--same` both sides count: the ratio must be 1, and the interval shows the precision.

The load is sent from this process through bare sockets, in frames encoded beforehand. The counting
of a Produce request is also measured alone: in a loop, without a broker, with everything in the
cache.
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
    """CPU times of the broker for the same load, in ns per request."""

    counted: float
    uncounted: float

    @property
    def ratio(self) -> float:
        """The ratio with counting to without."""
        return self.counted / self.uncounted


@dataclass(slots=True)
class Figures:
    """The pairs of one load, by start of the broker."""

    starts: list[list[Pair]] = field(default_factory=list)

    @property
    def pairs(self) -> list[Pair]:
        """The pairs of all starts."""
        return [pair for start in self.starts for pair in start]

    @property
    def ratio(self) -> float:
        """The median ratio over all pairs."""
        return statistics.median(pair.ratio for pair in self.pairs)

    @property
    def request_ns(self) -> float:
        """The median CPU time of a request, with counting."""
        return statistics.median(pair.counted for pair in self.pairs)

    @property
    def counting_ns(self) -> float:
        """The part of it that counting takes, by the ratio."""
        return self.request_ns * (1 - 1 / self.ratio)

    def interval(self) -> tuple[float, float]:
        """The bootstrap interval of the ratio, resampled over starts and over the pairs of each."""
        chance = random.Random(1)
        starts = [[pair.ratio for pair in start] for start in self.starts]
        found = sorted(_drawn_median(starts, chance) for _ in range(RESAMPLES))
        low, high = (found[round(part * (RESAMPLES - 1))] for part in INTERVAL)
        return low, high


def _drawn_median(starts: Sequence[Sequence[float]], chance: random.Random) -> float:
    drawn = [chance.choices(start, k=len(start)) for start in chance.choices(starts, k=len(starts))]
    return statistics.median(ratio for start in drawn for ratio in start)


def alone_ns() -> float:
    """The counting of a Produce request with one batch, alone: the best of some loops, in ns."""
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
    """The process to measure."""

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

    def send_command(self, command: str) -> int:
        """Send a command. Returns the CPU time of the process so far, in ns."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return int(self._line())


@contextmanager
def broker_process() -> Iterator[Broker]:
    """Run a new broker process within the context."""
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
    """The pairs of one start, after one of each that does not count."""
    found: list[Pair] = []
    with load.connected(broker.address) as run:
        for number in range(pairs + 1):
            order = [0, 1] if number % 2 else [1, 0]
            cpu_ns = [0.0, 0.0]
            for side in order:
                before_ns = broker.send_command(sides[side])
                requests = run()
                cpu_ns[side] = (broker.send_command(CPU) - before_ns) / requests
            found.append(Pair(*cpu_ns))
    return found[1:]


def table_of(found: dict[Load, Figures]) -> str:
    """A row per load, in Markdown."""
    rows = [list(HEADINGS), ["---"] + ["---:"] * (len(HEADINGS) - 1)]
    rows += [cells_of(load, figures) for load, figures in found.items()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def cells_of(load: Load, figures: Figures) -> list[str]:
    """A row: requests in µs, counting in ns per request and per record."""
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
    """Measure and print. Fails if metrics cost more than 2 %."""
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

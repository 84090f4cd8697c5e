"""`python -m bench.metrics_cost`: the CPU time that a broker's metrics add to a request.

Nothing turns the metrics off, so a broker of its own (`bench.uncounted`) runs the same code without
the lines that count, in turn with the code as it is. A pair is the same load on both, one after the
other, and the order changes from pair to pair; its ratio is that of the CPU times of the broker's
process, user and system. Each start of the broker has another memory layout and hash seed, which
matter by as much as is measured: the pairs of several starts count. Told is the median over all
pairs, with the interval in which it lies in 95 % of the samples that are drawn anew from the starts
and from the pairs of each (bootstrap). `--same` has both sides count: its ratio must be 1, and its
interval says how exact the others are.

The load is sent from this process by bare sockets, in frames that were made before. The table of
the counting alone has its time in a loop, without a broker and in a warm cache.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import report
from bench.metrics_load import LOADS, Load
from bench.options import Only
from bench.uncounted import COUNTED, CPU, READY, UNCOUNTED

RATIO_MAX = 1.02
RESAMPLES = 2_000
INTERVAL = (0.025, 0.975)
STOP_TIMEOUT_S = 30.0


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


def table_of(found: dict[Load, Figures]) -> Table:
    """One row for each load."""
    table = Table(title="CPU time of the broker, with metrics : without")
    for heading in ("load", "records", "µs/request", "counting", "ns/record", "ratio", "95 %"):
        table.add_column(heading, justify="left" if heading == "load" else "right")
    for load, figures in found.items():
        table.add_row(*cells_of(load, figures))
    return table


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
    Console().print(table_of(found))
    say.print(report.circumstances(), soft_wrap=True)
    dear = [load.name for load, figures in found.items() if figures.ratio > RATIO_MAX]
    if dear:
        say.print(f"[red]expected ratios of {RATIO_MAX} at most; more have: {', '.join(dear)}")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

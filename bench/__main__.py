"""`python -m bench`: Raylog and Apache Kafka in the same run, pair by pair.

Both run on this machine, and one is loaded at a time, in alternating order. The table shows the
median over the pairs of candidate / baseline.
"""

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import report, table
from bench.clients import ClientError
from bench.jars import MissingToolError, ToolFailedError
from bench.measure import idle_cpu_percent, usage
from bench.options import Only, Pairs, Seconds, Settings, WriteDocs
from bench.peers import ApacheKafka, Peer, PeerError, Raylog, Reachable, Source
from bench.workloads import Metric, Sample, Workload, all_workloads, quick_workloads

SETTLE_S = 10.0
"""Time from the start of the second broker to the first idle measurement."""

PRINTED_COLUMNS = 150
"""The width of the table without a terminal."""

say = Console(stderr=True)

Pair = tuple[Peer, Peer]


def parse_source(text: str, settings: Sequence[str]) -> Source:
    """Parse `kafka`, `raylog`, or NAME=HOST:PORT of a running broker."""
    if text == "kafka":
        return ApacheKafka()
    if text == "raylog":
        pairs = (setting.partition("=") for setting in settings)
        return Raylog({key: value for key, _, value in pairs})
    name, equals, address = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text} is neither kafka, raylog nor NAME=HOST:PORT")
    return Reachable(name, address)


def start_times(sources: tuple[Source, Source], times: int) -> list[table.Row]:
    """Start and stop each broker this many times, alternating."""
    if times == 0 or any(isinstance(source, Reachable) for source in sources):
        return []
    samples: list[tuple[Sample, Sample]] = []
    for _ in range(times):
        taken = []
        for source in sources:
            with source.run() as peer:
                taken.append(Sample({"ready": peer.start_s or 0.0}))
        samples.append((taken[0], taken[1]))
        say.print(f"start: {taken[0].values['ready']:.1f} s, {taken[1].values['ready']:.1f} s")
    return table.rows_of("start", [Metric("ready", "s", "lower")], samples)


def at_rest(peers: Pair, seconds: float, name: str) -> list[table.Row]:
    """CPU and memory of both brokers while they are idle."""
    if not all(peer.mark for peer in peers):
        return []
    cpu = idle_cpu_percent([peer.mark for peer in peers], seconds)
    found = [usage(peer.mark) for peer in peers]
    first, second = (
        Sample(
            {
                "cpu": cpu[peer.mark],
                "memory": used.pss_bytes / 2**20,
                "processes": float(used.processes),
            }
        )
        for peer, used in zip(peers, found, strict=True)
    )
    metrics = [
        Metric("cpu", "% of a core", "lower"),
        Metric("memory", "MiB PSS", "lower"),
        Metric("processes", "", "lower"),
    ]
    return table.rows_of(name, metrics, [(first, second)])


def compare(workload: Workload, peers: Pair, pairs: int, seconds: float) -> list[table.Row]:
    """Probe both brokers twice, choose one size for both, and measure in alternating order."""
    # The JIT compiles the client at the start of every run, so longer runs have higher rates.
    rate = max(workload.probe(peer) for peer in peers)
    warmer = workload.sized(rate, seconds / 2)
    rate = max(rate, *(warmer.probe(peer) for peer in peers))
    sized = warmer.sized(rate, seconds)
    samples: list[tuple[Sample, Sample]] = []
    for number in range(pairs):
        if number % 2 == 0:
            baseline = sized.run(peers[0])
            candidate = sized.run(peers[1])
        else:
            candidate = sized.run(peers[1])
            baseline = sized.run(peers[0])
        samples.append((baseline, candidate))
    rows = table.rows_of(sized.name, sized.metrics, samples)
    for row in rows:
        say.print("  ".join(row.cells()), highlight=False, soft_wrap=True)
    return rows


@contextmanager
def running(sources: tuple[Source, Source]) -> Iterator[Pair]:
    """Run both brokers side by side. Only one is loaded at a time."""
    with sources[0].run() as first, sources[1].run() as second:
        yield first, second


def chosen(workloads: Sequence[Workload], patterns: Sequence[str]) -> list[Workload]:
    """The workloads whose name matches any pattern, or all without patterns."""
    wanted = [f"*{pattern}*" for pattern in patterns] or ["*"]
    return [w for w in workloads if any(fnmatch(w.name, pattern) for pattern in wanted)]


def end_on_termination() -> None:
    """Let SIGTERM end what was started, as an interrupt does.

    Shells let background processes ignore interrupts. Here they count for those, too.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.default_int_handler)


def describe(names: tuple[str, str], pairs: int, seconds: float, circumstances: str) -> str:
    """What was run on what, for the head of the section."""
    return (
        f"{names[1]} beside {names[0]}; {circumstances}.\n\n"
        f"{pairs} interleaved pairs of about {seconds:g} s a run, both brokers on this machine, "
        "one replica; each figure is the median, the ratio the median over the pairs. Java clients "
        "are Kafka's own producer-perf and end-to-end tools and a consumer with assigned "
        "partitions; broker CPU is user plus system time of all its processes per GB of values.\n\n"
    )


def main(
    baseline: Annotated[str, typer.Option(help="kafka, raylog or NAME=HOST:PORT")] = "kafka",
    candidate: Annotated[str, typer.Option(help="kafka, raylog or NAME=HOST:PORT")] = "raylog",
    pairs: Pairs = 5,
    seconds: Seconds = 10.0,
    quick: Annotated[bool, typer.Option("--quick", help="A few workloads, 1 pair.")] = False,
    only: Only = None,
    setting: Settings = None,
    starts: Annotated[int, typer.Option(min=0, help="How often to measure the start.")] = 3,
    idle: Annotated[float, typer.Option(min=0, help="Seconds at rest; 0 leaves it out.")] = 60.0,
    write_docs: WriteDocs = False,
    json_file: Annotated[Path | None, typer.Option(help="Every sample as JSON.")] = None,
) -> None:
    """Compare two brokers and print the ratios."""
    end_on_termination()
    sources = (parse_source(baseline, setting or []), parse_source(candidate, setting or []))
    names = (sources[0].name, sources[1].name)
    if quick:
        pairs, seconds, starts, idle = 1, min(seconds, 3.0), min(starts, 1), min(idle, 10.0)
    try:
        rows = start_times(sources, starts)
        with running(sources) as peers:
            rows += measure(peers, quick, only or [], pairs, seconds, idle)
    except (MissingToolError, ToolFailedError, PeerError, ClientError) as failure:
        say.print(f"[red]{failure}")
        raise typer.Exit(2) from failure
    printed = Console()
    printed = printed if printed.is_terminal else Console(width=PRINTED_COLUMNS)
    printed.print(table.terminal(rows, *names))
    circumstances = report.circumstances()
    say.print(circumstances, highlight=False, soft_wrap=True)
    if json_file is not None:
        found = [asdict(row) for row in rows]
        json_file.write_text(json.dumps({"circumstances": circumstances, "rows": found}, indent=1))
    if write_docs:
        head = describe(names, pairs, seconds, circumstances)
        report.write_section(head + table.markdown(rows, *names))


def measure(
    peers: Pair, quick: bool, only: list[str], pairs: int, seconds: float, idle: float
) -> list[table.Row]:
    """Measure idle brokers, all workloads, and idle brokers again."""
    rows: list[table.Row] = []
    if idle:
        idle_cpu_percent([], SETTLE_S)
        rows += at_rest(peers, idle, "at rest, new")
    groups = all(peer.has_groups() for peer in peers)
    programme = chosen(quick_workloads() if quick else all_workloads(groups=groups), only)
    for workload in programme:
        rows += compare(workload, peers, pairs, seconds)
    if idle and programme:
        rows += at_rest(peers, idle, "at rest, after the load")
    return rows


if __name__ == "__main__":
    typer.run(main)

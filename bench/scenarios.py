"""The shipped load tests on one and three brokers and on Apache Kafka: `make load-scenarios`.

All systems run on this machine, and one is loaded at a time. Each scenario runs on one system after
another. Only Raylog gets faults. Memory and open files of the brokers are sampled meanwhile, so
that a soak shows whether they grow. The exit code is 1 if a run failed. Apache Kafka needs Java and
Maven.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console

from bench import report
from bench.__main__ import end_on_termination
from bench.jars import MissingToolError, ToolFailedError
from bench.measure import anonymous_bytes, open_files
from bench.options import WriteDocs
from bench.peers import ApacheKafka, Peer, PeerError, Raylog, Source
from raylog.loadtest.report.series import by_frequency, totals
from raylog.loadtest.report.words import number, reasons
from raylog.loadtest.results import Result
from raylog.loadtest.scenario import Scenario, Stairs
from raylog.loadtest.shipped import all_shipped, found

MODULE = "bench.scenarios"
SYSTEMS: dict[str, Source] = {
    "raylog": Raylog(name="Raylog, 1 broker"),
    "raylog-3": Raylog(name="Raylog, 3 brokers", brokers=3),
    "kafka": ApacheKafka(),
}
LOOK_S = 30.0
SETTLED_S = 300.0
"""Growth counts from this time on."""
OPERATIONS_SHOWN = 4
_HELD, _NOT_HELD = 0, 1
say = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Look:
    """A sample of a system's resources."""

    at_s: float
    memory_bytes: int
    """Without page cache."""
    files: int


@dataclass(slots=True)
class Run:
    """One scenario on one system."""

    system: str
    result: Result
    looks: list[Look] = field(default_factory=list)

    @property
    def scenario(self) -> str:
        """The name of the scenario."""
        return self.result.scenario.name


def growth(looks: Sequence[Look]) -> tuple[float, float] | None:
    """The growth of memory and open files after `SETTLED_S`, as shares; None for short runs.

    It compares the median of the last third with that of the first third.
    """
    settled = [look for look in looks if look.at_s >= SETTLED_S]
    third = len(settled) // 3
    if third < 1:
        return None
    first, last = settled[:third], settled[-third:]
    return (
        median(look.memory_bytes for look in last) / median(look.memory_bytes for look in first)
        - 1,
        median(look.files for look in last) / median(look.files for look in first) - 1,
    )


@contextmanager
def _watched(peer: Peer) -> Iterator[list[Look]]:
    """Sample a system's processes repeatedly."""
    looks: list[Look] = []
    is_over, began = threading.Event(), monotonic()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            at_s, held = monotonic() - began, anonymous_bytes(peer.mark)
            looks.append(Look(at_s, held, open_files(peer.mark)))

    thread = threading.Thread(target=look, name="looks")
    thread.start()
    try:
        yield looks
    finally:
        is_over.set()
        thread.join()


def run(scenario: Scenario, name: str, peer: Peer, longest_s: float, out: Path) -> Run:
    """Run a scenario on a system. Raises PeerError if that is impossible."""
    where = ["--data", peer.data] if peer.data else ["--bootstrap", peer.address]
    folder = out / name / scenario.name
    command = [sys.executable, "-m", "raylog.cli", "loadtest", scenario.name, *where]
    command += ["--out", str(folder), "--json"]
    # Faults at fixed times and stairs say less in a shorter run.
    has_plan = bool(scenario.faults) or isinstance(scenario.shape, Stairs)
    if scenario.duration_s > longest_s and not has_plan:
        command += ["--duration", str(longest_s)]
    with _watched(peer) as looks:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode not in (_HELD, _NOT_HELD) or not done.stdout:
        raise PeerError(f"{scenario.name} on {peer.name} ended with {done.returncode}")
    return Run(peer.name, Result.model_validate(json.loads(done.stdout), strict=False), looks)


def cells(one: Run) -> list[str]:
    """A row of the table in the document."""
    result = one.result
    verdict = "passed" if result.passed else "failed"
    limited_s = sum(end - begin for begin, end in result.limited_by_generator)
    lines = []
    for operation in by_frequency(result)[:OPERATIONS_SHOWN]:
        all_of_it = totals(operation, result)
        if not all_of_it.rate and not all_of_it.failures:
            continue
        p50, _, p99, p999, _ = (number(value) for value in all_of_it.percentiles_ms)
        failed = f", {all_of_it.failures:,} failed" if all_of_it.failures else ""
        lines.append(f"{operation.name} {number(all_of_it.rate)}/s: {p50} / {p99} / {p999}{failed}")
    if result.capacity is not None:
        lines.insert(0, f"capacity {result.capacity:,.0f} records/s")
    grown = growth(one.looks)
    if grown is not None:
        memory, files = grown
        lines.append(f"after minute 5 memory {memory:+.1%}, open files {files:+.1%}")
    limited = f"{limited_s:.0f} of {result.duration_s:.0f} s" if limited_s else ""
    return [
        one.scenario,
        one.system,
        verdict,
        "<br>".join(lines),
        f"{result.audit.acknowledged:,}",
        limited,
    ]


_HEADINGS = (
    "scenario",
    "system",
    "verdict",
    "operation, per s: p50 / p99 / p99.9 ms",
    "records audited",
    "generator was the limit",
)


def markdown(runs: Sequence[Run]) -> str:
    """The table for the documentation."""
    lines = [list(_HEADINGS), ["---"] * len(_HEADINGS), *map(cells, runs)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def failures(runs: Sequence[Run]) -> list[str]:
    """Why runs failed, for the documentation and the terminal."""
    return [
        f"{one.scenario} on {one.system}: {reason}"
        for one in runs
        if not one.result.passed
        for reason in reasons(one.result)
    ]


def main(
    systems: Annotated[
        list[str] | None,
        typer.Option("--system", help=f"Systems: {', '.join(SYSTEMS)}. Default: all."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Names of scenarios. Default: all.")
    ] = None,
    longest_s: Annotated[
        float,
        typer.Option(
            "--longest", min=10.0, help="Longest run in seconds, except for faults and stairs."
        ),
    ] = 300.0,
    out: Annotated[Path, typer.Option(help="Folder for the reports.")] = Path("build/scenarios"),
    write_docs: WriteDocs = False,
) -> None:
    """Run the scenarios, print a table, and report failures."""
    end_on_termination()
    chosen = {name: SYSTEMS[name] for name in systems or SYSTEMS}
    names = only or [one.name for one in all_shipped()]
    runs: list[Run] = []
    try:
        with ExitStack() as stack:
            peers = {name: stack.enter_context(source.run()) for name, source in chosen.items()}
            for scenario in map(found, names):
                for name, peer in peers.items():
                    if scenario.faults and not peer.data:
                        continue
                    runs.append(run(scenario, name, peer, longest_s, out))
                    say.print(" | ".join(cells(runs[-1])), highlight=False, soft_wrap=True)
    except (MissingToolError, ToolFailedError, PeerError) as failure:
        say.print(f"[red]{failure}")
        raise typer.Exit(2) from failure
    text = markdown(runs)
    typer.echo(text)
    unpassed = failures(runs)
    if write_docs:
        most = f"{longest_s:g} s at most, but for faults and stairs"
        head = f"{report.circumstances()}; {most}.\n\n"
        unpassed_text = "".join(f"- {line}\n" for line in unpassed)
        report.write_section(f"{head}{text}\n{unpassed_text}", MODULE)
    typer.echo("\n".join(unpassed), err=True)
    raise typer.Exit(1 if unpassed else 0)


if __name__ == "__main__":
    typer.run(main)

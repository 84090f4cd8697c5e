"""Three brokers, three replicas: `python -m bench.replicated` (needs Java and Maven).

Apache Kafka and Raylog with three brokers each on this machine, acks=all, replication factor 3,
min.insync.replicas 2, records of 1 KiB: throughput, and latency at a fixed rate, pair by pair as in
`python -m bench`, and the CPU time by process. The exit code is 1 if a target was missed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from resource import RUSAGE_CHILDREN, getrusage
from typing import NoReturn

import typer
from rich.console import Console

from bench import report, table
from bench.__main__ import PRINTED_COLUMNS, chosen, compare, end_on_termination, running
from bench.clients import ClientError, ProducerSettings
from bench.jars import MissingToolError, ToolFailedError
from bench.measure import cpu_by_process
from bench.options import Only, Pairs, Seconds, Settings, WriteDocs
from bench.peers import ApacheKafka, Peer, PeerError, Raylog
from bench.workloads import Copies, Metric, Paced, Produce, Sample, Workload

BROKERS = 3
RECORD_BYTES = 1024
COPIES = Copies(replicas=3, min_insync=2)
THROUGHPUT_LEAST = 0.5
LATENCY_MOST = 2.0
MODULE = "bench.replicated"

say = Console(stderr=True)


@dataclass(slots=True)
class Watched:
    """A workload that records the CPU time of each process while it runs."""

    workload: Workload
    spent: dict[str, dict[str, float]] = field(default_factory=dict)
    """CPU seconds by peer and role."""
    megabytes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Values written, by peer."""

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.workload.name

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of the workload."""
        return self.workload.metrics

    def probe(self, peer: Peer) -> float:
        """Probe without recording."""
        return self.workload.probe(peer)

    def sized(self, rate: float, seconds: float) -> Watched:
        """The sized workload. It records into the same tables."""
        return Watched(self.workload.sized(rate, seconds), self.spent, self.megabytes)

    def run(self, peer: Peer) -> Sample:
        """Measure once and record CPU times."""
        roles = roles_of(peer)
        before, clients_before = cpu_by_process(peer.mark), _clients_s()
        sample = self.workload.run(peer)
        spent = self.spent.setdefault(peer.name, defaultdict(float))
        for pid, cpu_s in cpu_by_process(peer.mark).items():
            spent[roles.get(pid, "Ray" if peer.data else "new")] += cpu_s - before.get(pid, 0.0)
        spent["client"] += _clients_s() - clients_before
        self.megabytes[peer.name] += sample.payload_bytes / 1e6
        return sample


def _clients_s() -> float:
    """CPU seconds of clients that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def roles_of(peer: Peer) -> dict[int, str]:
    """The role of each process of a peer."""
    if not peer.data:
        return dict.fromkeys(cpu_by_process(peer.mark), "brokers")
    command = [sys.executable, "-m", "raylog.cli", "status", "--data", peer.data, "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return roles_in(json.loads(said)["actors"])


def roles_in(actors: Iterable[dict[str, object]]) -> dict[int, str]:
    """By process id, the roles that it hosts, such as `gateway+replica`."""
    roles: dict[int, set[str]] = defaultdict(set)
    for actor in actors:
        pid = actor["pid"]
        if isinstance(pid, int) and pid:
            roles[pid].add(str(actor["role"]))
    return {pid: "+".join(sorted(names)) for pid, names in roles.items()}


def programme() -> list[Workload]:
    """The workloads to compare."""
    tuned = ProducerSettings("all", 5, 65_536)
    return [
        Produce("java", tuned, RECORD_BYTES, 1, copies=COPIES),
        Produce("java", tuned, RECORD_BYTES, 6, copies=COPIES),
        Paced("all", 200, RECORD_BYTES, copies=COPIES),
        Paced("all", 1_000, RECORD_BYTES, copies=COPIES),
    ]


def spent_lines(watched: Iterable[Watched]) -> list[str]:
    """The CPU times as a table for the documentation."""
    lines = ["| workload | system | CPU seconds, by process |", "|---|---|---|"]
    for one in watched:
        for peer, spent in one.spent.items():
            megabytes = one.megabytes[peer]
            shares = sorted(spent.items(), key=lambda share: -share[1])
            shares_text = ", ".join(
                f"{role} {cpu_s:.1f}" for role, cpu_s in shares if cpu_s >= 0.05
            )
            per = f" for {megabytes:,.0f} MB" if megabytes else ""
            lines.append(f"| {one.name} | {peer} | {shares_text}{per} |")
    return lines


def broken(rows: Iterable[table.Row]) -> list[str]:
    """The targets that were missed."""
    found = []
    for row in rows:
        name, ratio = row.metric.name, row.ratio
        if name == "throughput" and ratio < THROUGHPUT_LEAST:
            found.append(f"{row.workload}: {ratio:.2f} x the throughput, {THROUGHPUT_LEAST} wanted")
        if name.endswith("p50") and ratio > LATENCY_MOST:
            found.append(f"{row.workload}: {ratio:.2f} x the {name}, at most {LATENCY_MOST} wanted")
    return found


def tell(
    rows: list[table.Row],
    watched: list[Watched],
    names: tuple[str, str],
    say_line: Callable[[str], object],
) -> None:
    """Print everything."""
    printed = Console()
    printed = printed if printed.is_terminal else Console(width=PRINTED_COLUMNS)
    printed.print(table.terminal(rows, *names))
    for line in spent_lines(watched):
        say_line(line)


def report_on(
    sources: tuple[ApacheKafka, Raylog],
    workloads: Iterable[Workload],
    pairs: int,
    seconds: float,
    *,
    site: str,
    module: str | None,
) -> NoReturn:
    """Measure and print. Exits with 1 if a target was missed.

    `site` describes the setup in the documentation. `module` names the section to replace, or None.
    """
    end_on_termination()
    names = (sources[0].name, sources[1].name)
    watched = [Watched(one) for one in workloads]
    try:
        with running(sources) as peers:
            rows = [row for one in watched for row in compare(one, peers, pairs, seconds)]
    except (MissingToolError, ToolFailedError, PeerError, ClientError) as failure:
        say.print(f"[red]{failure}")
        raise typer.Exit(2) from failure
    tell(rows, watched, names, typer.echo)
    circumstances = report.circumstances()
    typer.echo(circumstances)
    if module is not None:
        head = (
            f"{circumstances}; {pairs} interleaved pairs of about {seconds:g} s a run, {site}.\n\n"
        )
        text = head + table.markdown(rows, *names) + "\n" + "\n".join(spent_lines(watched))
        report.write_section(text, module)
    unkept = broken(rows)
    for promise in unkept:
        typer.echo(promise, err=True)
    raise typer.Exit(1 if unkept else 0)


def main(
    pairs: Pairs = 5,
    seconds: Seconds = 10.0,
    only: Only = None,
    setting: Settings = None,
    write_docs: WriteDocs = False,
) -> None:
    """Compare two clusters of three brokers and print the ratios."""
    settings = dict(one.split("=", 1) for one in setting or [])
    report_on(
        (ApacheKafka(brokers=BROKERS), Raylog(settings, brokers=BROKERS)),
        chosen(programme(), only or []),
        pairs,
        seconds,
        site="three brokers each on this machine, replication factor 3, min.insync.replicas 2",
        module=MODULE if write_docs else None,
    )


if __name__ == "__main__":
    typer.run(main)

"""Transactional throughput: `python -m bench.transactions` (needs Java and Maven).

Apache Kafka's producer-perf in transactions of 100 ms, each with its commit, against Apache Kafka
and Raylog on this machine, pair by pair as `python -m bench` does it, and then where the
processor's time went; one broker each, or with `--brokers 3` three with three copies. Ends with 1
where the throughput is less than half of Kafka's.
"""

from __future__ import annotations

from typing import Annotated

import typer

from bench import report, table
from bench.__main__ import compare, end_on_termination, running
from bench.clients import ClientError, ProducerSettings
from bench.jars import MissingToolError
from bench.peers import ApacheKafka, PeerError, Raylog
from bench.replicated import COPIES, Watched, broken, say, spent_lines, tell
from bench.workloads import ONE_COPY, Produce

TRANSACTION_MS = 100
SETTINGS = ProducerSettings("all", 5, 65_536, TRANSACTION_MS)
SHAPES = ((1024, 1), (1024, 6), (100, 6))
"""Bytes of a record, and partitions."""
MODULE = "bench.transactions"


def programme(brokers: int) -> list[Produce]:
    """What is compared; with three brokers, three copies are kept."""
    copies = ONE_COPY if brokers == 1 else COPIES
    return [
        Produce("java", SETTINGS, size, partitions, copies=copies) for size, partitions in SHAPES
    ]


def main(
    pairs: Annotated[int, typer.Option(min=1, help="Interleaved pairs of each workload.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of a measured run.")] = 10.0,
    brokers: Annotated[int, typer.Option(min=1, help="Of each system: 1 or 3.")] = 1,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="key=value for raylog up.")
    ] = None,
    write_docs: Annotated[
        bool, typer.Option("--write-docs", help="Replace the section in docs/BENCHMARKS.md.")
    ] = False,
) -> None:
    """Compare transactional producers and print the ratios."""
    end_on_termination()
    settings = dict(one.split("=", 1) for one in setting or [])
    sources = ApacheKafka(brokers=brokers), Raylog(settings, brokers=brokers)
    names = (sources[0].name, sources[1].name)
    watched = [Watched(one) for one in programme(brokers)]
    try:
        with running(sources) as peers:
            rows = [row for one in watched for row in compare(one, peers, pairs, seconds)]
    except (MissingToolError, PeerError, ClientError) as failure:
        say.print(f"[red]{failure}")
        raise typer.Exit(2) from failure
    tell(rows, watched, names, typer.echo)
    circumstances = report.circumstances()
    typer.echo(circumstances)
    if write_docs:
        head = (
            f"{circumstances}; {pairs} interleaved pairs of about {seconds:g} s a run, "
            f"{brokers} broker{'s' * (brokers > 1)} each.\n\n"
        )
        text = head + table.markdown(rows, *names) + "\n" + "\n".join(spent_lines(watched))
        report.write_section(text, MODULE)
    unkept = broken(rows)
    for promise in unkept:
        typer.echo(promise, err=True)
    raise typer.Exit(1 if unkept else 0)


if __name__ == "__main__":
    typer.run(main)

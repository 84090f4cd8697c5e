"""Transactional throughput: `python -m bench.transactions` (needs Java and Maven).

Apache Kafka's producer-perf with transactions of 100 ms, including commits, against Apache Kafka
and Raylog on this machine, pair by pair as in `python -m bench`, and the CPU time by process; one
broker each, or with `--brokers 3` three brokers and replicas. The exit code is 1 if the throughput
is less than half of Kafka's.
"""

from __future__ import annotations

from typing import Annotated

import typer

from bench.clients import ProducerSettings
from bench.options import Pairs, Seconds, Settings, WriteDocs
from bench.peers import ApacheKafka, Raylog
from bench.replicated import COPIES, report_on
from bench.workloads import ONE_COPY, Produce

TRANSACTION_MS = 100
SETTINGS = ProducerSettings("all", 5, 65_536, TRANSACTION_MS)
SHAPES = ((1024, 1), (1024, 6), (100, 6))
"""Sizes of records in bytes, and numbers of partitions."""
MODULE = "bench.transactions"


def programme(brokers: int) -> list[Produce]:
    """The workloads to compare. With three brokers, topics have three replicas."""
    copies = ONE_COPY if brokers == 1 else COPIES
    return [
        Produce("java", SETTINGS, size, partitions, copies=copies) for size, partitions in SHAPES
    ]


def main(
    pairs: Pairs = 5,
    seconds: Seconds = 10.0,
    brokers: Annotated[int, typer.Option(min=1, help="Of each system: 1 or 3.")] = 1,
    setting: Settings = None,
    write_docs: WriteDocs = False,
) -> None:
    """Compare transactional producers and print the ratios."""
    settings = dict(one.split("=", 1) for one in setting or [])
    report_on(
        (ApacheKafka(brokers=brokers), Raylog(settings, brokers=brokers)),
        programme(brokers),
        pairs,
        seconds,
        site=f"{brokers} broker{'s' * (brokers > 1)} each",
        module=MODULE if write_docs else None,
    )


if __name__ == "__main__":
    typer.run(main)

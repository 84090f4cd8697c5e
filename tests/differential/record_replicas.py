"""Records Apache Kafka's answers: `python -m tests.differential.record_replicas`.

Needs Java and Maven. All scenarios are played to two new clusters of four brokers. Scenarios on
which these differ depend on chance; they are named and left out.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from bench.measure import marked_processes
from bench.peers import ApacheKafka
from tests.differential.normalized import differences
from tests.differential.replica_golden import RECORDED, write
from tests.differential.replica_scenarios import SCENARIOS
from tests.differential.replica_stage import BROKERS, SETTINGS, STOPPED, Transcripts, play


def record(expected: Transcripts | None = None) -> Transcripts:
    """What a fresh Apache Kafka answers."""
    with ExitStack() as running:
        kafka = running.enter_context(ApacheKafka(SETTINGS, brokers=BROKERS).run())
        return play(kafka.address, SCENARIOS, lambda: stop_last(kafka.mark), expected)


def stop_last(mark: str) -> None:
    """Ask the last broker of a cluster to stop, and wait until it has."""
    pid = process_of(mark, STOPPED)
    os.kill(pid, signal.SIGTERM)
    while not _is_over(pid):
        time.sleep(0.05)


def process_of(mark: str, broker: int) -> int:
    """The process of one of a cluster's brokers."""
    (found,) = (
        pid
        for pid in marked_processes(mark)
        if f"broker-{broker}.properties" in Path(f"/proc/{pid}/cmdline").read_text()
    )
    return found


def _is_over(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked how yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def main() -> int:
    """Record, compare, write."""
    first = record()
    again = record(first)
    by_chance = {name: differences(one, again[name]) for name, one in first.items()}
    for name, unlike in by_chance.items():
        if unlike:
            print(f"left out, by chance: {name}{unlike[0]}")  # noqa: T201 - its output
    write({name: one for name, one in first.items() if not by_chance[name]})
    print(f"{RECORDED}: {RECORDED.stat().st_size:,} bytes")  # noqa: T201 - its output
    return 0


if __name__ == "__main__":
    sys.exit(main())

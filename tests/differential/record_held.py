"""Records Apache Kafka's answers: `python -m tests.differential.record_held`.

Needs Java and Maven. All sessions are played to two new clusters of three brokers. Sessions on
which these differ depend on chance; they are named and left out. Markers are held by stopping
(SIGSTOP) the broker that leads HELD.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

from bench.peers import ApacheKafka
from tests.differential.golden import write
from tests.differential.held_playing import RECORDED, make_topics, play, prepare
from tests.differential.held_sessions import SESSIONS
from tests.differential.normalized import differences
from tests.differential.playing import Transcripts
from tests.differential.record_replicas import process_of
from tests.differential.replica_stage import until_live
from tests.differential.transaction_playing import SETTINGS

BROKERS = 3
HOLDER = 3
"""The broker that leads HELD."""
NEVER_FENCED = {"broker.session.timeout.ms": "600000"}
"""A broker that is stopped stays the leader."""


def record(expected: Transcripts | None = None) -> Transcripts:
    """What a fresh Apache Kafka answers."""
    with ApacheKafka(SETTINGS | NEVER_FENCED, brokers=BROKERS).run() as kafka:
        first = kafka.address.split(",")[0]
        until_live(first, BROKERS)
        make_topics(first, HOLDER)
        prepare(first)
        holder = process_of(kafka.mark, HOLDER)
        os.kill(holder, signal.SIGSTOP)
        release = partial(os.kill, holder, signal.SIGCONT)
        try:
            return play(first, SESSIONS, release, expected)
        finally:
            release()  # so that it can be ended


def main() -> int:
    """Record, compare, write."""
    first = record()
    again = record(first)
    by_chance = {name: differences(one, again[name]) for name, one in first.items()}
    for name, unlike in by_chance.items():
        if unlike:
            print(f"left out, by chance: {name}{unlike[0]}")  # noqa: T201 - its output
    write({name: one for name, one in first.items() if not by_chance[name]}, RECORDED)
    print(f"{RECORDED}: {RECORDED.stat().st_size:,} bytes")  # noqa: T201 - its output
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Records what Apache Kafka answers: `python -m tests.differential.record_transactions`.

Needs Java and Maven. All sessions are played to fresh brokers, twice unless told otherwise; what
these do not agree on depends on chance, is named, and left out.
"""

from __future__ import annotations

import argparse
import sys

from bench.peers import ApacheKafka
from tests.differential.golden import write
from tests.differential.plain import differences
from tests.differential.playing import Transcripts
from tests.differential.transaction_playing import RECORDED, SETTINGS, play
from tests.differential.transaction_sessions import SESSIONS


def record(expected: Transcripts | None = None) -> Transcripts:
    """What a fresh Apache Kafka answers."""
    with ApacheKafka(SETTINGS).run() as kafka:
        return play(kafka.address, SESSIONS, expected)


def main() -> int:
    """Record, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2, help="how often all are played")
    times = parser.parse_args().times
    first = record()
    by_chance: dict[str, list[str]] = {}
    for _ in range(1, times):
        again = record(first)
        for name, transcript in first.items():
            unlike = differences(transcript, again[name])
            if unlike:
                by_chance[name] = unlike
    for name, unlike in sorted(by_chance.items()):
        print(f"left out, by chance: {name}{unlike[0]}")  # noqa: T201 - its output
    kept = {name: one for name, one in first.items() if name not in by_chance}
    write(kept, RECORDED)
    print(f"{len(kept)} of {len(first)} sessions agree")  # noqa: T201 - its output
    return 0


if __name__ == "__main__":
    sys.exit(main())

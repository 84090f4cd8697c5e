"""Records what Apache Kafka answers: `python -m tests.differential.record` (needs Java and Maven).

Every session is played to several fresh brokers. What they do not agree on depends on chance and
cannot be compared: which of several members leads after the leader has left, and how far a refused
join to an empty group has got. Such sessions are left out and named.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack

from bench.peers import ApacheKafka
from tests.differential.golden import RECORDED, write
from tests.differential.normalized import differences
from tests.differential.playing import SETTINGS, Transcripts, all_sessions, play
from tests.differential.session import Session

WARM_UP = 40
"""Sessions that are played to a fresh JVM before it is listened to."""


def record(sessions: list[Session], expected: Transcripts | None = None) -> Transcripts:
    """What a fresh Apache Kafka answers."""
    with ExitStack() as running:
        kafka = running.enter_context(ApacheKafka(SETTINGS).run())
        play(kafka.address, [Session(f"warm-{one.name}", one.play) for one in sessions[:WARM_UP]])
        return play(kafka.address, sessions, expected)


def main() -> int:
    """Record, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="sessions whose names contain this; not written")
    parser.add_argument("--times", type=int, default=3, help="how often all are played")
    chosen = parser.parse_args()
    sessions = [one for one in all_sessions() if chosen.only in one.name]
    first = record(sessions)
    by_chance: dict[str, list[str]] = {}
    for _ in range(1, chosen.times):
        again = record(sessions, first)
        for name, transcript in first.items():
            unlike = differences(transcript, again[name])
            if unlike:
                by_chance[name] = unlike
    for name, unlike in sorted(by_chance.items()):
        print(f"left out, by chance: {name}{unlike[0]}")  # noqa: T201 - its output
    kept = {name: one for name, one in first.items() if name not in by_chance}
    print(f"{len(kept)} of {len(sessions)} sessions agree")  # noqa: T201 - its output
    if not chosen.only:
        write(kept)
        print(f"{RECORDED}: {RECORDED.stat().st_size:,} bytes")  # noqa: T201 - its output
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Records what Apache Kafka answers: `python -m tests.differential.record_transactions`.

Needs Java and Maven. All sessions are played to fresh brokers, twice unless told otherwise; what
these do not agree on depends on chance, is named, and left out. `--only walk-both,late` records
sessions whose names begin so, and leaves the others as they were recorded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.peers import ApacheKafka
from tests.differential import two_phase_sessions
from tests.differential.golden import read, write
from tests.differential.normalized import differences
from tests.differential.playing import Transcripts
from tests.differential.session import Session
from tests.differential.transaction_playing import (
    RECORDED,
    SETTINGS,
    TWO_PHASE_RECORDED,
    TWO_PHASE_SETTINGS,
    UNSTABLE,
    play,
)
from tests.differential.transaction_sessions import SESSIONS


def record(sessions: list[Session], settings: Mapping[str, str], times: int) -> Transcripts:
    """What fresh Apache Kafkas agree on."""
    found: list[Transcripts] = []
    for _ in range(times):
        with ApacheKafka(settings).run() as kafka:
            found.append(play(kafka.address, sessions, found[0] if found else None))
    kept = dict(found[0])
    for again in found[1:]:
        for name, transcript in found[0].items():
            unlike = differences(transcript, again[name])
            if unlike and name in kept:
                del kept[name]
                print(f"left out, by chance: {name}{unlike[0]}")  # noqa: T201 - its output
    return kept


def main() -> int:
    """Record, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2, help="how often all are played")
    parser.add_argument("--only", default="", help="beginnings of names, with commas")
    given = parser.parse_args()
    beginnings = tuple(given.only.split(","))
    both: list[tuple[list[Session], Mapping[str, str], Path]] = [
        (SESSIONS, SETTINGS, RECORDED),
        (two_phase_sessions.SESSIONS, TWO_PHASE_SETTINGS | UNSTABLE, TWO_PHASE_RECORDED),
    ]
    for sessions, settings, path in both:
        chosen = [one for one in sessions if one.name.startswith(beginnings)]
        if chosen:
            found = record(chosen, settings, given.times)
            names = {one.name for one in chosen}
            before = read(path) if path.exists() and given.only else {}
            write({name: one for name, one in before.items() if name not in names} | found, path)
            print(f"{len(found)} of {len(chosen)} sessions agree")  # noqa: T201 - its output
    return 0


if __name__ == "__main__":
    sys.exit(main())

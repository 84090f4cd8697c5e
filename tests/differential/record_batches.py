"""Records what Apache Kafka does with batches: `python -m tests.differential.record_batches`.

Needs Java and Maven. All cases are played to two new brokers, which must agree.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from bench.peers import ApacheKafka
from tests.differential.batch_cases import cases
from tests.differential.batch_stage import RECORDED, play
from tests.differential.golden import write
from tests.differential.normalized import differences
from tests.differential.playing import Transcripts


def record() -> Transcripts:
    """What a fresh Apache Kafka does."""
    with ExitStack() as running:
        return play(running.enter_context(ApacheKafka().run()).address, cases())


def main() -> int:
    """Record, compare, write."""
    first, again = record(), record()
    unlike = differences(first, again)
    for line in unlike:
        print(line)  # noqa: T201 - its output
    if not unlike:
        write(first, RECORDED)
        print(f"{RECORDED}: {RECORDED.stat().st_size:,} bytes")  # noqa: T201 - its output
    return 1 if unlike else 0


if __name__ == "__main__":
    sys.exit(main())

"""Walks of producers that do not wait for a transaction to finish ending.

A request that is refused while markers are in progress is retried, as producers do.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.differential.participants import Outsider
from tests.differential.session import Sessions
from tests.differential.session_stage import Stage
from tests.differential.transactional import Producer

SESSIONS = Sessions()
STEPS = 14


class InHaste(Producer):
    """A producer that sends the next request as soon as it is answered."""

    looks = False


@SESSIONS.of("haste-old-{0}", range(20))
def haste_old(stage: Stage, seed: int) -> None:
    """As clients that know version 1."""
    _walk(stage, random.Random(f"haste old {seed}"), newest=False)


@SESSIONS.of("haste-new-{0}", range(20))
def haste_new(stage: Stage, seed: int) -> None:
    """As clients that know version 2 (KIP-890)."""
    _walk(stage, random.Random(f"haste new {seed}"), newest=True)


def _walk(stage: Stage, chance: random.Random, *, newest: bool) -> None:
    topic = stage.topic("p", 2)
    a = InHaste(stage, "a")
    a.init()
    for _ in range(STEPS):
        choices = _choices(chance, a, topic, newest=newest)
        chance.choices([act for _, act in choices], [weight for weight, _ in choices])[0]()
    a.describe()
    a.ends(topic, 0)
    a.ends(topic, 1)
    Outsider(stage).fetch(None, 7, require_stable=True)


def _choices(
    chance: random.Random, a: Producer, topic: str, *, newest: bool
) -> list[tuple[int, Callable[[], object]]]:
    ends, commits, produces = (5, 5, 12) if newest else (3, 4, 11)
    index, amount = chance.randrange(2), chance.randrange(99)

    def produce() -> None:
        if not newest:
            a.add({topic: [index]})
        a.produce(topic, index, produces)

    def commit_offsets() -> None:
        if not newest:
            a.add_offsets()
        a.commit_offsets({"t2": {amount % 2: amount}}, commits)

    return [
        (1, a.init),
        (1, a.again),
        (6, produce),
        (4, commit_offsets),
        (6, lambda: a.end(ends)),
        (6, lambda: a.end(ends, committed=False)),
    ]

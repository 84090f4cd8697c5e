"""More sessions about transactions: mixed versions, late requests, markers from outside."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

from tests.differential.participants import Outsider
from tests.differential.session import Sessions
from tests.differential.session_stage import Stage
from tests.differential.transactional import Producer

SESSIONS = Sessions()
STEPS = 16
ENDS = tuple(product((0, 2, 4, 5), ("commit", "abort")))


@SESSIONS.of("late-end-{0[0]}-{0[1]}", ENDS)
def late_end(stage: Stage, case: tuple[int, str]) -> None:
    """The end of one transaction comes again while the next is open, and after that."""
    version, committed = case[0], case[1] == "commit"
    topic = stage.topic("p", 1)
    a = Producer(stage, "a")
    a.init()
    a.add({topic: [0]})
    a.produce(topic, 0, 11)
    late = a.like("late")
    a.end(version, committed=committed)
    if version < 5:
        a.add({topic: [0]})
    a.produce(topic, 0, 12 if version == 5 else 11)
    late.end(version, committed=committed)
    a.ends(topic)
    a.end(version, committed=committed)
    late.end(version, committed=committed)
    a.ends(topic)
    a.describe()


@SESSIONS.of("both-versions-{0}", range(4))
def both_versions(stage: Stage, case: int) -> None:
    """One producer changes from the older version to the newer between transactions, and back."""
    topic = stage.topic("p", 2)
    a = Producer(stage, "a")
    a.init()
    for version in [(3, 5, 3), (5, 3, 5), (4, 5, 4), (5, 2, 5)][case]:
        if version < 5:
            a.add({topic: [0, 1]})
        a.produce(topic, 0, 12 if version == 5 else 11)
        a.produce(topic, 1, 12 if version == 5 else 11)
        a.end(version)
        a.ends(topic)
    a.describe()
    a.list()


@SESSIONS.of("markers-late-{0[0]}-{0[1]}", list(product((1, 2), ("commit", "abort"))))
def markers_late(stage: Stage, case: tuple[int, str]) -> None:
    """Markers of older and newer epochs of producer and coordinator, and where nothing is open."""
    version, committed = case[0], case[1] == "commit"
    topic = stage.topic("p", 2)
    a = Producer(stage, "a")
    a.init()
    a.add({topic: [0]})
    a.produce(topic, 0, 11)
    a.mark({topic: [0, 1]}, version, coordinator_epoch=5, transaction_result=committed)
    a.ends(topic)
    a.mark({topic: [0]}, version, coordinator_epoch=4, transaction_result=committed)
    a.mark({topic: [0]}, version, coordinator_epoch=5, transaction_result=committed)
    a.mark({topic: [0]}, version, coordinator_epoch=6, producer_epoch=a.epoch + 1)
    a.mark({topic: [0]}, version, coordinator_epoch=6, producer_epoch=a.epoch)
    a.mark({topic: [0, 7]}, version, coordinator_epoch=7)
    a.ends(topic)


@SESSIONS.of("walk-both-{0}", range(24))
def walk_both(stage: Stage, seed: int) -> None:
    """Two producers with one transactional id, as clients of either version, request by request."""
    chance = random.Random(f"both {seed}")
    topic = stage.topic("p", 1)
    producers = [Producer(stage, "a"), Producer(stage, "b")]
    producers[0].init()
    for _ in range(STEPS):
        one, other = chance.sample(producers, 2)
        choices = _choices(stage, chance, one, other, topic)
        chance.choices([act for _, act in choices], [weight for weight, _ in choices])[0]()
    producers[0].describe()
    producers[0].ends(topic)
    Outsider(stage).fetch(None, 7, require_stable=True)


def _choices(
    stage: Stage, chance: random.Random, one: Producer, other: Producer, topic: str
) -> list[tuple[int, Callable[[], object]]]:
    """What a producer may do now; each request in a version of its own."""
    ends, commits = chance.choice([2, 3, 4, 5]), chance.choice([2, 3, 4, 5])
    amount = chance.randrange(99)
    return [
        (2, one.init),
        (2, lambda: one.init(chance.choice([1, 3, 4]))),
        (2, one.again),
        (6, lambda: one.add({topic: [0]}, chance.choice([1, 2, 3]))),
        (2, lambda: one.verify({topic: [0]}, only=chance.random() < 0.5)),
        (3, one.add_offsets),
        (4, lambda: one.commit_offsets({"t2": {amount % 2: amount}}, commits)),
        (7, lambda: one.end(ends)),
        (4, lambda: one.end(ends, committed=False)),
        (2, lambda: other.like(one.name + "-late").end(ends)),
        (2, one.describe),
        (1, lambda: one.ends(topic)),
    ]

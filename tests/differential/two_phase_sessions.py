"""Sessions about two-phase commit (KIP-939), for brokers that have it enabled.

Apache Kafka 4.3.1 permits transactions without a timeout, but does not keep prepared ones yet, so
only one kind of session asks to keep them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

from tests.differential.participants import Outsider
from tests.differential.session import Sessions
from tests.differential.session_stage import Stage
from tests.differential.transactional import Producer

SESSIONS = Sessions()
STEPS = 14
FLAGS = tuple(product((False, True), (False, True)))
VERSION = 6


def begin(one: Producer, *, two_phase: bool = True, keep: bool = False, **other: Any) -> Any:
    """InitProducerId 6."""
    return one.init(VERSION, enable_2pc=two_phase, keep_prepared_txn=keep, **other)


@SESSIONS.of("two-phase-init-{0[0]}-{0[1]}", [(int(a), int(b)) for a, b in FLAGS])
def init(stage: Stage, case: tuple[int, int]) -> None:
    """All flags with nothing open, with all kinds of timeouts."""
    two_phase, keep = map(bool, case)
    a = Producer(stage, "a")
    for timeout_ms in (60_000, 0, -1, 2**31 - 1):
        begin(a, two_phase=two_phase, keep=keep, transaction_timeout_ms=timeout_ms)
    begin(a, two_phase=two_phase, keep=keep, transactional_id="")
    begin(a, two_phase=two_phase, keep=keep, producer_id=a.producer_id, producer_epoch=a.epoch)
    a.describe()


@SESSIONS.of("two-phase-{0[0]}-{0[1]}", list(product((3, 4, 5), ("commit", "abort"))))
def ended(stage: Stage, case: tuple[int, str]) -> None:
    """A transaction without a timeout is ended by its own producer."""
    version, committed = case[0], case[1] == "commit"
    topic = stage.topic("p", 2)
    a = Producer(stage, "a")
    begin(a, transaction_timeout_ms=1)
    if version < 5:
        a.add({topic: [0, 1]})
    a.produce(topic, 0, 12 if version == 5 else 11)
    a.produce(topic, 1, 12 if version == 5 else 11)
    a.describe()
    a.list()
    a.end(version, committed=committed)
    a.ends(topic)
    a.ends(topic, 1)
    begin(a, two_phase=False)
    a.describe()


@SESSIONS.of("two-phase-not-kept")
def not_kept(stage: Stage) -> None:
    """The next producer does not ask to keep it: it is aborted."""
    topic = stage.topic("p", 1)
    a, b = Producer(stage, "a"), Producer(stage, "b")
    begin(a)
    a.produce(topic, 0)
    begin(b)
    b.describe()
    b.ends(topic)
    a.end()
    b.produce(topic, 0)
    b.end()
    b.ends(topic)


@SESSIONS.of("two-phase-one-phase")
def one_phase(stage: Stage) -> None:
    """A producer of one phase comes after one of two, and the other way round."""
    topic = stage.topic("p", 1)
    a, b = Producer(stage, "a"), Producer(stage, "b")
    begin(a)
    a.produce(topic, 0)
    b.init(5)
    b.describe()
    b.produce(topic, 0)
    begin(a)
    a.describe()
    a.produce(topic, 0)
    a.end()
    a.ends(topic)


@SESSIONS.of("two-phase-walk-{0}", range(12))
def walk(stage: Stage, seed: int) -> None:
    """Two producers with one transactional id, in one phase and in two."""
    chance = random.Random(f"two-phase {seed}")
    topic = stage.topic("p", 1)
    producers = [Producer(stage, "a"), Producer(stage, "b")]
    begin(producers[0])
    for _ in range(STEPS):
        choices = _choices(chance, chance.choice(producers), topic)
        chance.choices([act for _, act in choices], [weight for weight, _ in choices])[0]()
    producers[0].describe()
    producers[0].ends(topic)
    Outsider(stage).fetch(None, 7, require_stable=True)


def _choices(
    chance: random.Random, one: Producer, topic: str
) -> list[tuple[int, Callable[[], object]]]:
    """What a producer may do now."""
    amount = chance.randrange(99)
    return [
        (4, lambda: begin(one)),
        (2, lambda: begin(one, two_phase=False)),
        (1, lambda: begin(one, producer_id=one.producer_id, producer_epoch=one.epoch)),
        (1, one.again),
        (6, lambda: one.verify({topic: [0]}, only=False)),
        (3, lambda: one.commit_offsets({"t2": {amount % 2: amount}})),
        (6, one.end),
        (3, lambda: one.end(committed=False)),
        (2, one.describe),
        (1, lambda: one.ends(topic)),
    ]

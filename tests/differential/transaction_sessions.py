"""Sessions about transactions: single requests, whole transactions, and random walks."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.differential import hasty_sessions, mixed_transactions, table_sessions
from tests.differential.participants import Outsider
from tests.differential.session import Sessions
from tests.differential.session_stage import Stage
from tests.differential.transactional import Producer

SESSIONS = Sessions()
MAX_MS = 900_000
"""transaction.max.timeout.ms"""
NOBODY = 987_654_321
"""A producer id that no broker has given out."""
STEPS = 14
ENDS = [(version, how) for version in range(6) for how in ("commit", "abort")]


# ---- identities ------------------------------------------------------------------------------


@SESSIONS.of("init-{0}", range(6))
def init(stage: Stage, version: int) -> None:
    """Each start raises the epoch."""
    a = Producer(stage, "a")
    a.describe()
    for _ in range(3):
        a.init(version)
    a.init(version, transaction_timeout_ms=1_234)
    a.describe()
    a.list()


@SESSIONS.of("init-refused-{0}", range(6))
def init_refused(stage: Stage, version: int) -> None:
    a = Producer(stage, "a")
    for timeout_ms in (0, -1, MAX_MS + 1, MAX_MS):
        a.init(version, transaction_timeout_ms=timeout_ms)
    a.init(version, transactional_id="")
    a.init(version)
    if version >= 3:
        known = a.producer_id
        a.init(version, producer_id=known, producer_epoch=-1)
        a.init(version, producer_id=-1, producer_epoch=0)
        a.init(version, producer_id=NOBODY, producer_epoch=0)
        a.init(version, producer_id=known, producer_epoch=9)
        a.init(version, producer_id=known, producer_epoch=0)
    a.describe()


@SESSIONS.of("init-held-{0}", range(3, 6))
def init_held(stage: Stage, version: int) -> None:
    """A producer that goes on with its identity; a repeat gets the same."""
    a = Producer(stage, "a")
    a.init(version)
    first = a.like("b")
    a.again(version)
    a.again(version)
    first.again(version)
    a.again(version)
    a.describe()


@SESSIONS.of("init-ends-{0}", range(6))
def init_ends(stage: Stage, version: int) -> None:
    """What a predecessor left is aborted, and the predecessor fenced."""
    a, b = Producer(stage, "a"), Producer(stage, "b")
    a.init()
    a.add({"t2": [0, 1]})
    a.describe()
    b.init(version)
    b.describe()
    a.add({"t2": [0]})
    a.add_offsets()
    a.end(version, committed=True)
    b.add({"t2": [1]})
    b.end(3)
    b.describe()


# ---- partitions and offsets ------------------------------------------------------------------


@SESSIONS.of("add-{0}", range(4))
def add(stage: Stage, version: int) -> None:
    a = Producer(stage, "a")
    a.add({"t2": [0]}, version)
    a.init()
    a.add({"t2": [0]}, version, v3_and_below_transactional_id="")
    a.add({"t2": [0], "none": [0], "t1": [5]}, version)
    a.add({}, version)
    a.add({"t2": [0]}, version, v3_and_below_producer_id=NOBODY)
    a.add({"t2": [0]}, version, v3_and_below_producer_epoch=a.epoch + 1)
    a.describe()
    a.add({"t2": [1], "t3": [2, 0]}, version)
    a.add({"t2": [1, 0]}, version)
    a.describe()
    a.list()
    a.init()
    a.add({"t2": [0]}, version, v3_and_below_producer_epoch=0)
    a.describe()


@SESSIONS.of("add-by-brokers-{0}", [4, 5])
def add_by_brokers(stage: Stage, version: int) -> None:
    a = Producer(stage, "a")
    a.verify({"t2": [0]}, version)
    a.init()
    a.verify({"t2": [0]}, version)
    a.verify({"t2": [0]}, version, only=False)
    a.verify({"t2": [0, 1]}, version)
    a.verify({"none": [0], "t2": [1]}, version)
    a.verify({"t2": [0]}, version, producer_id=NOBODY)
    a.verify({"t2": [0]}, version, producer_epoch=a.epoch + 3)
    a.verify({"t2": [0]}, version, transactional_id="")
    a.describe()
    a.end()
    a.verify({"t2": [0]}, version)
    a.describe()


@SESSIONS.of("add-offsets-{0}", range(5))
def add_offsets(stage: Stage, version: int) -> None:
    a = Producer(stage, "a")
    a.add_offsets(version)
    a.init()
    a.add_offsets(version, transactional_id="")
    a.add_offsets(version, producer_id=NOBODY)
    a.add_offsets(version, producer_epoch=a.epoch + 1)
    a.add_offsets(version)
    a.describe()
    a.end(3, committed=False)
    a.describe()


@SESSIONS.of("offsets-{0}", range(6))
def offsets(stage: Stage, version: int) -> None:
    """Pending until the end; the rest of the group sees the old ones."""
    a, asks = Producer(stage, "a"), Outsider(stage)
    a.init()
    asks.commit({"t2": {0: 1}})
    if version < 5:
        a.add_offsets()
    a.commit_offsets({"t2": {0: 10, 1: 11}, "t3": {2: 12}}, version)
    asks.fetch(None)
    asks.fetch(None, 7, require_stable=True)
    a.end(5 if version == 5 else 3)
    a.describe()
    asks.fetch(None, 7, require_stable=True)
    if version < 5:
        a.add_offsets()
    a.commit_offsets({"t2": {0: 20}}, version)
    a.end(5 if version == 5 else 3, committed=False)
    a.describe()
    asks.fetch(None, 7, require_stable=True)


@SESSIONS.of("offsets-refused-{0}", range(6))
def offsets_refused(stage: Stage, version: int) -> None:
    a = Producer(stage, "a")
    a.commit_offsets({"t2": {0: 1}}, version)
    a.init()
    if version >= 3:
        a.commit_offsets({"t2": {0: 1}}, version, member_id="nobody", generation_id=3)
    a.add_offsets()
    a.commit_offsets({"none": {0: 1}, "t2": {0: 1, 7: 2}}, version)
    a.commit_offsets({"t2": {0: 1}}, version, producer_epoch=a.epoch + 1)
    a.commit_offsets({"t2": {0: 1}}, version, producer_id=NOBODY)
    a.commit_offsets({"t2": {0: 1}}, version, transactional_id="")
    a.commit_offsets({}, version)
    a.end(3)
    a.describe()


# ---- ends ------------------------------------------------------------------------------------


@SESSIONS.of("end-{0[0]}-{0[1]}", ENDS)
def end(stage: Stage, case: tuple[int, str]) -> None:
    version, committed = case[0], case[1] == "commit"
    a = Producer(stage, "a")
    a.end(version, committed=committed)
    a.init()
    a.end(version, committed=committed, transactional_id="")
    a.end(version, committed=committed, producer_id=NOBODY)
    a.end(version, committed=committed, producer_epoch=a.epoch + 1)
    a.add({"t2": [0, 1], "t3": [1]})
    before = a.like("b")
    a.end(version, committed=committed)
    a.describe()
    before.end(version, committed=committed)
    before.end(version, committed=not committed)
    a.add({"t2": [0]})
    a.end(version, committed=not committed)
    a.describe()
    a.list()


@SESSIONS.of("end-nothing-{0[0]}-{0[1]}", ENDS)
def end_nothing(stage: Stage, case: tuple[int, str]) -> None:
    version, committed = case[0], case[1] == "commit"
    a = Producer(stage, "a")
    a.init()
    a.end(version, committed=committed)
    a.describe()
    a.end(version, committed=committed)
    a.describe()


# ---- writing ---------------------------------------------------------------------------------


@SESSIONS.of("produce-{0}", [3, 7, 9, 11, 12, 13])
def produce(stage: Stage, version: int) -> None:
    """Offsets, last stable offsets, and what is refused."""
    topic = stage.topic("p", 2)
    a = Producer(stage, "a")
    a.init()
    a.produce(topic, 0, version)
    if version < 12:
        a.add({topic: [0]})
    a.produce(topic, 0, version)
    a.produce(topic, 0, version)
    a.ends(topic)
    a.produce(topic, 1, version)
    before = a.like("b")
    a.end(5 if version >= 12 else 3)
    a.describe()
    a.ends(topic)
    before.produce(topic, 0, version, base_sequence=2)
    if version < 12:
        a.add({topic: [0]})
    a.produce(topic, 0, version)
    a.end(5 if version >= 12 else 3, committed=False)
    a.describe()
    a.ends(topic)


@SESSIONS.of("produce-fenced-{0}", [7, 11, 12, 13])
def produce_fenced(stage: Stage, version: int) -> None:
    """A zombie writes on, without having been told."""
    topic = stage.topic("p", 1)
    a, b = Producer(stage, "a"), Producer(stage, "b")
    a.init()
    a.add({topic: [0]})
    a.produce(topic, 0, version)
    b.init()
    b.describe()
    a.produce(topic, 0, version)
    a.end(5)
    a.ends(topic)
    b.produce(topic, 0, version, producer_epoch=b.epoch + 1)
    b.ends(topic)


@SESSIONS.of("markers-{0}", [1, 2])
def markers(stage: Stage, version: int) -> None:
    """A hanging transaction is ended from outside."""
    topic = stage.topic("p", 1)
    a = Producer(stage, "a")
    a.init()
    a.add({topic: [0]})
    a.produce(topic, 0, 11)
    a.ends(topic)
    a.mark({topic: [0, 4], "none": [0]}, version)
    a.ends(topic)
    a.describe()


# ---- looking ---------------------------------------------------------------------------------


@SESSIONS.of("describe-odd")
def describe_odd(stage: Stage) -> None:
    a = Producer(stage, "a")
    a.init()
    a.describe("", f"{stage.session}.unknown", f"{stage.session}.x")


@SESSIONS.of("list-{0}", range(3))
def list_filters(stage: Stage, version: int) -> None:
    a, b = Producer(stage, "a"), Producer(stage, "b", "y")
    a.init()
    b.init()
    b.add({"t1": [0]})
    a.list(version)
    a.list(version, state_filters=["Ongoing"])
    a.list(version, state_filters=["Empty", "Odd", "ongoing"])
    a.list(version, producer_id_filters=[b.producer_id, NOBODY])
    if version >= 1:
        a.list(version, duration_filter=MAX_MS)
        a.list(version, duration_filter=0, state_filters=["Ongoing"])
    if version >= 2:
        a.list(version, transactional_id_pattern=f"{stage.session}.y")
        a.list(version, transactional_id_pattern=f"{stage.session}.*")
        a.list(version, transactional_id_pattern="y")
        a.list(version, transactional_id_pattern="(")
        a.list(version, transactional_id_pattern="")


# ---- walks -----------------------------------------------------------------------------------


@SESSIONS.of("walk-old-{0}", range(60))
def walk_old(stage: Stage, seed: int) -> None:
    """Two producers with one transactional id, as clients that know version 1."""
    _walk(stage, random.Random(f"old {seed}"), newest=False)


@SESSIONS.of("walk-new-{0}", range(60))
def walk_new(stage: Stage, seed: int) -> None:
    """The same as clients that know version 2 (KIP-890)."""
    _walk(stage, random.Random(f"new {seed}"), newest=True)


def _walk(stage: Stage, chance: random.Random, *, newest: bool) -> None:
    producers = [Producer(stage, "a"), Producer(stage, "b")]
    producers[0].init()
    for _ in range(STEPS):
        one, other = chance.sample(producers, 2)
        choices = _choices(stage, chance, one, other, newest=newest)
        chance.choices([act for _, act in choices], [weight for weight, _ in choices])[0]()
    producers[0].describe()
    Outsider(stage).fetch(None, 7, require_stable=True)


def _choices(
    stage: Stage, chance: random.Random, one: Producer, other: Producer, *, newest: bool
) -> list[tuple[int, Callable[[], object]]]:
    """What a producer may do now, rightly or with an identity that is not its own."""
    places = {chance.choice(["t1", "t2", "t3"]): [0]}
    ends = 5 if newest else chance.choice([1, 2, 3, 4])
    commits = 5 if newest else chance.choice([2, 3, 4])
    wrong = one.epoch + chance.choice([-1, 1])
    amount = chance.randrange(99)
    return [
        (2, one.init),
        (2, lambda: one.init(chance.choice([1, 3, 4, 5]))),
        (2, one.again),
        (6, lambda: one.add(places, chance.choice([1, 2, 3]))),
        (2, lambda: one.add(places, v3_and_below_producer_epoch=wrong)),
        (2, lambda: one.verify(places, only=not newest)),
        (4, one.add_offsets),
        (5, lambda: one.commit_offsets({"t2": {amount % 2: amount}}, commits)),
        (7, lambda: one.end(ends)),
        (4, lambda: one.end(ends, committed=False)),
        (1, lambda: one.end(ends, producer_epoch=wrong)),
        (1, lambda: one.end(ends, producer_id=other.producer_id)),
        (2, one.describe),
        (1, one.list),
        (1, lambda: Outsider(stage).fetch(None, 7, require_stable=True)),
    ]


SESSIONS.extend(mixed_transactions.SESSIONS)
SESSIONS.extend(table_sessions.SESSIONS)
SESSIONS.extend(hasty_sessions.SESSIONS)

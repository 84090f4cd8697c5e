"""Sessions about transactions whose markers are held for as long as the session wants.

Each uses a partition of the topic HELD, whose leader takes no markers during the first act. The
first act ends where its script yields. In the second act the leader takes the markers, and the
script continues.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from tests.differential.session_stage import Stage
from tests.differential.transactional import Producer

HELD = "held"
NOBODY = 987_654_321
"""A producer id that no broker has given out."""
AWAY = (-1, 0, 1, 2, 3)
"""Epochs of whoever asks, counted from the one that the transaction was written under."""
WALKS = 40
STEPS = 10
Acts = Iterator[None]


@dataclass(frozen=True, slots=True)
class HeldSession:
    """A name, and a script with two acts."""

    name: str
    play: Callable[[Stage], Acts]


class Hasty(Producer):
    """A producer that takes every answer as final."""

    waits = False

    def other(self, name: str) -> Hasty:
        """Another connection with the identity that this one has now."""
        other = Hasty(self.stage, name)
        other.id = self.id
        other.become(self.producer_id, self.epoch)
        return other

    def patient(self) -> Producer:
        """The same producer, which waits from now on."""
        other = Producer(self.stage, self.name)
        other.id = self.id
        other.become(self.producer_id, self.epoch)
        return other


# ---- the table -------------------------------------------------------------------------------

DECIDED = {
    "commit-3": lambda one: one.end(3),
    "abort-3": lambda one: one.end(3, committed=False),
    "commit-5": lambda one: one.end(5),
    "abort-5": lambda one: one.end(5, committed=False),
    "fence": lambda one: one.init(),
}
"""What has decided the transaction whose markers are on their way."""


def _table(stage: Stage, decided: str, away: int | None) -> Acts:
    """Every request by one identity; `away` None: by a producer id that is another's."""
    a = Hasty(stage, "a")
    a.init(4)
    a.init(4)
    a.add({HELD: [0]})
    other = a.other("b")
    DECIDED[decided](other)
    if away is None:
        a.become(NOBODY, a.epoch)
    else:
        a.become(a.producer_id, a.epoch + away)
    _ask_all(a)
    a.describe()
    a.list(state_filters=["PrepareCommit", "PrepareAbort"])
    yield
    a.patient().describe()
    a.end(5, committed=False)
    a.patient().describe()


def _ask_all(a: Hasty) -> None:
    """Each request by itself; none of them changes anything."""
    me = {"producer_id": a.producer_id, "producer_epoch": a.epoch}
    for version in (0, 3, 5):
        _keeping(a, lambda version=version: a.init(version))  # type: ignore[misc]  # bound now
    for version in (3, 5):
        _keeping(a, lambda version=version: a.init(version, **me))  # type: ignore[misc]  # bound now
    for version in (1, 3):
        a.add({"t2": [0]}, version)
        a.add({HELD: [0]}, version)
    a.add_offsets(1)
    a.add_offsets(4)
    a.verify({"t2": [0]})
    a.verify({HELD: [0]})
    for version, committed in product((1, 3, 5), (True, False)):
        _keeping(a, lambda v=version, c=committed: a.end(v, committed=c))  # type: ignore[misc]  # bound now
    for version in (4, 5):
        a.commit_offsets({"t2": {0: 1}}, version)
    for version in (11, 12):
        a.produce("t2", 0, version)


def _keeping(a: Hasty, ask: Callable[[], object]) -> None:
    """Ask, and go on as who it was."""
    before = a.producer_id, a.epoch
    ask()
    a.become(*before)


# ---- walks -----------------------------------------------------------------------------------


def _walk(stage: Stage, seed: int) -> Acts:
    """Two producers with one transactional id that do not wait; then they go on."""
    chance = random.Random(f"held {seed}")
    newest = seed % 2 == 0
    a = Hasty(stage, "a")
    a.init(4)
    a.init(4)
    a.add({HELD: [0], "t2": [0]})
    a.end(5 if newest else 3, committed=chance.random() < 0.5)
    pair = [a, a.other("b")]
    for _ in range(STEPS):
        one = chance.choice(pair)
        chance.choice(_choices(chance, one, newest=newest))()
    a.describe()
    yield
    for one in pair:
        one.patient().describe()
    _second_act(chance, [one.patient() for one in pair], newest=newest)


def _choices(chance: random.Random, one: Hasty, *, newest: bool) -> list[Callable[[], object]]:
    ends = chance.choice([1, 3, 4, 5]) if chance.random() < 0.3 else 5 if newest else 3
    return [
        one.init,
        lambda: one.init(
            chance.choice([3, 4, 5]), producer_id=one.producer_id, producer_epoch=one.epoch
        ),
        lambda: one.add({chance.choice([HELD, "t2", "t3"]): [0]}),
        one.add_offsets,
        lambda: one.verify({"t2": [0]}),
        lambda: one.verify({"t2": [0]}, only=False),
        lambda: one.commit_offsets({"t2": {0: 3}}, 5 if newest else 4),
        lambda: one.produce("t2", 0, 12 if newest else 11),
        lambda: one.end(ends),
        lambda: one.end(ends, committed=False),
        lambda: one.end(ends, committed=False, producer_epoch=one.epoch - 1),
        lambda: one.end(ends, producer_epoch=one.epoch + 1),
    ]


def _second_act(chance: random.Random, pair: list[Producer], *, newest: bool) -> None:
    ends, commits = (5, 5) if newest else (3, 4)
    for _ in range(4):
        one = chance.choice(pair)
        choices: list[Callable[[], object]] = [
            lambda: one.add({"t3": [0]}),  # noqa: B023 - used at once
            one.add_offsets,
            lambda: one.commit_offsets({"t2": {0: 7}}, commits),  # noqa: B023 - used at once
            lambda: one.end(ends),  # noqa: B023 - used at once
            lambda: one.end(ends, committed=False),  # noqa: B023 - used at once
            one.init,
        ]
        chance.choice(choices)()
    pair[0].describe()


SESSIONS = [
    *(
        HeldSession(
            f"held-{decided}-{'stranger' if away is None else away}",
            lambda stage, decided=decided, away=away: _table(stage, decided, away),  # type: ignore[misc]  # bound now
        )
        for decided, away in product(DECIDED, (*AWAY, None))
    ),
    *(
        HeldSession(f"held-walk-{seed}", lambda stage, seed=seed: _walk(stage, seed))  # type: ignore[misc]  # bound now
        for seed in range(WALKS)
    ),
]

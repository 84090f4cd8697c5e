"""Each request, with any epoch, in each state in which no markers are in progress.

`held_sessions` has the states in which markers are in progress.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from tests.differential.session import Sessions
from tests.differential.session_stage import Stage
from tests.differential.transactional import Producer

SESSIONS = Sessions()
NOBODY = 987_654_321
"""A producer id that no broker has given out."""
AWAY = ("-2", "-1", "0", "1", "stranger")
"""Epochs of whoever asks, counted from the current one."""
Act = Callable[[Producer], object]


def _opened(version: int) -> Act:
    def act(one: Producer) -> None:
        if version < 5:
            one.add({"t2": [0]})
        else:
            one.verify({"t2": [0]}, only=False)

    return act


def _ended(version: int, *, committed: bool) -> Act:
    def act(one: Producer) -> None:
        _opened(version)(one)
        one.end(version, committed=committed)

    return act


def _fenced(one: Producer) -> None:
    """By another, which does not go on."""
    one.add({"t2": [0]})
    other = one.like("other")
    other.waits = False
    while one.describe().transaction_states[0].transaction_state == "Ongoing":
        other.init()
    one.become(one.producer_id, one.epoch + 1)


STATES: dict[str, Act] = {
    "empty": lambda one: None,
    "empty-again": lambda one: one.again(),
    "ongoing-1": _opened(3),
    "ongoing-2": _opened(5),
    "committed-1": _ended(3, committed=True),
    "aborted-1": _ended(3, committed=False),
    "committed-2": _ended(5, committed=True),
    "aborted-2": _ended(5, committed=False),
    "aborted-nothing": lambda one: one.end(5, committed=False),
    "fenced": _fenced,
}
"""What a producer does before it is asked."""
REQUESTS: tuple[Act, ...] = (
    lambda one: one.again(3),
    lambda one: one.again(5),
    lambda one: one.init(),
    lambda one: one.add({"t2": [0]}, 1),
    lambda one: one.add({"t2": [1]}),
    lambda one: one.add_offsets(),
    lambda one: one.verify({"t2": [0]}),
    lambda one: one.verify({"t2": [0]}, only=False),
    lambda one: one.commit_offsets({"t2": {0: 1}}, 4),
    lambda one: one.commit_offsets({"t2": {0: 1}}, 5),
    lambda one: one.produce(f"{one.stage.session}.p", 0, 11),
    lambda one: one.produce(f"{one.stage.session}.p", 1, 12),
    *(
        lambda one, version=version, committed=committed: one.end(version, committed=committed)
        for version, committed in product((1, 3, 5), (True, False))
    ),
)


@SESSIONS.of("table-{0[0]}-{0[1]}", list(product(STATES, AWAY)))
def table(stage: Stage, case: tuple[str, str]) -> None:
    """Only the last request and what it leads to are noted, each for a transactional id."""
    state, away = case
    stage.topic("p", 2)
    for number, ask in enumerate(REQUESTS):
        noted = len(stage.transcript)
        one = Producer(stage, "a", f"x{number}")
        one.init()
        one.init()
        STATES[state](one)
        one.describe()
        del stage.transcript[noted:]
        if away == "stranger":
            one.become(NOBODY, one.epoch)
        else:
            one.become(one.producer_id, one.epoch + int(away))
        one.waits = False
        ask(one)
        one.waits = True
        one.describe()

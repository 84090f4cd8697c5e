"""Operations that are open when a user stops: some have failed, some were just interrupted."""

from __future__ import annotations

import pytest

from raylog.loadtest.lasting import UNFINISHED, Lasting
from raylog.loadtest.local import Local
from raylog.loadtest.results import Operation
from raylog.loadtest.scenario import Scenario

S_US = 1_000_000


class Clock:
    """Stands where the test says."""

    offset_us = 0

    def __init__(self) -> None:
        self.us = 0

    def now_us(self) -> int:
        return self.us


def local_of(monkeypatch: pytest.MonkeyPatch) -> tuple[Local, Clock]:
    clock = Clock()
    monkeypatch.setattr("raylog.loadtest.local.Clock", lambda: clock)
    scenario = Scenario.model_validate(
        {
            "name": "s",
            "question": "?",
            "duration_s": 100,
            "topics": {"t": {}},
            "users": [{"kind": "group", "topic": "t", "group": "g"}],
        }
    )
    return Local(scenario, "run", "127.0.0.1:9092"), clock


def figures(taken: list[Operation]) -> tuple[int, dict[int, tuple[int, int]]]:
    (one,) = taken
    return one.intended, {each.second: (each.requests, each.failures) for each in one.intervals}


def test_what_is_done_counts_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    local, _ = local_of(monkeypatch)
    join = Lasting(local, "join")
    join.begin(3 * S_US)
    join.done(5 * S_US)
    join.done(6 * S_US)
    join.leave(is_over=True)
    assert figures(local.recorder.take()) == (1, {3: (1, 0)})


@pytest.mark.parametrize(
    ("longest_s", "open_s", "has_failed"),
    [(0, 10, False), (0, 11, True), (20, 39, False), (20, 41, True)],
)
def test_what_is_open_for_unusually_long_has_failed(
    monkeypatch: pytest.MonkeyPatch, longest_s: int, open_s: int, has_failed: bool
) -> None:
    local, clock = local_of(monkeypatch)
    if longest_s:
        other = Lasting(local, "catch-up")
        other.begin(0)
        other.done(longest_s * S_US)
        local.recorder.take()
    own = Lasting(local, "catch-up")
    own.begin(2 * S_US)
    clock.us = (2 + open_s) * S_US
    own.leave()
    own.leave()
    taken = local.recorder.take()
    assert bool(taken) is has_failed
    if has_failed:
        assert figures(taken) == (1, {2: (0, 1)})
        assert taken[0].errors == {UNFINISHED: 1}


def test_what_was_given_up_has_failed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    local, clock = local_of(monkeypatch)
    join = Lasting(local, "join")
    join.begin(0)
    clock.us = 1
    join.leave(is_over=True)
    assert figures(local.recorder.take()) == (1, {0: (0, 1)})

"""Operations that are open when a user stops: some have failed, others were interrupted."""

from __future__ import annotations

import pytest

from raylog.loadtest.local import Local
from raylog.loadtest.long_operations import UNFINISHED, LongOperation
from raylog.loadtest.results import Operation
from raylog.loadtest.scenario import Scenario

S_US = 1_000_000


class Clock:
    """A clock that the test sets."""

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


def figures(taken: list[Operation]) -> dict[int, tuple[int, int]]:
    (one,) = taken
    return {each.second: (each.requests, each.failures) for each in one.intervals}


def test_operation_duration_counts_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    local, _ = local_of(monkeypatch)
    join = LongOperation(local, "join")
    join.begin(3 * S_US)
    join.done(5 * S_US)
    join.done(6 * S_US)
    join.leave(is_over=True)
    assert figures(local.recorder.take()) == {3: (1, 0)}


@pytest.mark.parametrize(
    ("longest_s", "open_s", "has_failed"),
    [(0, 10, False), (0, 11, True), (20, 39, False), (20, 41, True)],
)
def test_operation_open_for_unusually_long_has_failed(
    monkeypatch: pytest.MonkeyPatch, longest_s: int, open_s: int, has_failed: bool
) -> None:
    local, clock = local_of(monkeypatch)
    if longest_s:
        other = LongOperation(local, "catch-up")
        other.begin(0)
        other.done(longest_s * S_US)
        local.recorder.take()
    own = LongOperation(local, "catch-up")
    own.begin(2 * S_US)
    clock.us = (2 + open_s) * S_US
    own.leave()
    own.leave()
    taken = local.recorder.take()
    assert bool(taken) is has_failed
    if has_failed:
        assert figures(taken) == {2: (0, 1)}
        assert taken[0].errors == {UNFINISHED: 1}


def test_abandoned_operation_has_failed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    local, clock = local_of(monkeypatch)
    join = LongOperation(local, "join")
    join.begin(0)
    clock.us = 1
    join.leave(is_over=True)
    assert figures(local.recorder.take()) == {0: (0, 1)}

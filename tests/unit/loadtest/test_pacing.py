"""Requests are scheduled by the rate alone, evenly, and none is dropped."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raylog.loadtest.pacing import Load, Pace

START_US = 10_000_000
S_US = 1_000_000


def load(*pieces: tuple[float, float]) -> Load:
    """Each is s from the start and the factor from then on."""
    found = Load()
    for at_s, factor in pieces or [(0, 1.0)]:
        found.change(START_US + round(at_s * S_US), factor)
    return found


def at(seconds: float) -> int:
    return START_US + round(seconds * S_US)


def test_requests_are_spread_evenly() -> None:
    pace = Pace(1_000, load())
    due = pace.due(START_US + 5_000, 100)
    assert due == [START_US + number * 1_000 for number in range(1, 6)]
    assert pace.due(START_US + 5_000, 100) == []


def test_rounds_that_are_short_lose_nothing() -> None:
    pace = Pace(300, load(), phase=0.4)
    due: list[int] = []
    for now_us in range(START_US, START_US + 2_000_001, 700):
        due += pace.due(now_us, 100)
    assert len(due) == pytest.approx(600, abs=1)
    gaps = {later - sooner for sooner, later in pairwise(due)}
    assert gaps <= set(range(3_330, 3_337))


def test_a_stall_keeps_the_intended_times() -> None:
    pace = Pace(100, load())
    first = pace.due(at(1), 40)
    rest = pace.due(at(1), 1_000)
    assert (len(first), len(rest)) == (40, 60)
    assert rest[0] - first[-1] == 10_000
    assert rest[-1] == at(1)


def test_the_factor_changes_the_rate_and_zero_pauses() -> None:
    changes = load((0, 2.0), (1, 0.0), (9, 0.5))
    pace = Pace(100, changes)
    assert len(pace.due(at(1), 1_000)) == 200
    assert pace.due(at(9), 1_000) == []
    assert len(pace.due(at(10), 1_000)) == 50
    changes.change(at(10), 0.0)
    assert pace.next_us() is None


@pytest.mark.parametrize(("first", "then"), [(5.0, 1.0), (1.0, 5.0), (1.0, 0.0)])
def test_requests_due_during_a_stall_use_the_factor_of_their_time(
    first: float, then: float
) -> None:
    due = Pace(1_000, load((0, first), (5, then))).due(at(6), 10**6)
    before = [one for one in due if one <= at(5)]
    assert (len(before), len(due) - len(before)) == (5_000 * first, 1_000 * then)


def test_a_stall_over_several_changes_is_handed_out_in_parts() -> None:
    shape = load((0, 1.0), (1, 3.0), (2, 0.0), (3, 2.0))
    whole = Pace(100, shape).due(at(4), 1_000)
    pace, parts = Pace(100, shape), list[int]()
    while part := pace.due(at(4), 70):
        assert len(part) <= 70
        parts += part
    assert len(whole) == 600
    assert parts == pytest.approx(whole, abs=10)


def test_nothing_is_due_before_the_start() -> None:
    """Users are there before they know when the run begins."""
    changes = Load()
    pace = Pace(1_000, changes)
    assert pace.due(START_US - 450_000, 10) == []
    assert pace.next_us() is None
    changes.change(START_US, 1.0)
    assert pace.due(START_US - 1, 10) == []
    assert pace.next_us() == START_US + 1_001
    due = pace.due(START_US + 50_000, 1_000)
    assert (min(due), len(due)) == (START_US + 1_000, 50)


def test_requests_due_before_the_end_stay_due_after_it() -> None:
    changes = load()
    pace = Pace(1_000, changes)
    changes.change(at(10), 0.0)
    assert len(pace.due(at(40), 10**6)) == 10_000


def test_a_change_that_is_reported_late_holds_for_the_rest() -> None:
    changes = load()
    pace = Pace(1_000, changes)
    assert len(pace.due(at(1.01), 10**6)) == 1_010
    changes.change(at(1), 2.0)
    assert len(pace.due(at(2), 10**6)) == 1_980


def test_the_next_one_is_due_when_it_says() -> None:
    pace = Pace(3, load(), phase=0.25)
    next_us = pace.next_us()
    assert next_us is not None
    assert pace.due(next_us - 2, 10) == []
    assert len(pace.due(next_us, 10)) == 1


def test_a_clock_that_stands_still_makes_nothing_due() -> None:
    pace = Pace(1_000_000, load())
    assert pace.due(START_US, 10) == []
    assert pace.due(START_US - 100, 10) == []

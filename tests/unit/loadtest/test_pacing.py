"""Requests are due by the rate alone, evenly, and none is forgotten."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raylog.loadtest.pacing import Pace

START_US = 10_000_000


def test_requests_are_spread_evenly() -> None:
    pace = Pace(1_000, START_US)
    due = pace.due(START_US + 5_000, 1.0, 100)
    assert due == [START_US + at * 1_000 for at in range(1, 6)]
    assert pace.due(START_US + 5_000, 1.0, 100) == []


def test_rounds_that_are_short_lose_nothing() -> None:
    pace = Pace(300, START_US, phase=0.4)
    due: list[int] = []
    for now_us in range(START_US, START_US + 2_000_001, 700):
        due += pace.due(now_us, 1.0, 100)
    assert len(due) == pytest.approx(600, abs=1)
    gaps = {later - sooner for sooner, later in pairwise(due)}
    assert gaps <= set(range(3_330, 3_337))


def test_a_stall_keeps_the_intended_times() -> None:
    pace = Pace(100, START_US)
    first = pace.due(START_US + 1_000_000, 1.0, 40)
    assert pace.overdue(START_US + 1_000_000, 1.0) == 60
    rest = pace.due(START_US + 1_000_000, 1.0, 1_000)
    assert (len(first), len(rest)) == (40, 60)
    assert rest[0] - first[-1] == 10_000
    assert rest[-1] == START_US + 1_000_000


def test_the_factor_changes_the_rate_and_zero_pauses() -> None:
    pace = Pace(100, START_US)
    assert len(pace.due(START_US + 1_000_000, 2.0, 1_000)) == 200
    assert pace.due(START_US + 9_000_000, 0.0, 1_000) == []
    assert pace.next_us(0.0) is None
    assert len(pace.due(START_US + 10_000_000, 0.5, 1_000)) == 50


def test_the_next_one_is_due_when_it_says() -> None:
    pace = Pace(3, START_US, phase=0.25)
    next_us = pace.next_us(1.0)
    assert next_us is not None
    assert pace.due(next_us - 2, 1.0, 10) == []
    assert len(pace.due(next_us, 1.0, 10)) == 1


def test_a_clock_that_stands_still_makes_nothing_due() -> None:
    pace = Pace(1_000_000, START_US)
    assert pace.due(START_US, 1.0, 10) == []
    assert pace.due(START_US - 100, 1.0, 10) == []

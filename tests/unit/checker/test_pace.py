"""The pace at which clients of a workload write."""

from __future__ import annotations

from time import monotonic

from tests.checker.workload import Pace


def test_answers_that_end_a_poll_do_not_hurry_the_next_step() -> None:
    polls: list[float] = []
    pace = Pace(100)
    began = monotonic()
    for _ in range(3):
        pace.rest(polls.append)  # it returns at once, as where an answer has come
    assert 0.02 < monotonic() - began < 0.2
    assert len(polls) > 3


def test_a_step_that_is_late_still_polls_once() -> None:
    polls: list[float] = []
    Pace(1e9).rest(polls.append)
    assert polls == [0.0]

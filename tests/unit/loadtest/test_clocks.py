"""Clock offsets."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.loadtest.clock import Clock
from raylog.loadtest.clocks import DRIFT_PPM, Exchange, Offset, OtherClock, offset_of

_S = 1_000_000


def exchange(asked_us: int, there_us: int, back_us: int, offset_us: int) -> Exchange:
    answered_us = asked_us + there_us
    return Exchange(asked_us, answered_us + offset_us, answered_us + back_us)


def test_the_quickest_answer_counts() -> None:
    clock = OtherClock()
    assert clock.at(0) is None
    for one in (
        exchange(1_000, 4_000, 0, 4_000),
        exchange(10_000, 100, 100, 5_000),
        exchange(20_000, 4_000, 0, 4_000),
    ):
        clock.answered(one)
    assert clock.at(10_200) == Offset(5_000, 100)


def test_an_answer_that_had_to_wait_does_not_replace_a_better_one() -> None:
    clock = OtherClock()
    clock.answered(exchange(0, 200, 200, 0))
    clock.answered(exchange(30 * _S, 300_000, 200, 0))
    assert clock.at(30 * _S + 400) == Offset(0, 200 + 30 * DRIFT_PPM)
    clock.answered(exchange(60 * _S, 500, 500, 700))
    assert clock.at(60 * _S + 1_000) == Offset(700, 500)


@given(
    offset_us=st.integers(-(10**12), 10**12),
    drift_ppm=st.integers(-DRIFT_PPM, DRIFT_PPM),
    ways=st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=20),
)
def test_the_true_offset_is_within_the_uncertainty(
    offset_us: int, drift_ppm: int, ways: list[tuple[int, int]]
) -> None:
    clock = OtherClock()
    now_us = start_us = 1_700_000_000_000_000
    for there_us, back_us in ways:
        answered_us = now_us + there_us
        ahead_us = offset_us + (answered_us - start_us) * drift_ppm // _S
        one = exchange(now_us, there_us, back_us, ahead_us)
        clock.answered(one)
        now_us += there_us + back_us
        known = clock.at(now_us)
        assert known is not None
        ahead_us = offset_us + (now_us - start_us) * drift_ppm // _S
        slack_us = (there_us + back_us) * DRIFT_PPM // _S + 3
        assert abs(known.offset_us - ahead_us) <= known.uncertainty_us + slack_us
        assert known.uncertainty_us <= offset_of(one).uncertainty_us
        now_us += _S


def test_a_step_of_the_system_s_time_between_two_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Clock()
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 2_000_000_000)
    second, known = Clock(), OtherClock()
    known.runs_with_ours(second.own_base_us - first.own_base_us)
    offset = known.at(10**12)
    assert offset is not None
    assert offset.uncertainty_us == 0
    second.offset_us = offset.offset_us
    before_us = first.now_us()
    assert before_us <= second.now_us() <= first.now_us()

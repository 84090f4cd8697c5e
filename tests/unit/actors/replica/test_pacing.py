"""How long a cleaning pauses: for its rate, and for the event loop of its process."""

import pytest

from raylog.actors.replica import pacing
from raylog.actors.replica.pacing import Pacing


class Clock:
    """Stands in for `time`; in seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(pacing, "time", found)
    return found


def test_pacing_sleeps_to_keep_the_rate(clock: Clock) -> None:
    pace = Pacing(bytes_per_second=100, rest_s=0)
    for spent in (200, 50):
        pace(spent)
    clock.now += 0.25  # work takes time, too
    pace(50)
    assert clock.slept == [2, 0.5, 0.5]


def test_idle_time_is_not_saved_up(clock: Clock) -> None:
    pace = Pacing(bytes_per_second=100, rest_s=0)
    pace(100)
    clock.now += 60
    pace(100)
    assert clock.slept == [1, 1]


def test_at_least_a_moment_is_for_others(clock: Clock) -> None:
    pace = Pacing(bytes_per_second=100, rest_s=0.5)
    for spent in (0, 10, 49, 51):
        pace(spent)
    assert clock.slept == pytest.approx([0.5, 0.5, 0.5, 0.51])


def test_without_a_limit_and_others_there_is_no_rest(clock: Clock) -> None:
    pace = Pacing(bytes_per_second=float("inf"), rest_s=0)
    pace(1_000)
    assert clock.slept == []


@pytest.mark.parametrize("rate", [0.0, -0.0, 1e-300, 1.0])
def test_a_rate_below_one_byte_per_second_counts_as_one(clock: Clock, rate: float) -> None:
    pace = Pacing(bytes_per_second=rate, rest_s=0)
    pace(1_000)
    assert clock.slept == [1_000]


@pytest.mark.parametrize("rate", [-5.0, float("nan")])
def test_a_negative_rate_is_no_limit_as_in_kafka(clock: Clock, rate: float) -> None:
    pace = Pacing(bytes_per_second=rate, rest_s=0)
    for _ in range(2):
        pace(1_000)
    assert clock.slept == []

"""How `raylog top` computes a group's lag."""

import pytest

from raylog.cli.top.lag import SURE_MS, WINDOW_MS, GroupLag, LagTrend
from raylog.cli.top.tables import outlook
from raylog.client import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def trend(*samples: tuple[float, int, int]) -> LagTrend:
    """Of (seconds, end, committed)."""
    lag = GroupLag()
    for at_s, end, committed in samples:
        lag.add(at_s * 1_000, {T0}, end, committed)
    found = lag.trend()
    assert found is not None
    return found


def test_nothing_is_known_before_the_first_sample_and_no_rate_before_the_second() -> None:
    assert GroupLag().trend() is None
    first = trend((0, 100, 40))
    assert first == LagTrend(60)
    assert (first.growth_per_s, first.behind_s, first.caught_up_s, outlook(first)) == (None,) * 4


def test_a_group_that_reads_less_than_is_written_falls_behind() -> None:
    found = trend((0, 1_000, 0), (10, 3_000, 500), (20, 5_000, 1_000), (30, 7_000, 1_500))
    assert (found.lag, found.written_per_s, found.read_per_s) == (5_500, 200, 50)
    assert found.grows
    assert found.growth_per_s == 150
    assert found.behind_s == 27.5
    assert found.caught_up_s is None
    assert outlook(found) == "grows by 150/s"


def test_growth_over_a_short_time_is_not_believed() -> None:
    samples = [(at, 1_000 + 200 * at, 0) for at in range(0, int(SURE_MS / 1_000), 5)]
    assert not trend(*samples).grows
    assert trend(*samples, (20, 5_000, 0)).grows


def test_a_lag_that_goes_up_and_down_with_commits_does_not_grow() -> None:
    samples = [(at, 10_000 + 100 * at, 100 * (at - at % 10)) for at in range(0, 60, 3)]
    found = trend(*samples)
    assert not found.grows
    assert outlook(trend((0, 100, 100), (10, 200, 200))) == "level"


def test_a_small_lag_is_no_trouble_though_it_grows() -> None:
    samples = [(at, 100 * at, 90 * at) for at in range(0, 60, 5)]
    assert samples[-1][1] - samples[-1][2] == 550  # about 6 s
    assert not trend(*samples).grows


def test_a_group_that_catches_up() -> None:
    found = trend((0, 10_000, 0), (10, 11_000, 3_000))
    assert found.caught_up_s == 8_000 / 200
    assert outlook(found) == "level in 40 s"


def test_nothing_is_written_and_nobody_reads() -> None:
    found = trend((0, 500, 100), (60, 500, 100))
    assert (found.behind_s, found.caught_up_s, found.grows) == (None, None, False)
    assert outlook(found) == "steady"


@pytest.mark.parametrize(
    ("partitions", "end", "committed"),
    [({T0, T1}, 5_000, 100), ({T1}, 5_000, 100), ({T0}, 900, 100), ({T0}, 5_000, 0)],
)
def test_sums_that_cannot_be_compared_begin_anew(
    partitions: set[TopicPartition], end: int, committed: int
) -> None:
    lag = GroupLag()
    lag.add(0, {T0}, 1_000, 50)
    lag.add(10_000, partitions, end, committed)
    assert lag.trend() == LagTrend(end - committed)


def test_only_the_last_minute_counts() -> None:
    lag = GroupLag()
    for at_s in range(0, 300, 5):
        lag.add(at_s * 1_000, {T0}, 100 * min(at_s, 100), 0)
    found = lag.trend()
    assert found is not None
    assert WINDOW_MS < 200_000
    assert found.written_per_s == 0


def test_commits_beyond_the_end_are_no_lag() -> None:
    assert trend((0, 100, 120)).lag == 0

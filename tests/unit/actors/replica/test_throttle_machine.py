"""The machine of replication quotas: rates as a clock, what waits, what is released (KIP-73)."""

import pytest

from raylog.actors.replica.rules.throttle import (
    RELEASED_AT_ONCE,
    STEP_MS,
    UNLIMITED,
    HeldBack,
    Moved,
    RateChanged,
    Release,
    ShareChanged,
    Throttle,
    ThrottledReplicas,
    WakeAfter,
    Woken,
    throttled_replicas,
)


def throttle(rate: int, **settings: int) -> Throttle:
    """A side with a rate, at rest since long ago."""
    side = Throttle(**settings)
    assert side.handle(RateChanged(rate, 0)) == []
    return side


def moved(side: Throttle, count: int, now_ms: float) -> None:
    assert side.handle(Moved("p", count, now_ms)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ThrottledReplicas()),
        ("*", ThrottledReplicas(every=True)),
        ("0:1", ThrottledReplicas(frozenset({(0, 1)}))),
        ("0:1, 1:2,", ThrottledReplicas(frozenset({(0, 1), (1, 2)}))),
    ],
)
def test_lists_are_read(text: str, found: ThrottledReplicas) -> None:
    assert throttled_replicas(text) == found


def test_a_list_covers_its_pairs_and_a_star_all() -> None:
    some = throttled_replicas("0:1,1:2")
    assert some.covers(0, 1)
    assert not some.covers(0, 2)
    assert throttled_replicas("*").covers(7, 8)


def test_without_a_rate_nothing_is_ever_over() -> None:
    side = throttle(UNLIMITED)
    moved(side, 10**12, 0)
    assert not side.is_limited
    assert not side.is_over(0)


def test_from_rest_a_windows_bytes_may_move_at_once() -> None:
    side = throttle(1_000)
    moved(side, 1_000, 5_000)
    assert not side.is_over(5_000)
    moved(side, 1, 5_000)
    assert side.is_over(5_000)
    assert not side.is_over(5_001)


def test_rest_is_not_saved_up_beyond_a_window() -> None:
    side = throttle(1_000)
    moved(side, 1_500, 3_600_000)
    assert side.is_over(3_600_499)
    assert not side.is_over(3_600_500)


def test_in_the_long_run_the_rate_is_kept() -> None:
    side = throttle(8_000_000)
    sent = now_ms = 0
    while now_ms < 8_000:
        if side.is_over(now_ms):
            now_ms += 1
        else:
            moved(side, 1 << 20, now_ms)
            sent += 1 << 20
    assert 64_000_000 <= sent <= 64_000_000 + 8_000_000 + (1 << 20)


def test_throttle_debt_expires_after_all_windows() -> None:
    side = throttle(1, window_ms=1_000, windows=11)
    moved(side, 1 << 20, 0)
    assert side.is_over(10_999)
    assert not side.is_over(11_000)


def test_at_rate_0_something_moves_once_in_all_windows() -> None:
    side = throttle(0)
    assert not side.is_over(0)
    moved(side, 1, 0)
    assert side.is_over(10_999)
    assert not side.is_over(11_000)


def test_no_bytes_cost_nothing() -> None:
    side = throttle(0)
    moved(side, 0, 0)
    assert not side.is_over(0)


def test_throttled_partitions_are_released_when_the_debt_is_paid() -> None:
    side = throttle(1_000)
    moved(side, 3_000, 0)
    assert side.handle(HeldBack("a", 0)) == [WakeAfter(2_000)]
    assert side.handle(HeldBack("b", 10)) == [], "one wake-up is under way"
    assert side.handle(Woken(2_000)) == [Release(("a", "b"))]
    assert side.handle(HeldBack("a", 2_000)) == [WakeAfter(STEP_MS)]


def test_early_wake_up_waits_for_the_rest_of_the_debt() -> None:
    side = throttle(1_000)
    moved(side, 3_000, 0)
    side.handle(HeldBack("a", 0))
    moved(side, 1_000, 1_000)
    assert side.handle(Woken(2_000)) == [WakeAfter(1_000)]


def test_a_few_are_released_at_a_time_the_longest_waiting_first() -> None:
    side = throttle(1_000)
    moved(side, 2_000, 0)
    everyone = tuple(range(2 * RELEASED_AT_ONCE + 1))
    for one in everyone:
        side.handle(HeldBack(one, 0))
    first, second = everyone[:RELEASED_AT_ONCE], everyone[RELEASED_AT_ONCE:-1]
    assert side.handle(Woken(1_000)) == [Release(first), WakeAfter(STEP_MS)]
    assert side.handle(Woken(1_005)) == [Release(second), WakeAfter(STEP_MS)]
    assert side.handle(Woken(1_010)) == [Release(everyone[-1:])]


def test_a_change_of_the_rate_releases_everybody_to_try_again() -> None:
    side = throttle(1)
    moved(side, 1_000_000, 0)
    for one in range(100):
        side.handle(HeldBack(one, 0))
    assert side.handle(RateChanged(UNLIMITED, 1)) == [Release(tuple(range(100)))]
    assert not side.is_over(1)
    assert side.handle(RateChanged(1_000, 2)) == []


def test_after_a_change_a_sooner_wake_up_takes_the_place_of_the_old_one() -> None:
    side = throttle(100)
    moved(side, 1_100, 0)
    assert side.handle(HeldBack("a", 0)) == [WakeAfter(10_000)]
    assert side.handle(RateChanged(1_000, 0)) == [Release(("a",))]
    assert side.handle(HeldBack("a", 0)) == [WakeAfter(1_000)]


def test_throttle_debt_is_paid_at_the_new_rate() -> None:
    side = throttle(1_000)
    moved(side, 3_000, 0)
    side.handle(RateChanged(2_000, 0))
    assert side.is_over(999)
    assert not side.is_over(1_000)
    side.handle(RateChanged(500, 0))
    assert side.is_over(3_999)
    assert not side.is_over(4_000)
    side.handle(RateChanged(0, 0))
    assert side.is_over(10_999)
    assert not side.is_over(11_000)


def test_processes_share_the_rate() -> None:
    side = throttle(1_000)
    assert side.handle(ShareChanged(2, 0)) == []
    moved(side, 1_000, 0)
    assert side.is_over(999)
    assert not side.is_over(1_000)
    side.handle(ShareChanged(1, 0))
    assert side.is_over(499)
    assert not side.is_over(500)
    side.handle(ShareChanged(0, 0))
    assert not side.is_over(500), "nobody is one who asks"


def test_a_few_may_ask_without_an_answer() -> None:
    side = throttle(1_000)
    everyone = range(RELEASED_AT_ONCE + 1)
    assert [side.lets_ask(one, one) for one in everyone] == [True] * RELEASED_AT_ONCE + [False]
    assert side.lets_ask(3, 20), "who asks again is one"
    side.handle(Moved(5, 0, 21))
    assert side.lets_ask("another", 21), "one was answered"
    assert not side.lets_ask("more", 999)
    assert side.lets_ask("more", 1_000), "the first has had no answer for a window"
    moved(side, 5_000, 1_000)
    assert not side.lets_ask(3, 1_001)


def test_repeated_ask_does_not_delay_asks_that_wait_longer() -> None:
    side = throttle(1_000)
    everyone = range(RELEASED_AT_ONCE)
    assert all(side.lets_ask(one, one) for one in everyone)
    assert side.lets_ask(0, 900)
    late_ms = 1_000 + RELEASED_AT_ONCE
    newcomers = [f"new {one}" for one in everyone]
    assert [side.lets_ask(one, late_ms) for one in newcomers] == [True] * (len(everyone) - 1) + [
        False
    ]


def test_unsent_bytes_count_only_for_the_question() -> None:
    side = throttle(1_000)
    assert not side.is_over(0, 1_000), "a window's bytes go at once"
    assert side.is_over(0, 1_001)
    assert not side.is_over(0)
    moved(side, 1_500, 0)
    assert side.is_over(499)
    assert not side.is_over(500)
    assert not side.is_over(2_000, 1_000)
    assert side.is_over(2_000, 1_001)
    side.handle(RateChanged(0, 2_000))
    assert side.is_over(2_000, 1)
    assert not side.is_over(2_000)

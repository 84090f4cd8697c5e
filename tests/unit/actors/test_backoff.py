"""What keeps ending is restarted after longer pauses; after a good run, at once again."""

from raylog.actors.backoff import FIRST_MS, LONGEST_MS, LOSSES_AT_ONCE, Backoff


def test_a_few_losses_are_mended_at_once_then_the_wait_doubles_up_to_a_bound() -> None:
    backoff, now_ms, delays = Backoff(), 5_000, []
    for _ in range(LOSSES_AT_ONCE + 7):
        delays.append(backoff.lost(now_ms))
        now_ms += delays[-1] + 1
    doubled = [FIRST_MS, 2 * FIRST_MS, 4 * FIRST_MS, 8 * FIRST_MS]
    assert delays == [0] * LOSSES_AT_ONCE + doubled + [LONGEST_MS] * 3


def test_long_run_resets_the_backoff() -> None:
    backoff = Backoff()
    for _ in range(LOSSES_AT_ONCE + 3):
        backoff.lost(0)
    due_ms = backoff.due_ms
    assert backoff.lost(due_ms + LONGEST_MS - 1) > 0
    due_ms = backoff.due_ms
    assert backoff.wait_ms(due_ms - 5) == 5
    assert backoff.wait_ms(due_ms + 1) == 0
    assert backoff.lost(due_ms + LONGEST_MS) == 0
    assert backoff.losses == 1


def test_kills_now_and_then_never_make_a_start_wait() -> None:
    backoff = Backoff()
    assert {backoff.lost(at * LONGEST_MS) for at in range(100)} == {0}


def test_a_loop_for_a_week_keeps_its_longest_wait() -> None:
    backoff = Backoff(losses=100_000, due_ms=0)
    assert backoff.lost(1) == LONGEST_MS

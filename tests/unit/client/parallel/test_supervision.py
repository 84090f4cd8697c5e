"""Tasks are restarted after pauses that double, and stopped when they fail too often."""

from __future__ import annotations

from raylog.client.errors import ClientError, InvalidSetting
from raylog.client.parallel.supervision import (
    EndAll,
    RestartPolicy,
    StartTask,
    StopTask,
    Supervision,
)

FAILURE = ClientError("lost")


def test_scaling_starts_and_stops_the_last_ones() -> None:
    tasks = Supervision(RestartPolicy())
    assert tasks.scale(3, 0.0) == [StartTask(0), StartTask(1), StartTask(2)]
    assert tasks.scale(3, 1.0) == []
    assert tasks.scale(1, 2.0) == [StopTask(1), StopTask(2)]
    assert tasks.ended(2, None, 3.0) == []
    assert tasks.ended(1, None, 3.0) == []
    assert tasks.running == 1
    assert tasks.next_due_ms() == float("inf")


def test_a_task_that_is_wanted_again_while_it_stops_is_started_when_it_has_ended() -> None:
    tasks = Supervision(RestartPolicy())
    tasks.scale(1, 0.0)
    assert tasks.scale(0, 1.0) == [StopTask(0)]
    assert tasks.scale(1, 2.0) == []
    assert tasks.ended(0, None, 3.0) == [StartTask(0)]


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_steady_time() -> None:
    tasks = Supervision(RestartPolicy(100.0, 350.0, steady_after_ms=1_000.0))
    tasks.scale(1, 0.0)
    now_ms = 0.0
    for pause_ms in (100.0, 200.0, 350.0, 350.0):
        assert tasks.ended(0, FAILURE, now_ms) == []
        assert tasks.next_due_ms() == now_ms + pause_ms
        assert tasks.tick(now_ms + pause_ms - 1) == []
        now_ms += pause_ms
        assert tasks.tick(now_ms) == [StartTask(0)]
    tasks.ended(0, FAILURE, now_ms + 1_000.0)
    assert tasks.next_due_ms() == now_ms + 1_100.0
    assert tasks.restarts == 4


def test_a_task_that_ends_without_being_told_to_is_started_again() -> None:
    tasks = Supervision(RestartPolicy(100.0))
    tasks.scale(1, 0.0)
    assert tasks.ended(0, None, 10.0) == []
    assert tasks.tick(110.0) == [StartTask(0)]


def test_fatal_error_of_a_task_ends_all_tasks() -> None:
    tasks = Supervision(RestartPolicy())
    tasks.scale(2, 0.0)
    failure = InvalidSetting("no")
    assert tasks.ended(0, failure, 1.0) == [EndAll(failure), StopTask(1)]
    assert tasks.ended(1, InvalidSetting("no"), 2.0) == []
    assert tasks.running == 0

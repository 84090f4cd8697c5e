"""Truncating and closing have a log to themselves; all other work runs in parallel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.replica.rules.work import LogWork, Task


def test_tasks_run_beside_one_another() -> None:
    work = LogWork()
    assert all(work.begin(task) for task in Task)
    assert all(work.runs(task) for task in Task)
    assert work.begin(Task.CHECKPOINT)
    work.end(Task.CHECKPOINT)
    assert work.runs(Task.CHECKPOINT), "another of the kind runs"


@pytest.mark.parametrize("task", Task)
def test_a_reader_waits_for_two_kinds(task: Task) -> None:
    work = LogWork()
    assert work.begin(task)
    assert work.has_readers_waiting is (task in {Task.CHECK, Task.LOAD_INDEX})


@pytest.mark.parametrize("task", Task)
def test_reservation_waits_for_the_running_task_and_blocks_new_ones(task: Task) -> None:
    work, events = LogWork(), list[str]()
    assert work.begin(task)
    work.reserve(lambda: events.append("granted"))
    work.on_release(lambda: events.append("released"))
    seen = [(work.is_reserved, [other for other in Task if work.begin(other)], len(events))]
    work.end(task)
    seen.append((work.is_reserved, [other for other in Task if work.begin(other)], len(events)))
    work.release()
    seen.append((work.is_reserved, [other for other in Task if work.begin(other)], len(events)))
    assert seen == [(True, [], 0), (True, [], 1), (False, list(Task), 2)]
    assert events == ["granted", "released"]


def test_mistakes_of_the_shell_are_seen() -> None:
    work = LogWork()
    with pytest.raises(AssertionError, match="no CLEAN runs"):
        work.end(Task.CLEAN)
    with pytest.raises(AssertionError, match="nobody has the log"):
        work.release()


def test_release_callback_may_register_again() -> None:
    work, events = LogWork(), list[str]()
    work.reserve(lambda: events.append("first"))
    work.reserve(lambda: events.append("second"))
    work.on_release(lambda: work.on_release(lambda: events.append("released again")))
    work.release()
    assert events == ["first", "second"]
    work.release()
    assert events == ["first", "second", "released again"]


@given(st.lists(st.sampled_from(["begin", "end", "reserve", "release"]), max_size=60))
def test_turns_come_in_order_and_alone(steps: list[str]) -> None:
    work, granted = LogWork(), list[int]()
    running = asked = released = 0
    for step in steps:
        if step == "begin":
            began = work.begin(Task.FLUSH)
            assert began is (asked == released)
            running += began
        elif step == "end" and running:
            work.end(Task.FLUSH)
            running -= 1
        elif step == "reserve":
            number, asked = asked, asked + 1
            work.reserve(lambda number=number: granted.append(number))  # type: ignore[misc]
        elif step == "release" and len(granted) > released:
            work.release()
            released += 1
        has_it = 1 if asked > released and not running else 0
        assert granted == list(range(released + has_it))

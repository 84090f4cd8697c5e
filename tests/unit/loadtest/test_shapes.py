"""The course of a run: loads, faults, steps with verdicts, and its end."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.loadtest.scenario import Scenario
from raylog.loadtest.shapes import (
    Course,
    Effect,
    End,
    Judge,
    SetLoad,
    Step,
    Strike,
    Tell,
    factor_at,
)


def scenario(shape: dict[str, Any], **fields: Any) -> Scenario:
    document: dict[str, Any] = {
        "name": "one",
        "question": "?",
        "duration_s": 100.0,
        "warmup_s": 10.0,
        "topics": {"orders": {}},
        "users": [{"kind": "producer", "topic": "orders", "rate": 100}],
        "shape": shape,
    }
    return Scenario.model_validate({**document, **fields})


def play(course: Course, until_s: int, held: Any = None) -> list[tuple[float, Effect]]:
    """Tick each second; `held` judges steps."""
    seen: list[tuple[float, Effect]] = []
    for second in range(until_s):
        waiting = course.tick(second)
        while waiting:
            effect = waiting.pop(0)
            seen.append((second, effect))
            if isinstance(effect, Judge):
                step = effect.step
                waiting += course.judged(step, held=held(step), records_per_s=100 * step.factor)
    return seen


def test_steady_sets_the_load_once_and_ends_in_time() -> None:
    course = Course(scenario({"kind": "steady"}))
    assert play(course, 120) == [(0, SetLoad(1.0)), (100, End())]
    assert course.tick(200) == []
    assert course.meant(0, 100) == 100


@pytest.mark.parametrize(
    ("shape", "at_s", "factor"),
    [
        ({"kind": "ramp", "start": 0.5, "end": 1.5}, 0, 0.5),
        ({"kind": "ramp", "start": 0.5, "end": 1.5}, 50, 1.0),
        ({"kind": "ramp", "start": 2.0, "end": 1.0}, 100, 1.0),
        ({"kind": "spike", "at_s": 20, "lasts_s": 5, "factor": 4}, 19.9, 1.0),
        ({"kind": "spike", "at_s": 20, "lasts_s": 5, "factor": 4}, 20, 4.0),
        ({"kind": "spike", "at_s": 20, "lasts_s": 5, "factor": 4}, 25, 1.0),
        ({"kind": "daily", "low": 0.2, "period_s": 60}, 0, 0.2),
        ({"kind": "daily", "low": 0.2, "period_s": 60}, 15, 0.6),
        ({"kind": "daily", "low": 0.2, "period_s": 60}, 30, 1.0),
        ({"kind": "daily", "low": 0.2, "period_s": 60}, 60, 0.2),
        ({"kind": "sawtooth", "low": 0.2, "period_s": 10}, 5, 0.6),
        ({"kind": "sawtooth", "low": 0.2, "period_s": 10}, 10, 0.2),
        ({"kind": "stairs", "start": 0.5, "step": 0.25, "hold_s": 20}, 9, 0.5),
        ({"kind": "stairs", "start": 0.5, "step": 0.25, "hold_s": 20}, 29, 0.5),
        ({"kind": "stairs", "start": 0.5, "step": 0.25, "hold_s": 20}, 30, 0.75),
    ],
)
def test_shapes(shape: dict[str, Any], at_s: float, factor: float) -> None:
    assert factor_at(scenario(shape), at_s) == pytest.approx(factor)


def test_a_spike_is_marked() -> None:
    course = Course(scenario({"kind": "spike", "at_s": 20, "lasts_s": 5, "factor": 4}))
    assert play(course, 101) == [
        (0, SetLoad(1.0)),
        (20, SetLoad(4.0)),
        (20, Tell("4 of the rates")),
        (25, SetLoad(1.0)),
        (25, Tell("1 of the rates")),
        (100, End()),
    ]
    assert course.meant(0, 100) == 115
    assert course.meant(18, 22) == 10


def test_faults_strike_in_order_each_once() -> None:
    faults = [{"kind": "kill-controller", "at_s": 40}, {"kind": "roll", "at_s": 15.5}]
    course = Course(scenario({"kind": "steady"}, faults=faults))
    struck = [(at, one) for at, one in play(course, 120) if isinstance(one, Strike)]
    kill, roll = course.scenario.faults
    assert struck == [(16, Strike(roll)), (40, Strike(kill))]


def test_stairs_end_at_the_first_step_that_breaks() -> None:
    course = Course(scenario({"kind": "stairs", "start": 1, "step": 1, "hold_s": 20}))
    seen = play(course, 120, lambda step: step.factor < 3)
    assert seen == [
        (0, SetLoad(1.0)),
        (0, Tell("step 1: 1 of the rates")),
        (30, SetLoad(2.0)),
        (30, Tell("step 2: 2 of the rates")),
        (32, Judge(Step(0, 1.0, 10.0, 30.0))),
        (50, SetLoad(3.0)),
        (50, Tell("step 3: 3 of the rates")),
        (52, Judge(Step(1, 2.0, 30.0, 50.0))),
        (70, SetLoad(4.0)),
        (70, Tell("step 4: 4 of the rates")),
        (72, Judge(Step(2, 3.0, 50.0, 70.0))),
        (72, End()),
    ]
    held = course.held
    assert held == Step(1, 2.0, 30.0, 50.0)
    assert held.judged_from_s == 35
    assert course.capacity == 200


def test_stairs_whose_first_step_breaks_have_no_capacity() -> None:
    course = Course(scenario({"kind": "stairs", "start": 1, "step": 1, "hold_s": 20}))
    seen = play(course, 120, lambda _: False)
    assert seen[-1:] == [(32, End("the first step, 1 of the rates, did not hold"))]
    assert course.capacity is None


def test_stairs_that_never_break_say_so() -> None:
    course = Course(scenario({"kind": "stairs", "start": 1, "step": 1, "hold_s": 30}))
    seen = play(course, 120, lambda _: True)
    at_s, ended = seen[-1]
    assert at_s == 103
    assert isinstance(ended, End)
    assert ended.note is not None
    assert "3 of the rates" in ended.note
    assert course.capacity == 300
    assert seen[-3:-1] == [(100, SetLoad(0.0)), (102, Judge(Step(2, 3.0, 70.0, 100.0)))]
    assert course.meant(95, 105) == 15


@pytest.mark.parametrize(
    ("duration_s", "ends_s"), [(99.5, 100), (100, 103), (101, 103), (102, 103), (103, 103)]
)
def test_every_step_of_stairs_settles_before_it_is_judged(duration_s: float, ends_s: int) -> None:
    shape = {"kind": "stairs", "start": 1, "step": 1, "hold_s": 30}
    course = Course(scenario(shape, duration_s=duration_s))
    seen = play(course, 120, lambda _: True)
    judged = [(at_s, one.step.ends_s) for at_s, one in seen if isinstance(one, Judge)]
    assert judged == [(42, 40), (72, 70), (102, 100)][: 2 if duration_s < 100 else 3]
    assert seen[-1][0] == ends_s


def test_a_last_step_that_does_not_hold_ends_the_run() -> None:
    course = Course(scenario({"kind": "stairs", "start": 1, "step": 1, "hold_s": 30}))
    assert play(course, 120, lambda step: step.factor < 3)[-1] == (102, End())
    assert course.capacity == 200


def test_stairs_that_are_too_short_say_so() -> None:
    course = Course(scenario({"kind": "stairs", "hold_s": 95}))
    assert play(course, 120)[-1] == (
        100,
        End("the run was too short for one step of the stairs, so nothing was judged"),
    )

"""Load profiles of load tests with any shape: bounded, in order, and finished on time."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from raylog.loadtest.scenario import Scenario
from raylog.loadtest.shapes import Course, Effect, End, Judge, SetLoad, Strike

times = st.floats(0.5, 300.0)
shares = st.floats(0.0, 5.0)
steps = st.floats(0.01, 5.0)
shapes = st.one_of(
    st.just({"kind": "steady"}),
    st.builds(dict, kind=st.just("ramp"), start=shares, end=shares),
    st.builds(dict, kind=st.just("stairs"), start=steps, step=steps, hold_s=times),
    st.builds(dict, kind=st.just("spike"), at_s=times, lasts_s=times, factor=steps),
    st.builds(dict, kind=st.just("daily"), low=shares, period_s=times),
    st.builds(dict, kind=st.just("sawtooth"), low=shares, period_s=times),
)
faults: st.SearchStrategy[dict[str, object]] = st.builds(
    dict, kind=st.sampled_from(["roll", "kill-controller"]), at_s=times
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    duration_s = draw(times)
    return Scenario.model_validate(
        {
            "name": "one",
            "question": "?",
            "duration_s": duration_s,
            "warmup_s": duration_s * draw(st.floats(0, 0.9)),
            "topics": {"orders": {}},
            "users": [{"kind": "producer", "topic": "orders", "rate": 1}],
            "shape": draw(shapes),
            "faults": draw(st.lists(faults, max_size=4)),
        }
    )


@given(scenario=scenarios(), verdicts=st.lists(st.booleans(), max_size=50), tick_s=times)
def test_a_course(scenario: Scenario, verdicts: list[bool], tick_s: float) -> None:
    course = Course(scenario)
    ticks = [number * tick_s / 10 for number in range(1 + int(10 * scenario.duration_s / tick_s))]
    ticks += [scenario.duration_s + number for number in range(800)]
    judged: list[tuple[int, bool]] = []
    seen: list[Effect] = []
    for at_s in ticks:
        waiting = course.tick(at_s)
        while waiting:
            effect = waiting.pop(0)
            seen.append(effect)
            if isinstance(effect, Judge):
                assert effect.step.ends_s <= min(at_s, scenario.duration_s)
                held = verdicts[len(judged)] if len(judged) < len(verdicts) else True
                judged.append((effect.step.number, held))
                waiting += course.judged(effect.step, held=held, records_per_s=len(judged))
            if isinstance(effect, Strike):
                assert effect.fault.at_s <= at_s
    assert isinstance(seen[-1], End)
    assert sum(isinstance(one, End) for one in seen) == 1
    assert [number for number, _ in judged] == list(range(len(judged)))
    assert all(held for _, held in judged[:-1]), "the first step that breaks is the last"
    steps_held = [number for number, held in judged if held]
    assert course.capacity == (steps_held[-1] + 1 if steps_held else None)
    loads = [one.factor for one in seen if isinstance(one, SetLoad)]
    assert all(factor >= 0 for factor in loads)
    assert all(first != second for first, second in itertools.pairwise(loads))
    struck = [one.fault.at_s for one in seen if isinstance(one, Strike)]
    assert struck == sorted(struck)


@given(scenario=scenarios(), cut=st.floats(0, 1))
def test_intended_load_is_additive_over_time(scenario: Scenario, cut: float) -> None:
    course = Course(scenario)
    for number in range(100):
        course.tick(scenario.duration_s * number / 100)
    middle = scenario.duration_s * cut
    whole = course.meant(0, scenario.duration_s)
    parts = course.meant(0, middle) + course.meant(middle, scenario.duration_s)
    assert abs(whole - parts) <= 1e-6 * max(1.0, whole)

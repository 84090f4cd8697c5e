"""Comparing two runs: what counts as different, what does not, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from raylog.loadtest.report import Change, Difference, DifferentScenarios, diff, too_short
from raylog.loadtest.results import Operation, Result
from raylog.loadtest.scenario import Scenario
from tests.support import load_results

SECONDS = 65


def _run(*operations: Operation, **changed: Any) -> Result:
    return load_results.result(
        20, duration_s=float(SECONDS), operations=list(operations), **changed
    )


def _produce(seed: int, **changed: Any) -> Operation:
    return load_results.operation("produce", SECONDS, seed=seed, **changed)


def _stalled(at: int) -> Operation:
    """As `_produce(1)`, except for a stall of three seconds."""
    intervals = _produce(1).intervals
    intervals[at : at + 3] = _produce(2, stall=(at, 3.0)).intervals[at : at + 3]
    return _produce(1).model_copy(update={"intervals": intervals})


def _found(difference: Difference, figure: str) -> Change:
    (change,) = (each for each in difference.changes if each.figure == figure)
    return change


def test_a_run_is_the_same_as_itself() -> None:
    run = _run(_produce(1))
    difference = diff(run, run)
    assert {each.says for each in difference.changes} == {"same"}
    assert {each.ratio for each in difference.changes} == {1.0}
    assert difference.notes == []


def test_latency_a_third_slower_is_worse_and_the_reverse_is_better() -> None:
    quick, slow = _run(_produce(1)), _run(_produce(2, median_us=2_700))
    for figure in ("p50 ms", "p90 ms", "p99 ms"):
        change = _found(diff(quick, slow), figure)
        assert change.says == "worse"
        assert change.low is not None
        assert change.high is not None
        assert change.low < 1.35 < change.high
        assert _found(diff(slow, quick), figure).says == "better"
    assert _found(diff(quick, slow), "requests/s").says == "same"


def test_less_throughput_is_worse() -> None:
    a, b = _run(_produce(1)), _run(_produce(2, rate=16_000))
    change = _found(diff(a, b), "requests/s")
    assert change.says == "worse"
    assert change.ratio == pytest.approx(0.8)
    assert _found(diff(b, a), "requests/s").says == "better"


@pytest.mark.long
def test_noise_alone_says_nothing() -> None:
    runs = [_run(_produce(seed, noise=0.3)) for seed in range(8)]
    said = [
        each.says for a, b in zip(runs[::2], runs[1::2], strict=True) for each in diff(a, b).changes
    ]
    assert said.count("better") + said.count("worse") <= 1


def test_one_stall_does_not_prove_that_the_tail_is_worse() -> None:
    calm, stalled = _run(_produce(1)), _run(_produce(2, stall=(30, 3.0)))
    change = _found(diff(calm, stalled), "p99.9 ms")
    assert change.ratio is not None
    assert change.ratio > 100
    assert change.says == "unclear"


def test_different_scenarios_are_refused_unless_forced() -> None:
    a = _run(_produce(1))
    b = _run(_produce(2), scenario=load_results.scenario(name="other", warmup_s=6.0))
    differing = (
        "name is broker-loss in A and other in B; duration_s is 20 in A and 120 in B; warmup_s is "
        "5 in A and 6 in B"
    )
    with pytest.raises(DifferentScenarios, match="found broker-loss and other: ") as refused:
        diff(a, b)
    assert str(refused.value).endswith(differing)
    forced = diff(a, b, force=True)
    assert forced.notes[0] == f"the scenarios differ: {differing}"
    assert forced.changes


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            lambda made: made["users"][0].update(rate=10_000.0),
            "users.0.rate is 20,000 in A and 10,000 in B",
        ),
        (lambda made: made["users"].pop(), "users.1 is only in A"),
        (
            lambda made: made["topics"].update(more={"partitions": 1}),
            "topics.more is only in B",
        ),
        (
            lambda made: made["topics"]["orders"].update(replication=None),
            "topics.orders.replication is 3 in A and not set in B",
        ),
        (
            lambda made: made["thresholds"].clear(),
            "thresholds.0 is only in A; thresholds.1 is only in A; thresholds.2 is only in A",
        ),
        (
            lambda made: made["faults"].extend([{"kind": "roll", "at_s": 1.0}] * 7),
            "faults.4 is only in B; faults.5 is only in B; and 2 more",
        ),
    ],
)
def test_scenarios_that_differ_are_reported_with_both_values(
    changed: Callable[[dict[str, Any]], object], expected: str
) -> None:
    a = _run(_produce(1))
    made = a.scenario.model_dump()
    changed(made)
    with pytest.raises(DifferentScenarios) as refused:
        diff(a, _run(_produce(1), scenario=Scenario.model_validate(made)))
    assert str(refused.value).endswith(expected)


def test_short_runs_have_ratios_without_a_verdict() -> None:
    run = load_results.result(20)
    difference = diff(run, run)
    assert {each.says for each in difference.changes} == {"unclear"}
    assert {each.low for each in difference.changes} == {None}
    assert difference.notes == [
        "expected 25 s that can be judged in both runs, found 15: the spread is not known"
    ]


def test_whether_runs_are_long_enough_is_known_before() -> None:
    assert too_short(load_results.scenario(duration_s=30.0)) is None
    reason = too_short(load_results.scenario(duration_s=29.0))
    assert reason is not None
    assert "24 s after its warm-up. A comparison needs at least 25 s" in reason
    run = load_results.scenario(duration_s=30.0, warmup_s=5.5)
    assert too_short(run) == reason, "the second in which the warm-up ends is not judged"


def test_seconds_in_which_a_generator_was_the_limit_are_not_judged() -> None:
    a = _run(_produce(1))
    b = _run(_produce(1), limited_by_generator=[(5.0, 50.0)])
    difference = diff(a, b)
    assert {each.low for each in difference.changes} == {None}
    assert difference.notes[0].startswith(
        "B: The generator, not the broker, was the limit for 45 s"
    )


def test_figures_leave_out_the_seconds_that_are_not_judged_in_either_run() -> None:
    calm = _run(_produce(1))
    stalled = _run(_stalled(30), limited_by_generator=[(30.0, 33.0)])
    for a, b in ((calm, stalled), (stalled, calm)):
        assert {(each.ratio, each.says) for each in diff(a, b).changes} == {(1.0, "same")}
    rate = _found(diff(calm, stalled), "requests/s")
    assert (rate.a, rate.b) == (20_000, 20_000)


def test_figures_leave_out_what_follows_the_end_of_the_shorter_run() -> None:
    short = _run(_produce(1)).model_copy(update={"duration_s": 55.5})
    assert {each.ratio for each in diff(short, _run(_stalled(55))).changes} == {1.0}


def test_figures_of_runs_that_are_too_short_leave_out_these_seconds_as_well() -> None:
    calm = _run(_produce(1)).model_copy(update={"duration_s": 20.0})
    stalled = _run(_stalled(10), limited_by_generator=[(10.0, 13.0)])
    found = {(each.ratio, each.says) for each in diff(calm, stalled).changes}
    assert found == {(1.0, "unclear")}


def test_runs_without_a_second_in_common_are_not_compared() -> None:
    run = load_results.result(20, limited_by_generator=[(0.0, 20.0)])
    assert diff(run, run).changes == []


def test_unfair_comparison_is_reported() -> None:
    a = _run(_produce(1))
    b = load_results.failed(
        seconds=20,
        duration_s=float(SECONDS),
        operations=[
            _produce(1, errors={"gone": 7}, stall=(10, 1.0)),
            load_results.operation("join", 9),
        ],
        machine="a laptop",
        limited_by_generator=[],
    )
    notes = diff(a, b).notes
    assert notes[0].startswith("B failed: 3 records lost")
    assert "the machine differs: AMD EPYC, 2 cores, 24 GiB, Linux 6.18 and a laptop" in notes
    assert "produce: 0 failures in A, 7 in B" in notes
    assert "join is only in B" in notes


def test_an_operation_without_any_answer_has_no_ratio() -> None:
    silent = Operation(name="produce", errors={}, intervals=[])
    difference = diff(_run(silent), _run(_produce(1)))
    assert {(each.ratio, each.low, each.says) for each in difference.changes} == {
        (None, None, "unclear")
    }

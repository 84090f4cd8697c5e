"""What a report says about a fault: its effect, or why it cannot be judged."""

from collections.abc import Callable
from typing import Any

import pytest

from raylog.loadtest.report.aftermath import aftermaths
from raylog.loadtest.results import Interval, Mark, Operation, Result
from tests.support import load_results

FAULT = Mark(at_s=10.0, kind="fault", text="broker 2 killed")
SECONDS = 20
Second = tuple[int, int, float]
"""Requests, failures, and the latency (ms) of every request."""


def _operation(name: str, tell: Callable[[int], Second | None]) -> Operation:
    """None: a second without anything."""
    found = {second: tell(second) for second in range(SECONDS)}
    intervals = [
        Interval(
            second=second,
            requests=one[0],
            failures=one[1],
            bytes=0,
            latencies=load_results.encoded([one[2] * 1000] * one[0]),
        )
        for second, one in found.items()
        if one is not None
    ]
    return Operation(name=name, errors={}, intervals=intervals)


def _calm(_: int) -> Second:
    return 100, 0, 5.0


def _run(*operations: Operation, **changed: Any) -> Result:
    """Members join within the first second; 5 s are warm-up, and a broker is killed at 10 s."""
    found: dict[str, Any] = {"operations": [*operations, load_results.joins()], "marks": [FAULT]}
    return load_results.result(SECONDS, stall=None, **(found | changed))


def _text_of(result: Result) -> str:
    """Behind the words on the fault itself."""
    (shown,) = aftermaths(result)
    before, _, felt = shown.partition("broker 2 killed. ")
    assert before == "At 10 s: "
    return felt


def test_a_fault_is_answered_with_what_it_did_and_how_long() -> None:
    (shown,) = aftermaths(load_results.result(100, errors={"timed out": 4}))
    assert shown.startswith(
        "At 60 s: broker 1, leader of orders-0, was killed. produce took up to 3,"
    )
    assert "had 4 failures, and was back to normal after 3 s (p99 before: " in shown
    assert "commit was not affected (p99 before: " in shown


def test_a_fault_that_is_not_over_at_the_end_says_so() -> None:
    (shown,) = aftermaths(load_results.result(70, stall=(60, 10.0)))
    assert "was not back to normal at the end of the run" in shown


def test_a_fault_in_the_warm_up_says_why_it_has_no_answer() -> None:
    mark = Mark(at_s=2.0, kind="fault", text="gone")
    assert aftermaths(_run(_operation("produce", _calm), marks=[mark])) == [
        "At 2 s: gone. It was in the warm-up, so its effect cannot be judged."
    ]


def test_unaffected_operation_is_reported_with_its_previous_p99() -> None:
    run = _run(_operation("end-to-end", _calm))
    assert _text_of(run) == "end-to-end was not affected (p99 before: 5.0 ms)."


@pytest.mark.parametrize(
    ("before", "why"),
    [
        pytest.param(
            lambda second: (100, 0, (13.5 - second) * 1000),
            "it was not healthy before the fault: most requests that were due at 9 s were "
            "answered only after the fault",
            id="nothing was read before the fault",
        ),
        pytest.param(
            lambda _: None,
            "it was not healthy before the fault: no request that was due at 9 s was answered",
            id="what was sent before the fault was never read",
        ),
        pytest.param(
            lambda second: (100, 2 if second == 7 else 0, 5.0),
            "it was not healthy before the fault: 2 requests failed at 7 s",
            id="errors",
        ),
        pytest.param(
            lambda second: (100, 0, 2000.0 if second < 7 else 5.0),
            "its p99 was not steady before the fault: it went from 5.0 to 2,000.9 ms",
            id="a queue that was still being drained",
        ),
    ],
)
def test_nothing_is_said_where_the_time_before_was_not_healthy(
    before: Callable[[int], Second | None], why: str
) -> None:
    run = _run(_operation("end-to-end", lambda at: before(at) if at < 10 else _calm(at)))
    assert _text_of(run) == f"The effect on end-to-end cannot be judged, because {why}."


def test_nothing_is_said_of_readers_that_had_not_joined() -> None:
    late = load_results.joins([90_000, 120_000, 10_400_000])
    operations = [_operation("produce", _calm), _operation("end-to-end", _calm), late]
    assert _text_of(_run(operations=operations)) == (
        "produce was not affected (p99 before: 5.0 ms). The effect on end-to-end cannot be "
        "judged, because only 2 of 3 members had joined their groups."
    )


def test_nothing_is_said_where_no_record_was_received() -> None:
    assert _text_of(_run(_operation("produce", _calm))) == (
        "produce was not affected (p99 before: 5.0 ms). The effect on end-to-end cannot be "
        "judged, because no record was received in the whole run."
    )


def test_too_little_time_before_a_fault_says_nothing() -> None:
    run = _run(_operation("end-to-end", _calm), marks=[FAULT.model_copy(update={"at_s": 8.2})])
    assert aftermaths(run) == [
        "At 8 s: broker 2 killed. The effect on end-to-end cannot be judged, because "
        "there were only 3 s between the warm-up and the fault."
    ]


def test_two_faults_in_one_second_leave_the_first_none_of_its_own() -> None:
    marks = [FAULT, FAULT.model_copy(update={"at_s": 10.5})]
    first, second = aftermaths(_run(_operation("end-to-end", _calm), marks=marks))
    assert "because no whole second was left before the end of the run" in first
    assert "end-to-end was not affected" in second


def test_errors_of_an_earlier_fault_leave_the_next_one_its_own_seconds_before() -> None:
    marks = [FAULT, FAULT.model_copy(update={"at_s": 18.0})]
    failing = _operation("end-to-end", lambda at: (100, 3 if at == 10 else 0, 5.0))
    first, second = aftermaths(_run(failing, marks=marks))
    assert "took up to 5 ms, had 3 failures, and was back to normal after 1 s" in first
    assert "end-to-end was not affected" in second


def test_seconds_in_which_nothing_came_are_felt() -> None:
    run = _run(_operation("end-to-end", lambda at: None if at in (11, 12) else _calm(at)))
    assert _text_of(run) == (
        "end-to-end took up to 5 ms, had no requests for 2 s, and was back to normal after 3 s "
        "(p99 before: 5.0 ms)."
    )


def test_operation_that_ends_with_a_fault_is_reported_without_answers() -> None:
    run = _run(_operation("end-to-end", lambda at: None if at >= 10 else _calm(at)))
    assert _text_of(run) == (
        "end-to-end had no answer, had no requests for 10 s, and was not back to normal at "
        "the end of the run or the next fault (p99 before: 5.0 ms)."
    )


def test_rare_operations_say_nothing() -> None:
    rare = _operation("rebalance", lambda at: (1, 0, 5.0) if at % 7 == 0 else None)
    assert "rebalance" not in _text_of(_run(_operation("end-to-end", _calm), rare))

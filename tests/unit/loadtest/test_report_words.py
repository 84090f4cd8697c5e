"""The report's texts about a run."""

import pytest

from raylog.loadtest.report import words
from raylog.loadtest.results import Audit, Finding, Verdict
from raylog.loadtest.scenario import Threshold
from tests.support import load_results


def test_a_run_that_passed_says_what_held() -> None:
    (reason,) = words.reasons(load_results.result(10))
    assert reason.startswith("All 3 thresholds held, and each of the 200,000 acknowledged records")


@pytest.mark.parametrize("audit", [{"excused": 7}, {"found": 150_000}])
def test_what_retries_doubled_and_retention_deleted_was_not_found_once(
    audit: dict[str, int],
) -> None:
    run = load_results.result(10)
    run = run.model_copy(update={"audit": run.audit.model_copy(update=audit)})
    assert words.reasons(run) == [
        "All 3 thresholds held, and none of the 200,000 acknowledged records is lost or torn."
    ]


def test_without_thresholds_and_audit_little_is_said() -> None:
    nothing = Audit(acknowledged=0, unanswered=0, found=0, findings=[])
    run = load_results.result(10, verdicts=[], audit=nothing)
    assert words.reasons(run) == ["No threshold was set. No record was audited."]


def test_the_gravest_is_said_first() -> None:
    run = load_results.failed(seconds=10, failure="a process that made load died")
    assert words.reasons(run) == [
        "a process that made load died",
        "3 records lost: acknowledged, but not in the log",
        "1 record doubled: in the log more than once",
        "p99 of produce at most 50 ms: found 83.2 ms",
    ]


def test_a_finding_names_its_topic() -> None:
    lost = Finding(kind="lost", topic="orders-ab", count=3, examples=["orders-ab-0: record 1"])
    expected = "3 records lost in orders-ab: acknowledged, but not in the log"
    assert words.finding_text(lost) == expected


def test_every_kind_of_finding_has_words() -> None:
    kinds = Finding.model_fields["kind"].annotation
    assert set(words.FINDINGS) == set(kinds.__args__)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("threshold", "found", "expected"),
    [
        (
            Threshold(operation="commit", percentile="p99.9_ms", max_ms=2000.0),
            2400.0,
            "p99.9 of commit at most 2,000 ms: found 2,400 ms",
        ),
        (
            Threshold(operation="produce", errors_share=0.001),
            0.0000001,
            "failures of produce at most 0.1 %: found below 0.001 %",
        ),
        (
            Threshold(lag_records=1000),
            1200.0,
            "lag of all groups at the end at most 1,000 records: found 1,200 records",
        ),
        (
            Threshold(throughput_share=0.99),
            0.98995,
            "acknowledged of the intended records at least 99 %: found 98.995 %",
        ),
        (
            Threshold(lag_records=0),
            None,
            "lag of all groups at the end at most 0 records: no lag was measured",
        ),
        (
            Threshold(operation="end-to-end", percentile="max_ms", max_ms=15000.0),
            None,
            "max of end-to-end at most 15,000 ms: no end-to-end was measured",
        ),
        (
            Threshold(throughput_share=0.9),
            None,
            "acknowledged of the intended records at least 90 %: no records were due",
        ),
    ],
)
def test_thresholds_in_words(threshold: Threshold, found: float | None, expected: str) -> None:
    assert words.verdict_text(Verdict(threshold=threshold, found=found, held=False)) == expected


def test_stairs_are_answered_with_their_capacity() -> None:
    stairs = load_results.scenario(shape={"kind": "stairs"})
    held = load_results.result(10, scenario=stairs, marks=[], capacity=48_000.0)
    assert words.answers(held) == ["The last step at which everything held was 48,000 records/s."]
    none = load_results.result(10, scenario=stairs, marks=[])
    assert words.answers(none) == ["No step held: even the first one was too much."]


def test_a_generator_that_was_the_limit_is_reported() -> None:
    assert words.generator_limit(load_results.result(10)) is None
    long = load_results.result(10, limited_by_generator=[(1.0, 3.0), (5.0, 6.0)])
    assert words.generator_limit(long) == (
        "The generator, not the broker, was the limit for 3 s of 10 s: use more processes or "
        "machines before you judge the broker by this run."
    )


def test_the_cost_of_the_generator_is_requests_over_its_cpu() -> None:
    run = load_results.result(10, operations=[load_results.operation("produce", 10)])
    cpu_s = sum(sum(each.cpu_share) for each in run.generators)
    assert words.cost(run).requests_per_cpu_s == pytest.approx(200_000 / cpu_s)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.01234, "0.0123"),
        (1.234, "1.23"),
        (99.94, "99.9"),
        (1234.5, "1,234"),
        (1e9, "1,000,000,000"),
    ],
)
def test_numbers(value: float | None, expected: str) -> None:
    assert words.number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(45.0, "45 s"), (0.5, "0.5 s"), (125.0, "2 min 5 s")]
)
def test_seconds(value: float, expected: str) -> None:
    assert words.seconds(value) == expected


def test_moments_are_shown_to_the_second() -> None:
    assert words.moment("2026-11-24T17:32:54.433311+01:00") == "2026-11-24 16:32:54 UTC"
    assert words.moment("yesterday") == "yesterday"

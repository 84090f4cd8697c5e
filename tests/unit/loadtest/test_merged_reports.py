"""Reports of processes, summed."""

from __future__ import annotations

from raylog.loadtest.histograms import added_up
from raylog.loadtest.merged_reports import MergedReports
from raylog.loadtest.results import Finding, Generator, Interval, Operation


def interval(number: int, *latencies_us: int, failures: int = 0) -> Interval:
    latencies = added_up([])
    for one in latencies_us:
        latencies.record_value(one)
    return Interval(
        second=number,
        requests=len(latencies_us),
        failures=failures,
        bytes=10 * len(latencies_us),
        latencies=latencies.encode().decode(),
    )


def produce(*intervals: Interval, **errors: int) -> Operation:
    return Operation(name="produce", errors=errors, intervals=list(intervals))


def test_seconds_of_several_reports_are_added_up() -> None:
    merged = MergedReports()
    merged.add([produce(interval(0, 10, 20))], b"one", [], None)
    late = produce(interval(0, 900), interval(1, 30, failures=2), timeout=2)
    merged.add([late], b"two", [], None)
    found = merged.operations()["produce"]
    assert found.errors == {"timeout": 2}
    first, second = found.intervals
    assert (first.requests, first.bytes, second.requests, second.failures) == (3, 30, 1, 2)
    assert added_up([first.latencies]).get_max_value() == 900
    assert merged.ledgers == [b"one", b"two"]
    assert merged.counted("produce", 0, 2) == (4, 2)
    assert merged.counted("produce", 1, 2) == (1, 2)
    assert merged.counted("join", 0, 2) == (0, 0)


def test_only_some_seconds_are_asked_for() -> None:
    merged = MergedReports()
    merged.add([produce(*(interval(number, number + 1) for number in range(5)))], b"", [], None)
    assert [one.second for one in merged.operations(1, 3)["produce"].intervals] == [1, 2]


def test_samples_just_before_the_start_count_as_the_first_second() -> None:
    merged = MergedReports()
    merged.add([produce(interval(-1, 5), interval(0, 7))], b"", [], None)
    (first,) = merged.operations()["produce"].intervals
    assert (first.second, first.requests) == (0, 2)


def test_a_second_that_is_answered_over_a_minute_keeps_few_histograms() -> None:
    merged = MergedReports()
    for number in range(60):
        merged.add([produce(interval(0, 1_000 * number + 1))], b"", [], None)
    (first,) = merged.operations()["produce"].intervals
    assert first.requests == added_up([first.latencies]).get_total_count() == 60


def test_rare_errors_are_kept_together() -> None:
    merged = MergedReports()
    for number in range(150):
        merged.add([produce(interval(0), **{f"error {number}": 1})], b"", [], None)
    errors = merged.operations()["produce"].errors
    assert len(errors) == 100
    assert errors["other errors"] == 51
    assert sum(errors.values()) == 150


def test_findings_and_processes() -> None:
    merged = MergedReports()
    lost = Finding(kind="lost", count=2, examples=["orders-0 at 7"])
    for seconds in (1, 2):
        generator = Generator(
            worker=1,
            host="here",
            cores=2,
            pid=3,
            cpu_share=[0.5] * seconds,
            late_ms=[0.0] * seconds,
            lateness="",
            clock_offset_us=0,
            clock_uncertainty_us=0,
        )
        merged.add([], b"", [lost], generator)
    assert merged.findings.result()[0].count == 4
    assert merged.generators[1].cpu_share == [0.5, 0.5], "the newest report has all seconds"

"""The data of charts and tables: exact sums and percentiles over seconds."""

import pytest

from raylog.loadtest.report.latencies import BadLatencies, edge_ms, merged, on_grid, percentiles_ms
from raylog.loadtest.report.series import GRID, POINTS_MAX, points, totals, width_s
from raylog.loadtest.results import Interval, Operation
from tests.support import load_results


def _operation(*intervals: Interval) -> Operation:
    return Operation(name="produce", errors={}, intervals=list(intervals))


def _interval(second: int, *latencies_us: float, failures: int = 0) -> Interval:
    return Interval(
        second=second,
        requests=len(latencies_us),
        failures=failures,
        bytes=100 * len(latencies_us),
        latencies=load_results.encoded(latencies_us),
    )


def test_percentiles_of_several_seconds_are_those_of_all_their_requests() -> None:
    together = merged([load_results.encoded([1000] * 98), load_results.encoded([5000, 80_000])])
    found = percentiles_ms(together, (50.0, 99.0, 100.0))
    assert found == pytest.approx([1.0, 5.0, 80.0], rel=0.001)


def test_nothing_counted_has_no_percentiles() -> None:
    assert percentiles_ms(merged([]), (50.0, 100.0)) == [None, None]
    assert percentiles_ms(merged(["", load_results.encoded([])]), (50.0,)) == [None]


@pytest.mark.parametrize("text", ["no base64!", "AAAA", "HISTFAAAAB", "é", "SGVsbG8gd29ybGQ="])
def test_latencies_that_are_none_are_reported(text: str) -> None:
    with pytest.raises(BadLatencies, match="expected an HdrHistogram: "):
        merged([text])


def test_latencies_of_another_form_are_reported() -> None:
    from hdrh.histogram import HdrHistogram

    other = HdrHistogram(1, 1000, 2)
    other.record_value(5)
    with pytest.raises(BadLatencies, match="expected latencies up to 3,600,000,000 µs with 3"):
        merged([other.encode().decode()])


def test_the_grid_has_each_request_in_the_cell_of_its_latency() -> None:
    latencies = (1, 9, 10, 12, 999, 1000, 5_000_000, 3_600_000_000)
    found = on_grid(merged([load_results.encoded(latencies)]), GRID)
    assert sum(found.values()) == len(latencies)
    assert {0, GRID, 2 * GRID + 9, 3 * GRID} <= set(found)
    assert edge_ms(3 * GRID, GRID) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("duration_s", "width"), [(1, 1), (400, 1), (401, 2), (1800, 5), (86_400, 300), (1e7, 25_000)]
)
def test_lines_have_a_bounded_number_of_points(duration_s: float, width: int) -> None:
    assert width_s(duration_s) == width
    assert duration_s / width <= POINTS_MAX


def test_points_add_up_seconds_and_know_those_without_requests() -> None:
    operation = _operation(
        _interval(0, 1000), _interval(1, 3000, 3000, failures=1), _interval(5, 2000)
    )
    found = points(operation, duration_s=6.5, width=2)
    assert [each.at_s for each in found] == [0, 2, 4, 6]
    assert [each.requests for each in found] == [3, 0, 1, 0]
    assert [each.failures for each in found] == [1, 0, 0, 0]
    assert found[0].percentiles_ms[0] == pytest.approx(3.0, rel=0.001)
    assert found[1].percentiles_ms == [None] * 5


def test_seconds_in_several_parts_are_added_up() -> None:
    (found,) = points(_operation(_interval(0, 1000), _interval(0, 2000)), 1.0, 1)
    assert found.requests == 2
    assert found.percentiles_ms[-1] == pytest.approx(2.0, rel=0.001)


def test_totals_leave_out_the_warm_up() -> None:
    result = load_results.result(10)
    operation = _operation(_interval(4, 900_000), _interval(5, 1000), _interval(9, 2000))
    found = totals(operation, result)
    assert (found.requests, found.bytes, found.seconds) == (2, 200, 5.0)
    assert found.percentiles_ms[-1] == pytest.approx(2.0, rel=0.001)
    assert found.rate == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("warmup_s", "duration_s", "requests", "seconds"),
    [(3.33, 30.0, 26, 26), (3.0, 30.5, 27, 27), (2.5, 9.9, 6, 6), (0.5, 0.9, 0, 1)],
)
def test_rates_are_over_the_seconds_that_are_counted(
    warmup_s: float, duration_s: float, requests: int, seconds: int
) -> None:
    """One request a second is a rate of 1, wherever the warm-up and the run end."""
    result = load_results.result(40)
    scenario = result.scenario.model_copy(update={"warmup_s": warmup_s})
    result = result.model_copy(update={"duration_s": duration_s, "scenario": scenario})
    found = totals(_operation(*(_interval(second, 1000) for second in range(40))), result)
    assert (found.requests, found.seconds) == (requests, seconds)

"""The results of client library runs, and which targets are missed."""

import pytest

from bench.client_libraries import (
    AIOKAFKA,
    CONFLUENT,
    RAYLOG,
    RAYLOG_ASYNCIO,
    Case,
    Figures,
    Results,
    lines_of,
    missed,
    ratio,
)

POLL = Case("Raylog", "poll", 100, "none")
SEND = Case("Raylog", "send", 100, "none")
LATENCY = Case("Raylog", "latency", 100, "none")


def figures(*per_cpu_s: float) -> Figures:
    return Figures(list(per_cpu_s), [one / 2 for one in per_cpu_s], grown_mib=[1.0, 9.4])


def test_a_ratio_is_the_median_of_the_ratios_within_a_round() -> None:
    results: Results = {
        (POLL, RAYLOG): figures(100.0, 10.0, 300.0),
        (POLL, CONFLUENT): figures(200.0, 20.0, 100.0),
    }
    assert ratio(results, POLL, CONFLUENT) == 0.5
    assert ratio(results, POLL, AIOKAFKA) is None
    assert ratio(results, SEND, CONFLUENT) is None


def test_aiokafka_is_compared_with_both_clients() -> None:
    results: Results = {
        (SEND, RAYLOG): figures(500.0),
        (SEND, RAYLOG_ASYNCIO): figures(400.0),
        (SEND, AIOKAFKA): figures(100.0),
    }
    ratios = {line[4]: line[-1] for line in lines_of(results)}
    assert ratios == {RAYLOG: "", RAYLOG_ASYNCIO: "1.25", AIOKAFKA: "5.00, 4.00"}


def test_a_missed_target_is_reported_with_both_figures() -> None:
    results: Results = {
        (POLL, RAYLOG): figures(50.0),
        (POLL, CONFLUENT): figures(100.0),
        (SEND, RAYLOG): figures(60.0),
        (SEND, CONFLUENT): figures(100.0),
    }
    assert missed(results) == [
        "poll of 100 B, none, at Raylog: expected 0.6 times the records per CPU-second of "
        "confluent-kafka, found 0.50"
    ]


@pytest.mark.parametrize("library", [RAYLOG, CONFLUENT])
def test_a_line_has_medians_spread_and_the_largest_growth(library: str) -> None:
    results: Results = {(POLL, RAYLOG): figures(1e3, 3e3), (POLL, CONFLUENT): figures(1e3, 3e3)}
    lines = {line[4]: line for line in lines_of(results)}
    assert lines[library][5:] == [
        "2,000",
        "1,000",
        "1,000-3,000",
        "9",
        "" if library == RAYLOG else "1.00",
    ]


def test_latencies_have_quantiles_in_place_of_rates() -> None:
    results: Results = {(LATENCY, RAYLOG): Figures(p50_ms=[1.0], p99_ms=[2.0], grown_mib=[0.0])}
    assert lines_of(results) == [
        ["Raylog", "latency", "100", "none", RAYLOG, "p50 1.00 ms", "p99 2.00 ms", "", "0", ""]
    ]
    assert missed(results) == []

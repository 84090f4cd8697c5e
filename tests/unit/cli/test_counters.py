"""How much the counters of several processes increased."""

from __future__ import annotations

import pytest

from raylog.cli.counters import Buckets, Process, bucket_growth, growth, p99_s

A, B = ("gateway", "gateway-0"), ("gateway", "gateway-1")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, None),
        ({A: 1}, {A: 3}, 2),
        ({A: 1, B: 5}, {A: 3, B: 5}, 2),
        ({A: 1, B: 5}, {A: 3}, 2),  # B is silent
        ({A: 1}, {A: 3, B: 5}, 2),  # B is new, or was silent
        ({A: 1, B: 5}, {A: 3, B: 1}, 2),  # B was started again
        ({B: 5}, {B: 1}, None),
    ],
)
def test_growth_of_counters(
    before: dict[Process, float], now: dict[Process, float], expected: float | None
) -> None:
    assert growth(before, now) == expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {A: {0.1: 5, 1.0: 7}}, {}),
        ({A: {0.1: 5, 1.0: 7}}, {A: {0.1: 6, 1.0: 9}}, {0.1: 1, 1.0: 2}),
        ({A: {1.0: 7}, B: {1.0: 1}}, {A: {1.0: 9}, B: {1.0: 4}}, {1.0: 5}),
        ({A: {0.1: 5, 1.0: 7}, B: {1.0: 1}}, {A: {0.1: 1, 1.0: 9}, B: {1.0: 4}}, {1.0: 3}),
        ({A: {1.0: 7}}, {A: {0.1: 2, 1.0: 9}}, {0.1: 2, 1.0: 2}),
    ],
)
def test_growth_of_histograms(
    before: dict[Process, Buckets], now: dict[Process, Buckets], expected: Buckets
) -> None:
    assert bucket_growth(before, now) == expected


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ({}, None),
        ({0.1: 0, float("inf"): 0}, None),
        ({0.1: 100, float("inf"): 100}, 0.099),
        ({float("inf"): 100, 0.1: 50}, 0.1),
        ({0.1: 90, 1.0: 100, float("inf"): 100}, 0.91),
        ({0.1: 0, float("inf"): 5}, 0.1),
    ],
)
def test_percentiles(counts: dict[float, float], found: float | None) -> None:
    assert p99_s(counts) == (None if found is None else pytest.approx(found))

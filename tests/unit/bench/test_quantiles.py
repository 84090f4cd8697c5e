"""A quantile is reported only if enough samples lie beyond it."""

from __future__ import annotations

import pytest

from bench.quantiles import quantile, quantile_text


@pytest.mark.parametrize(
    ("count", "part", "found"),
    [
        (10, 0.5, 5),
        (9, 0.5, None),
        (500, 0.99, 495),
        (499, 0.99, None),
        (3, 0.99, None),  # their maximum is no 99th percentile
        (0, 0.5, None),
        (5_000, 0.999, 4_995),
    ],
)
def test_a_quantile_needs_samples_beyond_it(count: int, part: float, found: float | None) -> None:
    assert quantile([float(one) for one in range(count, 0, -1)], part) == found


def test_unknown_quantile_is_a_dash() -> None:
    assert quantile_text(None, 2) == "-"
    assert quantile_text(1.23456, 1, scale=1000) == "1,234.6"

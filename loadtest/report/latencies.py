"""Reads and merges the latencies of results, and puts them on a grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from hdrh.histogram import HdrHistogram

from raylog.loadtest.histograms import (
    LATENCY_US_MAX,
    Numbers,
    counts_index,
    new_histogram,
    values_of,
)

_US_IN_MS = 1000


class BadLatencies(ValueError):
    """A text that is not an encoded histogram. The message describes it."""


def merged(encoded: Iterable[str]) -> HdrHistogram:
    """The exact sum of all histograms. Raises BadLatencies if one is invalid."""
    total = new_histogram()
    for text in encoded:
        if text:
            _add(total, text)
    return total


def _add(total: HdrHistogram, text: str) -> None:
    try:
        found = HdrHistogram.decode(text.encode())
    except Exception as failure:  # of base64, zlib, ctypes or the library
        raise BadLatencies(f"expected an HdrHistogram: {failure}") from failure
    if found.counts_len != total.counts_len:
        raise BadLatencies(
            f"expected latencies up to {LATENCY_US_MAX:,} µs with {total.significant_figures} "
            f"digits, found up to {found.highest_trackable_value:,} with "
            f"{found.significant_figures}"
        )
    total.add(found)


def percentiles_ms(histogram: HdrHistogram, wanted: Sequence[float]) -> list[float | None]:
    """Percentiles in ms; None for each if nothing was counted."""
    if not histogram.get_total_count():
        return [None] * len(wanted)
    found = histogram.get_percentile_to_value_dict(list(wanted))
    return [found[percentile] / _US_IN_MS for percentile in wanted]


def up_to(histogram: HdrHistogram, limit_ms: float) -> int:
    """How many latencies were at most `limit_ms`, to 3 digits."""
    if limit_ms <= 0:
        return 0
    counts: Numbers = np.frombuffer(histogram.counts, np.int64)
    (last,) = counts_index(np.array([limit_ms * _US_IN_MS], np.int64))
    return int(counts[: last + 1].sum())


def on_grid(histogram: HdrHistogram, steps: int) -> dict[int, int]:
    """Counts by cell of a grid with `steps` cells per decade. Cell 0 begins at 1 µs."""
    counts: Numbers = np.frombuffer(histogram.counts, np.int64)
    (filled,) = np.nonzero(counts)
    cells, places = np.unique(_cells(len(counts), steps)[filled], return_inverse=True)
    sums = np.zeros(len(cells), np.int64)
    np.add.at(sums, places, counts[filled])
    return dict(zip(cells.tolist(), sums.tolist(), strict=True))


def edge_ms(cell: int, steps: int) -> float:
    """The lower edge of a cell."""
    return math.pow(10, cell / steps) / _US_IN_MS


@lru_cache(maxsize=8)
def _cells(length: int, steps: int) -> Numbers:
    """The cell of each index of a histogram."""
    values = np.maximum(values_of(np.arange(length)), 1)
    cells: Numbers = (np.log10(values) * steps).astype(np.int64)
    return cells

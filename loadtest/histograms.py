"""Latencies as HdrHistograms: 1 µs to an hour with 3 significant digits.

HdrHistogram's own `record_value` runs interpreted code for each value. Here numpy finds the buckets
of many values at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

LATENCY_US_MAX = 3_600_000_000
_DIGITS = 3
_HALF_BITS = 10
"""The 11 highest bits of a value count, so half of a bucket needs 10 bits."""
Numbers = NDArray[np.int64]


class Counts(NamedTuple):
    """Counts of values by index in a histogram, with ascending indexes."""

    indexes: Numbers
    counts: Numbers


NO_COUNTS = Counts(np.empty(0, np.int64), np.empty(0, np.int64))


def new_histogram() -> HdrHistogram:
    """An empty histogram."""
    return HdrHistogram(1, LATENCY_US_MAX, _DIGITS)


def encoded(counts: Counts) -> str:
    """A histogram of these counts, as compressed base64."""
    histogram = new_histogram()
    if len(counts.indexes):
        column = np.frombuffer(histogram.counts, np.int64)
        column[counts.indexes] = counts.counts
        first, last = int(counts.indexes[0]), int(counts.indexes[-1])
        histogram.set_internal_tacking_values(first, last, int(counts.counts.sum()))
    text: bytes = histogram.encode()
    return text.decode()


def added_up(texts: Iterable[str]) -> HdrHistogram:
    """The sum of several encoded histograms."""
    total = new_histogram()
    for text in texts:
        total.decode_and_add(text)
    return total


def counted(values_us: Numbers) -> Counts:
    """The counts of values."""
    return Counts(*np.unique(counts_index(values_us), return_counts=True))


def sum_of(parts: Sequence[Counts]) -> Counts:
    """The sum of several counts."""
    if not parts:
        return NO_COUNTS
    if len(parts) == 1:
        return parts[0]
    indexes, places = np.unique(
        np.concatenate([part.indexes for part in parts]), return_inverse=True
    )
    counts = np.zeros(len(indexes), np.int64)
    np.add.at(counts, places, np.concatenate([part.counts for part in parts]))
    return Counts(indexes, counts)


def counts_index(values_us: Numbers) -> Numbers:
    """The index of each value in a histogram. Values out of range get the nearest one in range."""
    values = np.clip(values_us, 1, LATENCY_US_MAX)
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    buckets = np.maximum(bits - (_HALF_BITS + 1), 0)
    return (buckets << _HALF_BITS) + (values >> buckets)


def values_of(indexes: Numbers) -> Numbers:
    """The smallest value at each index."""
    buckets = np.maximum((indexes >> _HALF_BITS) - 1, 0)
    values: Numbers = (indexes - (buckets << _HALF_BITS)) << buckets
    return values

"""Latencies as HdrHistograms: µs from 1 to an hour, 3 significant digits.

HdrHistogram's own `record_value` takes a step of the interpreter for each value; here numpy finds
the places of many at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

LATENCY_US_MAX = 3_600_000_000
_DIGITS = 3
_HALF_BITS = 10
"""The 11 highest bits of a value count; half of a bucket is told apart by 10."""
Numbers = NDArray[np.int64]


def new_histogram() -> HdrHistogram:
    """An empty one."""
    return HdrHistogram(1, LATENCY_US_MAX, _DIGITS)


def encoded(counts: Mapping[int, int]) -> str:
    """A histogram of these counts by index, compressed base64."""
    histogram = new_histogram()
    for index, count in counts.items():
        histogram.record_value(value_of(index), count)
    text: bytes = histogram.encode()
    return text.decode()


def added_up(texts: Iterable[str]) -> HdrHistogram:
    """One histogram of several that are encoded."""
    total = new_histogram()
    for text in texts:
        total.decode_and_add(text)
    return total


def counted(values_us: Numbers) -> Counter[int]:
    """Counts of values by index."""
    unique, counts = np.unique(counts_index(values_us), return_counts=True)
    return Counter(dict(zip(unique.tolist(), counts.tolist(), strict=True)))


def counts_index(values_us: Numbers) -> Numbers:
    """Where a histogram counts each value; those out of range count as the nearest in range."""
    values = np.clip(values_us, 1, LATENCY_US_MAX)
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    buckets = np.maximum(bits - (_HALF_BITS + 1), 0)
    return (buckets << _HALF_BITS) + (values >> buckets)


def value_of(index: int) -> int:
    """The smallest value that is counted at an index."""
    bucket = max((index >> _HALF_BITS) - 1, 0)
    return (index - (bucket << _HALF_BITS)) << bucket

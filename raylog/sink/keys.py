"""Partitions of whole columns of keys; `client.producer.partitioner` handles single keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from raylog.client.arrow.hashing import murmur2_of

_POSITIVE = np.uint32(0x7FFFFFFF)


def partitions_of_keys(
    keys: pa.LargeBinaryArray, counts: NDArray[np.int64] | int
) -> NDArray[np.int64]:
    """Return the partition of each key, out of `counts` partitions; null counts as an empty key."""
    return (murmur2_of(keys) & _POSITIVE).astype(np.int64) % counts

"""Kafka's hash of keys, `producer.partitioner.murmur2`, for a whole column at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from raylog.client.arrow.slices import bounds_of, content_of, large_bounds_of
from raylog.client.arrow.varints import Bytes, Numbers
from raylog.client.producer.partitioner import murmur2

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_FEW = 32
"""Once no more keys than this have bytes left, they are hashed one by one."""

Hashes = NDArray[np.uint32]


def murmur2_of(keys: pa.BinaryArray | pa.LargeBinaryArray) -> Hashes:
    """Return the hash of each key; a null is hashed like an empty key."""
    is_large = pa.types.is_large_binary(keys.type)
    bounds = large_bounds_of(keys) if is_large else bounds_of(keys).astype(np.int64)
    data = content_of(keys)
    starts, sizes = bounds[:-1], bounds[1:] - bounds[:-1]
    hashes = _SEED ^ sizes.astype(np.uint32)
    which = np.arange(len(sizes))
    word_counts = sizes >> 2
    rounds = int(word_counts.max(initial=0))
    for n in range(rounds):
        if word_counts.min(initial=rounds) <= n:
            more = word_counts > n
            which, starts, word_counts = which[more], starts[more], word_counts[more]
            if len(which) <= _FEW < len(sizes):
                break
        word = _words(data, starts + 4 * n) * _M
        word ^= word >> np.uint32(24)
        word *= _M
        if len(which) == len(hashes):
            hashes = hashes * _M ^ word
        else:
            hashes[which] = hashes[which] * _M ^ word
    else:
        which = which[:0]
    hashes = _finished(data, bounds, hashes)
    for n in which.tolist():
        hashes[n] = murmur2(data[bounds[n] : bounds[n + 1]].tobytes())
    return hashes


def _finished(data: Bytes, bounds: Numbers, hashes: Hashes) -> Hashes:
    """Add the bytes after the last whole word, and do the final mixing."""
    sizes = bounds[1:] - bounds[:-1]
    rests = sizes & 3
    if rests.any():
        behind = bounds[1:] - rests
        for n in range(rests.max()):
            has = rests > n
            byte = data.take(behind + n, mode="clip").astype(np.uint32)
            hashes ^= np.where(has, byte << np.uint32(8 * n), np.uint32(0))
        hashes = np.where(rests > 0, hashes * _M, hashes)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _words(data: Bytes, at: Numbers) -> Hashes:
    """Return the little-endian 4-byte words at positions that need not be aligned."""
    shifted: Hashes = np.ndarray((max(0, len(data) - 3),), "<u4", data.data, strides=(1,))
    return shifted[at]

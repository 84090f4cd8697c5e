"""Which partition keys go to, whole columns at a time; `client.partitioner` does it one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from raylog.client.producer.partitioner import murmur2

_SEED, _M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)
_WORD = 4
_LONG_WORDS = 64
"""Keys above that are taken one by one."""


def partitions_of_keys(
    keys: pa.LargeBinaryArray, counts: NDArray[np.int64] | int
) -> NDArray[np.int64]:
    """The partition of each key, of `counts` partitions; of nulls as of empty ones."""
    return (murmur2_of(keys) & _POSITIVE).astype(np.int64) % counts


def murmur2_of(keys: pa.LargeBinaryArray) -> NDArray[np.uint32]:
    """MurmurHash2 of each, as Kafka's Java client computes it."""
    _, offsets, content = keys.buffers()
    data = np.frombuffer(content or b"", np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = bounds[:-1], np.diff(bounds)
    hashes = _SEED ^ lengths.astype(np.uint32)
    words = lengths // _WORD
    for i in range(min(int(words.max(initial=0)), _LONG_WORDS)):
        rows = np.flatnonzero(words > i)
        word = _little_endian(data, starts[rows] + _WORD * i, _WORD) * _M
        word = (word ^ (word >> np.uint32(24))) * _M
        hashes[rows] = (hashes[rows] * _M) ^ word
    for left in range(1, _WORD):
        rows = np.flatnonzero(lengths % _WORD == left)
        rest = _little_endian(data, starts[rows] + _WORD * words[rows], left)
        hashes[rows] = (hashes[rows] ^ rest) * _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(words > _LONG_WORDS).tolist():
        hashes[row] = murmur2(keys[row].as_py())
    return hashes


def _little_endian(
    data: NDArray[np.uint8], starts: NDArray[np.int64], size: int
) -> NDArray[np.uint32]:
    """The numbers of `size` bytes at `starts`."""
    found = np.zeros(len(starts), np.uint32)
    for i in range(size):
        found |= data[starts + i].astype(np.uint32) << np.uint32(8 * i)
    return found

"""Zigzag varints of whole columns: `raylog.wire.varint` for arrays."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from raylog.wire.errors import InvalidRecord
from raylog.wire.varint import VARINT_BYTES_MAX

Numbers: TypeAlias = NDArray[np.int64]
Zigzags: TypeAlias = NDArray[np.uint64]
Bytes: TypeAlias = NDArray[np.uint8]
Flags: TypeAlias = NDArray[np.bool_]

_LONGER = 3


def _pairs() -> tuple[NDArray[np.int16], NDArray[np.int8]]:
    """Return, for each pair of bytes, the number at its start and its width (3: any longer one)."""
    pairs = np.arange(1 << 16, dtype=np.int32)
    first, second = pairs & 0xFF, pairs >> 8
    zigzag = np.where(first > 127, first & 0x7F | second << 7, first)
    width = np.where(first > 127, np.where(second > 127, _LONGER, 2), 1)
    return ((zigzag >> 1) ^ -(zigzag & 1)).astype(np.int16), width.astype(np.int8)


_NUMBERS, _WIDTHS = _pairs()
_SHORT_NUMBERS = _NUMBERS[:128].astype(np.int64)


def read_varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers at positions, and the positions after them.

    Positions past the end read the last byte, so callers that may pass such positions must check
    where the numbers end. Raises InvalidRecord for a number of more than 64 bits.
    """
    first = data.take(at, mode="clip")
    if first.max(initial=0) <= 127:
        return _SHORT_NUMBERS.take(first), at + 1
    pair = data.take(at + 1, mode="clip").astype(np.uint16)
    pair <<= 8
    pair |= first
    width = _WIDTHS.take(pair)
    number = _NUMBERS.take(pair).astype(np.int64)
    behind = at + width
    if width.max(initial=0) == _LONGER:
        (longer,) = (width == _LONGER).nonzero()
        number[longer], behind[longer] = _read_long(data, at[longer])
    return number, behind


def _read_long(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Read numbers of any width."""
    zigzag = np.zeros(len(at), np.uint64)
    behind = at.copy()
    which = np.arange(len(at))
    for width in range(VARINT_BYTES_MAX):
        byte = data.take(behind[which], mode="clip")
        zigzag[which] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * width)
        behind[which] += 1
        if width == VARINT_BYTES_MAX - 1 and (byte > 1).any():
            break
        which = which[byte > 127]
        if not len(which):
            magnitude = (zigzag >> np.uint64(1)).view(np.int64)
            return magnitude ^ -(zigzag & np.uint64(1)).view(np.int64), behind
    raise InvalidRecord("a number of more than 64 bits")


def zigzags(numbers: Numbers) -> Zigzags:
    """Return numbers in zigzag form, with the sign in bit 0."""
    zigzag: Zigzags = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    return zigzag


def varint_widths(numbers: Zigzags) -> Numbers:
    """Return the number of bytes each varint takes."""
    widths = np.ones(len(numbers), np.int64)
    most = int(numbers.max(initial=0)) >> 7
    limit = 7
    while most:
        widths += numbers >= np.uint64(1 << limit)
        limit += 7
        most >>= 7
    return widths


def write_varints(out: Bytes, at: Numbers, numbers: Zigzags) -> None:
    """Write numbers at positions."""
    while True:
        more = numbers > 127
        if not more.any():
            out[at] = numbers
            return
        out[at] = (numbers & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))
        if not more.all():
            at, numbers = at[more], numbers[more]
        at = at + 1
        numbers = numbers >> np.uint64(7)

"""Values with sender, sequence number, intended time and checksum.

| bytes | content |
|---|---|
| 8 | the run |
| 4 | the sender |
| 8 | the sender's sequence number in this partition, from 0 |
| 8 | the intended time of sending, µs since 1970 |
| any | filler, which compresses to about half |
| 4 | CRC-32 of everything before it, little-endian |

The CRC-32 of a whole value, including its checksum, is the same for all intact values: `RESIDUE`.
So a reader checks thousands of values without parsing one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

HEAD = Struct("<QIQq")
BYTES_MIN = HEAD.size + 4
RESIDUE = 0x2144DF1C
_FILLERS = 64
_HEADS = np.dtype([("run", "<u8"), ("sender", "<u4"), ("sequence", "<u8"), ("intended_us", "<i8")])
_crc_bytes = Struct("<I").pack

Heads = NDArray[np.void]
"""Columns `run`, `sender`, `sequence` and `intended_us` of values."""


def run_number(run: str) -> int:
    """The 8 bytes that mark the values of a run."""
    return int.from_bytes(blake2b(run.encode(), digest_size=8).digest(), "little")


def encode(run: int, sender: int, sequence: int, intended_us: int, size: int) -> bytes:
    """A value of `size` bytes, at least `BYTES_MIN`."""
    fillers = _fillers(max(size, BYTES_MIN) - BYTES_MIN)
    body = HEAD.pack(run, sender, sequence, intended_us) + fillers[sequence % _FILLERS]
    return body + _crc_bytes(crc32(body))


def encode_many(
    run: int,
    sender: int,
    first_sequence: int,
    intended_us: Sequence[int],
    sizes: int | Sequence[int],
) -> list[bytes]:
    """Values with consecutive sequence numbers."""
    if not isinstance(sizes, int):
        return [
            encode(run, sender, sequence, at_us, size)
            for sequence, (at_us, size) in enumerate(
                zip(intended_us, sizes, strict=True), first_sequence
            )
        ]
    fillers, pack = _fillers(max(sizes, BYTES_MIN) - BYTES_MIN), HEAD.pack
    bodies = [
        pack(run, sender, sequence, at_us) + fillers[sequence % _FILLERS]
        for sequence, at_us in enumerate(intended_us, first_sequence)
    ]
    return [body + _crc_bytes(crc32(body)) for body in bodies]


def torn(values: Sequence[bytes | None]) -> list[int]:
    """The positions of damaged values."""
    if None not in values:
        whole = cast("Sequence[bytes]", values)
        if set(map(crc32, whole)) <= {RESIDUE} and min(map(len, whole), default=99) >= BYTES_MIN:
            return []
    return [
        position
        for position, value in enumerate(values)
        if value is None or len(value) < BYTES_MIN or crc32(value) != RESIDUE
    ]


def heads(values: Iterable[bytes]) -> Heads:
    """The headers of values. Each value must have at least `BYTES_MIN` bytes."""
    size = HEAD.size
    return np.frombuffer(b"".join([value[:size] for value in values]), dtype=_HEADS)


@lru_cache(maxsize=256)
def _fillers(size: int) -> tuple[bytes, ...]:
    """Some fillers of digits, which codecs compress about like real data."""
    chance = random.Random(size)  # noqa: S311 — no secret depends on it
    return tuple(chance.randbytes((size + 1) // 2).hex().encode()[:size] for _ in range(_FILLERS))

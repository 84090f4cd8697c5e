"""Extreme and boundary values of each wire kind, and what can be done to an array."""

from __future__ import annotations

import math
from random import Random
from typing import Any

TEXT_BYTES_MAX = 32_767


def _ends(bits: int) -> list[int]:
    low, high = -(1 << bits), (1 << bits) - 1
    powers = [1 << n for n in (7, 8, 15, 16, 31, 32, 47, 62) if n < bits]
    near = [value for power in powers for value in (power - 1, power, -power)]
    return [low, low + 1, -3, -2, -1, 0, 1, 2, 3, high - 1, high, low, high, *near]


TEXTS = [
    "",
    "\0",
    " ",
    ".",
    "..",
    "../../etc/passwd",
    "a/b",
    "é" * 120,
    "x" * 249,
    "x" * 250,
    "y" * 255,
    "z" * 256,
    "u" * 4_097,
    "m" * TEXT_BYTES_MAX,
    "ü" * (TEXT_BYTES_MAX // 2),
    "𝄞" * (TEXT_BYTES_MAX // 4),
    "line\nCRITICAL forged\x1b[31m",
    "%s%n{0}${jndi:x}",
    "(a+)+$",
    ".*",
    "[",
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
    "-1",
    "9223372036854775808",
    "NaN",
    "null",
]
"""Names and texts; few of them, so that what a broker keeps by name stays bounded."""

BYTES = [b"", b"\0", b"\xff" * 4, b"\0\x01" + b"\xff" * 8, b"\0\x03\x7f\xff\xff\xff", b"x" * 65_536]

ENDS: dict[str, list[Any]] = {
    "int8": _ends(7),
    "int16": _ends(15),
    "int32": _ends(31),
    "int64": _ends(63),
    "uint16": [0, 1, 0x7FFF, 0x8000, 0xFFFF],
    "uint32": [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF],
    "float64": [0.0, -0.0, -1.0, 5e-324, math.inf, -math.inf, math.nan],
    "bool": [False, True],
    "uuid": [bytes(16), b"\xff" * 16, bytes(15) + b"\x01", bytes(15) + b"\x02"],
    "string": TEXTS,
    "bytes": BYTES,
    "records": BYTES,
}
"""Kind -> values that something might not expect. The ends themselves are twice as likely."""


def spoiled_array(rng: Random, values: list[Any], kind: str | None, most: int) -> list[Any]:
    """The same array empty, with doubles, in another order, huge, or with an extreme element.

    `kind` is that of its elements, None for structs; it gets at most about `most` elements.
    """
    choice = rng.random()
    if choice < 0.25 or not values:
        return [] if kind is None or choice < 0.2 else [rng.choice(ENDS[kind])]
    if choice < 0.45:
        return [*values, rng.choice(values)]
    if choice < 0.62:
        times = rng.choice([3, 10, 50]) if choice < 0.6 else most
        return values * max(1, min(times, most // len(values)))
    if kind is None:
        return values[::-1]
    if choice < 0.63:
        return _many(rng, kind, most)
    changed = list(values)
    changed[rng.randrange(len(changed))] = rng.choice(ENDS[kind])
    return changed


def _many(rng: Random, kind: str, count: int) -> list[Any]:
    """All different where the kind allows it."""
    if kind in ("int32", "int64"):
        first = rng.choice([0, -(count // 2), 2**31 - 1 - count])
        return list(range(first, first + count))
    if kind == "string":
        return [f"n{n}" for n in range(count)]
    return [rng.choice(ENDS[kind]) for _ in range(count)]

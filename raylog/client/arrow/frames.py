"""How long records are: the one thing about them that can only be found one after the other."""

from __future__ import annotations

from array import array

from raylog.wire.errors import DecodeError, InvalidRecord
from raylog.wire.runs import RUN_TRIED, run_of
from raylog.wire.varint import read_long

_HOPS = 64
"""Records that are gone through one by one where that many were not of one size."""


def find_steps(body: memoryview, count: int, steps: array[int]) -> None:
    """Add to `steps` how far it is from each of a body's `count` records to the next.

    Records of one size are found together, others one by one. Raises InvalidRecord unless the
    last one ends where the body does.
    """
    position = 0
    copied = b""  # Python reads single bytes of it in half the time that a view takes
    tried, hops = RUN_TRIED, _HOPS
    try:
        while count:
            run, step = run_of(body, position, min(count, tried))
            if run:
                steps.extend(array("q", (step,)) * run)
                position += run * step
                tried, hops = (4 * tried if run == tried else RUN_TRIED), _HOPS
            else:
                run = min(count, hops)
                copied = copied or body.tobytes()
                position = _hop(copied, position, run, steps)
                hops *= 2
            count -= run
    except (IndexError, DecodeError) as error:
        raise InvalidRecord(
            f"records end early, {count} or fewer before the last: {error}"
        ) from error
    if position != len(body):
        raise InvalidRecord(f"records end {position - len(body):+} bytes from where the batch does")


def _hop(body: bytes, position: int, count: int, steps: array[int]) -> int:
    """Go through records one by one; returns where the last ends."""
    append = steps.append
    for _ in range(count):
        z_size = body[position]
        if z_size < 128:
            step = 1 + (z_size >> 1)
        elif (high := body[position + 1]) < 128:  # two bytes: the usual case
            step = 2 + ((z_size - 128 + (high << 7)) >> 1)
        else:
            z_size, behind = read_long(body, position + 1, z_size)
            step = behind - position + (z_size >> 1)
            if step > len(body):
                raise IndexError(f"a record of {step} bytes")
        append(step)
        position += step
    return position

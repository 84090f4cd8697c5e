"""Record lengths, the only part of a batch that must be read sequentially."""

from __future__ import annotations

from array import array

from raylog.wire.errors import DecodeError, InvalidRecord
from raylog.wire.runs import RUN_TRIED, run_of
from raylog.wire.varint import read_long

_HOPS = 64
"""Records read one by one after this many turned out not to have the same size."""


def find_steps(body: memoryview, count: int, steps: array[int]) -> None:
    """Append to `steps` the distance from each of a body's `count` records to the next.

    Runs of records of the same size are found at once, others one by one. Raises InvalidRecord
    unless the last record ends where the body does.
    """
    position = 0
    copied = b""  # reading single bytes of it takes Python half the time of a view
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
    """Read records one by one; return where the last one ends."""
    append = steps.append
    for _ in range(count):
        z_size = body[position]
        if z_size < 128:
            step = 1 + (z_size >> 1)
        elif (high := body[position + 1]) < 128:  # two bytes, the usual case
            step = 2 + ((z_size - 128 + (high << 7)) >> 1)
        else:
            z_size, behind = read_long(body, position + 1, z_size)
            step = behind - position + (z_size >> 1)
            if step > len(body):
                raise IndexError(f"a record of {step} bytes")
        append(step)
        position += step
    return position

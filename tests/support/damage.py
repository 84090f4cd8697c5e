"""Damage that disks or people may do to a partition replica's files while they are closed."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raylog.storage.checkpoint import (
    HIGH_WATERMARK_KIND,
    PRODUCERS_KIND,
    STATE_KIND,
    STATE_VERSION,
    decode,
    encode,
)
from raylog.storage.index import (
    HEAD_BYTES,
    SparseIndex,
    body_bytes,
    decode_body,
    decode_head,
    encode_index,
    head_bytes,
)
from raylog.wire.records import LENGTH_OVERHEAD, unpack_header

Damage = Callable[[Path, random.Random], None]


def segments(directory: Path) -> list[Path]:
    """Return the segment files of a partition, oldest first."""
    return sorted(directory.glob("*.log"))


def batches(segment: Path) -> list[tuple[int, int]]:
    """Return (position, size) of every batch in a segment."""
    data = segment.read_bytes()
    found, position = [], 0
    while position + 61 <= len(data):
        length, magic = unpack_header(data, position)[1], unpack_header(data, position)[3]
        if magic != 2 or position + LENGTH_OVERHEAD + length > len(data):
            break
        found.append((position, LENGTH_OVERHEAD + length))
        position += LENGTH_OVERHEAD + length
    return found


def _overwrite(path: Path, position: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[position : position + len(data)] = data
    path.write_bytes(whole)


def _flip(path: Path, position: int, rng: random.Random) -> None:
    old = path.read_bytes()[position]
    _overwrite(path, position, bytes([old ^ (1 << rng.randrange(8))]))


def _some_batch(path: Path, rng: random.Random) -> tuple[int, int]:
    found = batches(path)
    return rng.choice(found) if found else (0, 0)


# ---- the tail --------------------------------------------------------------------------------


def tail_garbage(directory: Path, rng: random.Random) -> None:
    last = segments(directory)[-1]
    end = sum(size for _, size in batches(last))
    _overwrite(last, end, rng.randbytes(rng.randint(1, 300)))


def tail_zeros(directory: Path, rng: random.Random) -> None:
    last = segments(directory)[-1]
    end = sum(size for _, size in batches(last))
    count = rng.randint(1, max(end, 1))
    _overwrite(last, end - count, bytes(count))


def half_a_batch(directory: Path, rng: random.Random) -> None:
    last = segments(directory)[-1]
    found = batches(last)
    if found:
        position, size = found[-1]
        with last.open("r+b") as file:
            file.truncate(position + rng.randrange(size))


def wrong_crc_at_the_end(directory: Path, rng: random.Random) -> None:
    last = segments(directory)[-1]
    for position, size in batches(last)[-rng.randint(1, 3) :]:
        _flip(last, position + rng.randrange(21, size), rng)


def older_batch_again(directory: Path, rng: random.Random) -> None:
    last = segments(directory)[-1]
    end = sum(size for _, size in batches(last))
    position, size = _some_batch(last, rng)
    _overwrite(last, end, last.read_bytes()[position : position + size])


# ---- files cut or missing --------------------------------------------------------------------


def cut_anywhere(directory: Path, rng: random.Random) -> None:
    one = rng.choice(segments(directory))
    with one.open("r+b") as file:
        file.truncate(rng.randint(0, sum(size for _, size in batches(one))))


def cut_last(directory: Path, rng: random.Random) -> None:
    last = segments(directory)[-1]
    with last.open("r+b") as file:
        file.truncate(rng.randint(0, sum(size for _, size in batches(last))))


def emptied(directory: Path, rng: random.Random) -> None:
    rng.choice(segments(directory)).write_bytes(b"")


def all_emptied(directory: Path, rng: random.Random) -> None:
    for one in segments(directory):
        one.write_bytes(b"")


def last_missing(directory: Path, rng: random.Random) -> None:
    segments(directory)[-1].unlink()


def middle_missing(directory: Path, rng: random.Random) -> None:
    found = segments(directory)
    rng.choice(found[1:-1] or found).unlink()


def first_missing(directory: Path, rng: random.Random) -> None:
    segments(directory)[0].unlink()


def everything_missing(directory: Path, rng: random.Random) -> None:
    for one in directory.iterdir():
        one.unlink()


# ---- bytes that changed ----------------------------------------------------------------------


def flipped_bit_in_old_data(directory: Path, rng: random.Random) -> None:
    one = rng.choice(segments(directory)[:-1] or segments(directory))
    position, size = _some_batch(one, rng)
    if size:
        _flip(one, position + rng.randrange(size), rng)


def flipped_header(directory: Path, rng: random.Random) -> None:
    """Flip a bit in offset, length, leader epoch or magic: no checksum covers these."""
    one = rng.choice(segments(directory))
    position, size = _some_batch(one, rng)
    if size:
        _flip(one, position + rng.randrange(17), rng)


def garbage_in_old_data(directory: Path, rng: random.Random) -> None:
    one = rng.choice(segments(directory)[:-1] or segments(directory))
    end = sum(size for _, size in batches(one))
    if end:
        position = rng.randrange(end)
        _overwrite(one, position, rng.randbytes(min(rng.randint(1, 4000), end - position)))


# ---- indexes ---------------------------------------------------------------------------------


def _each_index(directory: Path, change: Callable[[Path], object]) -> None:
    for one in directory.glob("*.index"):
        change(one)


def index_cut(directory: Path, rng: random.Random) -> None:
    _each_index(directory, lambda one: one.write_bytes(one.read_bytes()[: rng.randrange(200)]))


def index_garbage(directory: Path, rng: random.Random) -> None:
    _each_index(directory, lambda one: one.write_bytes(rng.randbytes(rng.randrange(300))))


def index_missing(directory: Path, rng: random.Random) -> None:
    _each_index(directory, Path.unlink)


def _lie(path: Path, lie: Callable[[SparseIndex], None]) -> None:
    """Change an index and recompute its checksums."""
    data = path.read_bytes()
    head = decode_head(data[: head_bytes(data[:HEAD_BYTES])])
    if head is None:
        return
    index = decode_body(head, data[head.body_position : head.body_position + body_bytes(head)])
    if index is None:
        return
    if not len(index):
        index.add(1, 70, -1)
    lie(index)
    path.write_bytes(encode_index(head.summary, index, head.aborted))


def index_past_the_end(directory: Path, rng: random.Random) -> None:
    def lie(index: SparseIndex) -> None:
        index.positions = array("I", [each + 1_000_000 for each in index.positions])

    _each_index(directory, lambda one: _lie(one, lie))


def index_falling(directory: Path, rng: random.Random) -> None:
    def lie(index: SparseIndex) -> None:
        index.offsets = array("I", reversed(index.offsets))
        index.positions = array("I", rng.sample(list(index.positions), len(index)))

    _each_index(directory, lambda one: _lie(one, lie))


def index_off_by_some(directory: Path, rng: random.Random) -> None:
    def lie(index: SparseIndex) -> None:
        index.offsets = array("I", [max(each - 1, 0) for each in index.offsets])

    _each_index(directory, lambda one: _lie(one, lie))


# ---- checkpoints -----------------------------------------------------------------------------


def _garbled(name: str) -> Damage:
    def damage(directory: Path, rng: random.Random) -> None:
        for one in directory.glob(name):
            one.write_bytes(rng.randbytes(rng.randrange(200)))

    return damage


def _removed(name: str) -> Damage:
    def damage(directory: Path, rng: random.Random) -> None:
        for one in directory.glob(name):
            one.unlink()

    return damage


def _cut(name: str) -> Damage:
    def damage(directory: Path, rng: random.Random) -> None:
        for one in directory.glob(name):
            one.write_bytes(one.read_bytes()[: rng.randrange(one.stat().st_size + 1)])

    return damage


def _lying(name: str, kind: int, version: int, lie: Callable[[Any], Any]) -> Damage:
    """Return damage that changes the contents of a checkpoint and recomputes its checksum."""

    def damage(directory: Path, rng: random.Random) -> None:
        for one in directory.glob(name):
            contents = decode(kind, version, one.read_bytes(), str(one))
            if contents is not None:
                one.write_bytes(encode(kind, version, lie(contents.value)))

    return damage


def _state(**changes: object) -> Damage:
    return _lying("state", STATE_KIND, STATE_VERSION, lambda contents: contents | changes)


DAMAGES: dict[str, Damage] = {
    one.__name__: one
    for one in (
        tail_garbage,
        tail_zeros,
        half_a_batch,
        wrong_crc_at_the_end,
        older_batch_again,
        cut_anywhere,
        cut_last,
        emptied,
        all_emptied,
        last_missing,
        middle_missing,
        first_missing,
        everything_missing,
        flipped_bit_in_old_data,
        flipped_header,
        garbage_in_old_data,
        index_cut,
        index_garbage,
        index_missing,
        index_past_the_end,
        index_falling,
        index_off_by_some,
    )
} | {
    "state_garbage": _garbled("state"),
    "state_missing": _removed("state"),
    "state_cut": _cut("state"),
    "recovery_point_too_far": _state(recovery_point=1 << 40),
    "recovery_point_zero": _state(recovery_point=0),
    "log_start_too_far": _state(log_start_offset=1 << 40),
    "epochs_of_the_future": _state(epochs=[[0, 0], [1 << 20, 3]]),
    "epochs_gone": _state(epochs=[]),
    "state_of_another_shape": _state(epochs="none", clean_end=7),
    "state_is_a_list": _lying("state", STATE_KIND, STATE_VERSION, lambda _: [1, 2, 3]),
    "high_watermark_garbage": _garbled("high-watermark"),
    "high_watermark_missing": _removed("high-watermark"),
    "high_watermark_too_far": _lying(
        "high-watermark", HIGH_WATERMARK_KIND, 2, lambda it: [1 << 40, *it[1:]]
    ),
    "high_watermark_is_text": _lying("high-watermark", HIGH_WATERMARK_KIND, 2, lambda _: "far"),
    "producers_garbage": _garbled("*.producers"),
    "producers_missing": _removed("*.producers"),
    "producers_cut": _cut("*.producers"),
    "producers_of_another_shape": _lying("*.producers", PRODUCERS_KIND, 1, lambda _: {"open": 3}),
}

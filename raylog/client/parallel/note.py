"""What is finished beyond a committed offset, as the text that is committed with it.

A group's committed offset has room for a text of 4,096 bytes. The note says in it which of the
offsets from the committed one on are finished already, so that a restart does not repeat them.

| part | meaning |
|---|---|
| `raylog-note:1:` | whose it is, and its version |
| `r:` or `b:` | run lengths, or a bitmap: whichever is shorter |
| base85 | CRC-32 of all that follows and of the place, then runs or bitmap |

Runs are unsigned varints: unfinished, finished, unfinished, ... from the committed offset on. A
bitmap has one bit an offset, least significant first. The CRC covers topic, partition and offset
too: a note that a tool copied to another offset, or another topic, is not believed.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Sequence

from raylog.client.cluster import TopicPartition

NOTE_BYTES_MAX = 4_096
"""`offset.metadata.max.bytes` of brokers, by default."""
_PREFIX = "raylog-note:1:"
_RUNS = "r:"
_BITMAP = "b:"
_HEAD_BYTES = len(_PREFIX) + len(_RUNS)
_CRC_BYTES = 4
_SPAN_MAX = 1 << 40
"""A note that spans more offsets than that is not ours."""

Range = tuple[int, int]
"""Offsets from the first to before the second."""


class NoteUnreadable(ValueError):
    """A text beside a committed offset that is no note of ours, or not of this offset."""


def encode_note(key: TopicPartition, committed: int, finished: Iterable[Range]) -> str:
    """The note of sorted, disjoint ranges above `committed`; "" if there is none."""
    ranges = list(finished)
    if not ranges:
        return ""
    runs = _encode_runs(committed, ranges)
    span = ranges[-1][1] - committed
    if _bitmap_bytes(span) < len(runs):
        kind, payload = _BITMAP, _encode_bitmap(committed, ranges)
    else:
        kind, payload = _RUNS, runs
    crc = _crc(key, committed, kind, payload)
    return _PREFIX + kind + base64.b85encode(crc + payload).decode()


def decode_note(key: TopicPartition, committed: int, text: str) -> list[Range]:
    """The finished ranges of a note, sorted and disjoint; raises NoteUnreadable.

    An empty text says that nothing beyond the offset is finished.
    """
    if not text:
        return []
    if not text.startswith(_PREFIX):
        raise NoteUnreadable(f"{key}: expected a note of Raylog, found {text[:40]!r}")
    kind, encoded = text[len(_PREFIX) : _HEAD_BYTES], text[_HEAD_BYTES:]
    try:
        data = base64.b85decode(encoded)
    except ValueError as error:
        raise NoteUnreadable(f"{key}: a damaged note: {error}") from error
    payload = data[_CRC_BYTES:]
    if data[:_CRC_BYTES] != _crc(key, committed, kind, payload):
        raise NoteUnreadable(f"{key}: a damaged note, or not of offset {committed}")
    if kind == _RUNS:
        return list(_decode_runs(key, committed, payload))
    if kind == _BITMAP:
        return list(_decode_bitmap(committed, payload))
    raise NoteUnreadable(f"{key}: a note of unknown kind {kind!r}")


def note_bytes_at_most(unfinished: int, span: int) -> int:
    """How long a note may be with so many unfinished records among `span` offsets.

    It holds whichever of them finish next: that never makes more unfinished ones.
    """
    runs = (2 * unfinished + 1) * max(1, -(-span.bit_length() // 7))
    payload = _CRC_BYTES + min(runs, _bitmap_bytes(span))
    return _HEAD_BYTES + payload + -(-payload // 4)


def _crc(key: TopicPartition, committed: int, kind: str, payload: bytes) -> bytes:
    place = f"{key.topic}/{key.partition}/{committed}/{kind}".encode()
    return zlib.crc32(payload, zlib.crc32(place)).to_bytes(_CRC_BYTES, "big")


def _bitmap_bytes(span: int) -> int:
    return -(-span // 8)


def _encode_runs(committed: int, ranges: Sequence[Range]) -> bytes:
    out = bytearray()
    position = committed
    for start, end in ranges:
        assert start >= position, "ranges are sorted and disjoint"
        assert end > start, "a range has offsets"
        for length in (start - position, end - start):
            rest = length
            while rest > 0x7F:
                out.append(rest & 0x7F | 0x80)
                rest >>= 7
            out.append(rest)
        position = end
    return bytes(out)


def _decode_runs(key: TopicPartition, committed: int, payload: bytes) -> Iterator[Range]:
    lengths = []
    length = shift = 0
    for byte in payload:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            lengths.append(length)
            length = shift = 0
    if shift or len(lengths) % 2 or sum(lengths) > _SPAN_MAX:
        raise NoteUnreadable(f"{key}: a note whose runs make no sense")
    position = committed
    for unfinished, finished in zip(lengths[::2], lengths[1::2], strict=True):
        start = position + unfinished
        position = start + finished
        if finished:
            yield start, position


def _encode_bitmap(committed: int, ranges: Sequence[Range]) -> bytes:
    bits = 0
    for start, end in ranges:
        bits |= ((1 << (end - start)) - 1) << (start - committed)
    return bits.to_bytes(_bitmap_bytes(ranges[-1][1] - committed), "little")


def _decode_bitmap(committed: int, payload: bytes) -> Iterator[Range]:
    bits = int.from_bytes(payload, "little")
    position = committed
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits >>= skipped
        start = position + skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        bits >>= length
        position = start + length
        yield start, position

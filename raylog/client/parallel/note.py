"""The commit metadata that lists finished records beyond the committed offset.

A committed offset has room for 4,096 bytes of metadata. The note there says which offsets from the
committed one on are already finished, so that a restart does not run them again.

| part | meaning |
|---|---|
| `raylog-note:1:` | marks a note, with its version |
| `r:` or `b:` | run lengths, or a bitmap: whichever is shorter |
| base85 | CRC-32 of partition, offset, kind and payload; then the payload: runs or bitmap |

Runs are unsigned varints: unfinished, finished, unfinished, ... from the committed offset on. A
bitmap has one bit per offset, least significant first. Because the CRC covers topic, partition and
offset, a note that a tool copied to another topic or offset is rejected.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Sequence

from raylog.client.cluster import TopicPartition

NOTE_BYTES_MAX = 4_096
"""The brokers' default `offset.metadata.max.bytes`."""
_PREFIX = "raylog-note:1:"
_RUNS = "r:"
_BITMAP = "b:"
_HEAD_BYTES = len(_PREFIX) + len(_RUNS)
_CRC_BYTES = 4
_SPAN_MAX = 1 << 40
"""A note that spans more offsets than this is rejected."""

Range = tuple[int, int]
"""First offset, and exclusive end."""


class NoteUnreadable(ValueError):
    """Commit metadata that is not a note, or a note of another offset."""


def encode_note(key: TopicPartition, committed: int, finished: Iterable[Range]) -> str:
    """Encode sorted, disjoint ranges above `committed`; "" if there are none."""
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
    """Decode a note's finished ranges, sorted and disjoint; raise NoteUnreadable.

    Empty metadata means that nothing beyond the offset is finished.
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
    """Return the maximum size of a note with this many unfinished records among `span` offsets.

    The bound holds whichever records finish next, because that never adds unfinished ones.
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

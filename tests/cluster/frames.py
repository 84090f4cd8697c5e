"""Requests as raw bytes, written by hand so that no code under test builds them.

First valid ones, then every way to break them. Lengths, counts and offsets follow Kafka's protocol;
flexible versions (KIP-482) write counts plus one as varints and end with tagged fields.
"""

import gzip
import random
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache

import cramjam
import lz4.frame
import zstandard
from crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 18, 19, 20, 21
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS = 22, 23, 32

BOMB_BYTES = 256 * 1_048_576
"""What a bomb swells to; compressed it stays below the default limit of a batch."""

_SNAPPY_BOMB_BYTES = 16 * 1_048_576
INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes for one connection; `kind` says what is wrong with them."""

    kind: str
    data: bytes

    @property
    def is_whole(self) -> bool:
        """Whether the length in front is that of what follows."""
        return len(self.data) >= 4 and struct.unpack_from(">i", self.data)[0] == len(self.data) - 4

    @property
    def may_be_silent(self) -> bool:
        """Whether chance may have asked for no answer, or for a late one (acks=0, a long wait)."""
        return self.kind in ("flipped", "random body", "trailing")


def uvarint(value: int) -> bytes:
    """Unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Signed varint in zigzag form."""
    return uvarint((value << 1) ^ (value >> 63) if value < 0 else value << 1)


def string(text: str) -> bytes:
    """Length as int16."""
    return struct.pack(">h", len(text)) + text.encode()


def compact(text: str) -> bytes:
    """Length plus one as varint."""
    return uvarint(len(text) + 1) + text.encode()


def framed(body: bytes) -> bytes:
    """With its length in front."""
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, *, flexible: bool) -> bytes:
    """Request header v1, or v2 with tagged fields."""
    return struct.pack(">hhi", api_key, version, 7) + string("m") + (b"\0" if flexible else b"")


def record(value: bytes) -> bytes:
    """One record at the batch's first offset, without key and headers."""
    body = b"\0\0\0" + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    payload: bytes,
    *,
    attributes: int = 0,
    records: int = 1,
    last_offset_delta: int | None = None,
    magic: int = 2,
    base_offset: int = 0,
) -> bytes:
    """A v2 batch around `payload`, with a true CRC whatever else is untrue."""
    last = records - 1 if last_offset_delta is None else last_offset_delta
    checked = struct.pack(">hiqqqhii", attributes, last, 1000, 1000, -1, -1, -1, records) + payload
    rest = struct.pack(">ibI", 0, magic, crc32c(checked)) + checked
    return struct.pack(">qi", base_offset, len(rest)) + rest


def produce(topic: str, batches: bytes, *, flexible: bool = False) -> bytes:
    """Produce v7 or v9 to partition 0 with acks=1."""
    if not flexible:
        body = struct.pack(">hhi", -1, 1, 1000) + struct.pack(">i", 1) + string(topic)
        body += struct.pack(">ii", 1, 0) + struct.pack(">i", len(batches)) + batches
        return framed(header(PRODUCE, 7, flexible=False) + body)
    body = b"\0" + struct.pack(">hi", 1, 1000) + uvarint(2) + compact(topic)
    body += uvarint(2) + struct.pack(">i", 0) + uvarint(len(batches) + 1) + batches + b"\0\0\0"
    return framed(header(PRODUCE, 9, flexible=True) + body)


def metadata(topic: str, *, flexible: bool = False) -> bytes:
    """Metadata v4 or v9 of one topic, which is not to be created."""
    if not flexible:
        body = struct.pack(">i", 1) + string(topic) + b"\0"
        return framed(header(METADATA, 4, flexible=False) + body)
    body = uvarint(2) + compact(topic) + b"\0" + b"\0\0\0" + b"\0"
    return framed(header(METADATA, 9, flexible=True) + body)


def fetch(topic: str, *, flexible: bool = False) -> bytes:
    """Fetch v4 or v12 of partition 0 from its beginning, without waiting."""
    limits = struct.pack(">iiiib", -1, 0, 1, 1_048_576, 0)
    if not flexible:
        body = limits + struct.pack(">i", 1) + string(topic)
        body += struct.pack(">iiqi", 1, 0, 0, 1_048_576)
        return framed(header(FETCH, 4, flexible=False) + body)
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1_048_576) + b"\0"
    body = limits + struct.pack(">ii", 0, -1) + uvarint(2) + compact(topic)
    body += uvarint(2) + partition + b"\0" + uvarint(1) + compact("") + b"\0"
    return framed(header(FETCH, 12, flexible=True) + body)


def list_offsets(topic: str, timestamp_ms: int) -> bytes:
    """ListOffsets v1 of partition 0."""
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, 0, timestamp_ms)
    return framed(header(LIST_OFFSETS, 1, flexible=False) + body)


def api_versions() -> bytes:
    """ApiVersions v3."""
    body = compact("malformed") + compact("1") + b"\0"
    return framed(header(API_VERSIONS, 3, flexible=True) + body)


def sound(rng: random.Random, topic: str) -> bytes:
    """A request with nothing wrong, of a kind that changes no topic."""
    good = batch(record(rng.randbytes(rng.randrange(64))))
    return rng.choice(
        [
            produce(topic, good),
            produce(topic, good, flexible=True),
            metadata(topic),
            metadata(topic, flexible=True),
            fetch(topic),
            fetch(topic, flexible=True),
            list_offsets(topic, rng.choice([-1, -2, 1000])),
            api_versions(),
        ]
    )


def noise(rng: random.Random, _: str) -> bytes:
    """Random bytes with a true length."""
    return framed(rng.randbytes(rng.randrange(2_000)))


def unframed_noise(rng: random.Random, _: str) -> bytes:
    """Random bytes whose first four are whatever length they are."""
    return rng.randbytes(rng.randrange(1, 200))


def random_body(rng: random.Random, _: str) -> bytes:
    """A sound header of any API and version, then random bytes."""
    api_key, version = rng.randrange(-2, 95), rng.randrange(-1, 20)
    if api_key in (CREATE_TOPICS, DELETE_TOPICS):
        version = 99
    start = header(api_key, version, flexible=rng.random() < 0.5)
    return framed(start + rng.randbytes(rng.randrange(300)))


def truncated(rng: random.Random, topic: str) -> bytes:
    """Cut anywhere, with a length that agrees."""
    body = sound(rng, topic)[4:]
    return framed(body[: rng.randrange(len(body))])


def unfinished(rng: random.Random, topic: str) -> bytes:
    """Cut anywhere, so that the rest never comes."""
    data = sound(rng, topic)
    return data[: rng.randrange(1, len(data))]


def trailing(rng: random.Random, topic: str) -> bytes:
    """More than the request needs, with a length that agrees."""
    return framed(sound(rng, topic)[4:] + rng.randbytes(rng.randrange(1, 50)))


def length_lie(rng: random.Random, topic: str) -> bytes:
    """A length that is negative, nothing, or more than any request may have."""
    lie = rng.choice([-(2**31), -1, 0, 1, 7, 104_857_601, 2**30, INT32_MAX])
    return struct.pack(">i", lie) + sound(rng, topic)[4:]


def flipped(rng: random.Random, topic: str) -> bytes:
    """A few bytes of the body changed."""
    data = bytearray(sound(rng, topic))
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(4, len(data))] = rng.randrange(256)
    return bytes(data)


_FIXED_BOMBS: tuple[tuple[int, int, bytes], ...] = (
    (PRODUCE, 7, struct.pack(">hhi", -1, 1, 1000)),
    (FETCH, 4, struct.pack(">iiiib", -1, 0, 1, 1_048_576, 0)),
    (LIST_OFFSETS, 1, struct.pack(">i", -1)),
    (METADATA, 4, b""),
    (CREATE_TOPICS, 2, b""),
    (DELETE_TOPICS, 1, b""),
    (DELETE_RECORDS, 0, b""),
    (OFFSET_FOR_LEADER_EPOCH, 2, b""),
    (DESCRIBE_CONFIGS, 1, b""),
)

_COMPACT_BOMBS: tuple[tuple[int, int, bytes], ...] = (
    (PRODUCE, 9, b"\0" + struct.pack(">hi", 1, 1000)),
    (FETCH, 12, struct.pack(">iiiibii", -1, 0, 1, 1_048_576, 0, 0, -1)),
    (LIST_OFFSETS, 7, struct.pack(">ib", -1, 0)),
    (METADATA, 9, b""),
    (CREATE_TOPICS, 5, b""),
    (DELETE_TOPICS, 4, b""),
)


def count_bomb(rng: random.Random, _: str) -> bytes:
    """An array of more elements than any memory holds, of which a few bytes are there."""
    rest = rng.randbytes(rng.randrange(40))
    if rng.random() < 0.5:
        api_key, version, start = rng.choice(_FIXED_BOMBS)
        count = struct.pack(">i", rng.choice([INT32_MAX, -(2**31), -2, 2**24, 50_000]))
        return framed(header(api_key, version, flexible=False) + start + count + rest)
    api_key, version, start = rng.choice(_COMPACT_BOMBS)
    count = rng.choice([uvarint(2**32 - 1), uvarint(INT32_MAX), uvarint(2**24), b"\xff" * 12])
    return framed(header(api_key, version, flexible=True) + start + count + rest)


def string_bomb(rng: random.Random, _: str) -> bytes:
    """A name longer than the frame."""
    rest = rng.randbytes(rng.randrange(20))
    if rng.random() < 0.5:
        length = struct.pack(">h", rng.choice([32_767, -1, -2, -32_768]))
        return framed(header(METADATA, 4, flexible=False) + struct.pack(">i", 1) + length + rest)
    length = rng.choice([uvarint(2**32 - 1), uvarint(INT32_MAX), b"\x80" * 10])
    return framed(header(METADATA, 9, flexible=True) + uvarint(2) + length + rest)


def tag_bomb(rng: random.Random, _: str) -> bytes:
    """Tagged fields without end: their number, or the size of one."""
    tags = rng.choice([uvarint(2**32 - 1), uvarint(1) + uvarint(5) + uvarint(INT32_MAX)])
    start = struct.pack(">hhi", rng.choice([METADATA, FETCH]), 12, 7) + string("m")
    return framed(start + tags + rng.randbytes(rng.randrange(30)))


def bad_crc(rng: random.Random, topic: str) -> bytes:
    """A batch one byte of which changed on the way."""
    data = bytearray(batch(record(rng.randbytes(50))))
    data[rng.randrange(21, len(data))] ^= 1 << rng.randrange(8)
    return produce(topic, bytes(data), flexible=rng.random() < 0.5)


def batch_lie(rng: random.Random, topic: str) -> bytes:
    """A batch with a true CRC that contradicts itself."""
    payload = record(rng.randbytes(20))
    good = batch(payload)
    lies = [
        batch(payload, records=INT32_MAX),
        batch(payload, records=-5, last_offset_delta=0),
        batch(payload, records=0, last_offset_delta=-1),
        batch(payload, last_offset_delta=INT32_MAX),
        batch(payload, last_offset_delta=-1),
        batch(payload, magic=rng.choice([0, 1, 3, -1])),
        batch(payload, base_offset=2**62),
        batch(payload, attributes=rng.choice([0x10, 0x20, 0x30, 0x07, 0x05, -1])),
        batch(payload, attributes=rng.randrange(1, 5)),
        batch(varint(INT32_MAX) + payload),
        good[:8] + struct.pack(">i", rng.choice([INT32_MAX, -1, 0, 10])) + good[12:],
        good * rng.randrange(2, 4),
        b"",
        good[: rng.randrange(len(good))],
    ]
    return produce(topic, rng.choice(lies), flexible=rng.random() < 0.5)


@cache
def _bomb(codec: int) -> bytes:
    value = bytes(_SNAPPY_BOMB_BYTES if codec == 2 else BOMB_BYTES)
    payload = record(value)
    match codec:
        case 1:
            packed = gzip.compress(payload, 6)
        case 2:
            packed = bytes(cramjam.snappy.compress_raw(payload))
        case 3:
            packed = lz4.frame.compress(payload, content_checksum=False)
        case _:
            packed = zstandard.ZstdCompressor(level=3).compress(payload)
    return batch(packed, attributes=codec)


def decompression_bomb(rng: random.Random, topic: str) -> bytes:
    """A small batch that swells beyond all measure."""
    return produce(topic, _bomb(rng.randrange(1, 5)), flexible=rng.random() < 0.5)


def lying_snappy(rng: random.Random, topic: str) -> bytes:
    """Snappy whose preamble promises 4 GiB."""
    packed = uvarint(2**32 - 1) + rng.randbytes(20)
    return produce(topic, batch(packed, attributes=2))


KINDS: dict[str, tuple[int, Callable[[random.Random, str], bytes]]] = {
    "noise": (10, noise),
    "unframed noise": (5, unframed_noise),
    "random body": (15, random_body),
    "truncated": (15, truncated),
    "unfinished": (5, unfinished),
    "trailing": (10, trailing),
    "length lie": (10, length_lie),
    "flipped": (20, flipped),
    "count bomb": (15, count_bomb),
    "string bomb": (5, string_bomb),
    "tag bomb": (5, tag_bomb),
    "bad CRC": (10, bad_crc),
    "batch lie": (20, batch_lie),
    "lying snappy": (3, lying_snappy),
    "decompression bomb": (1, decompression_bomb),
    "sound": (5, sound),
}
"""Kind -> (how often, relative to the others, and how it is made)."""


def frames(seed: int, topics: list[str], kinds: Collection[str] = ()) -> "FrameSource":
    """An endless supply that a seed determines, of some kinds or of all."""
    return FrameSource(random.Random(seed), topics, kinds or KINDS)


class FrameSource:
    """Generates frames aimed at any of the topics."""

    def __init__(self, rng: random.Random, topics: list[str], kinds: Collection[str]) -> None:
        self._rng = rng
        self._topics = topics
        self._names = list(kinds)
        self._weights = [KINDS[name][0] for name in kinds]

    def next(self) -> Frame:
        """The next frame."""
        (kind,) = self._rng.choices(self._names, self._weights)
        make = KINDS[kind][1]
        return Frame(kind, make(self._rng, self._rng.choice(self._topics)))

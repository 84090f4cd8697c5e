"""Records that every client must carry unchanged, and a digest to verify them."""

import hashlib
import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

MESSAGE_BYTES_MAX_DEFAULT = 1_048_588
"""Kafka's default `max.message.bytes`: the largest record batch, its 12-byte prefix included."""

SINGLE_RECORD_OVERHEAD = 72
"""Bytes of an uncompressed batch around one value of 2^13 to 2^20 bytes: 61 of batch header,
3 of record length, 1 attributes, 1 timestamp delta, 1 offset delta, 1 null key, 3 value length,
1 header count."""

EVENT_TIME_MS = 1_356_998_400_000
"""2013-01-01T00:00:00Z: old enough that only explicit timestamps can have made it."""

KEEP = {"retention.ms": "-1"}
"""Configs of a topic with such records, which retention deletes otherwise: Apache Kafka 30 seconds
after its start."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A record before it has an offset; `timestamp_ms` is always explicit."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as a broker holds it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a client is to produce.

    Sizes are in bytes. The client itself refuses requests above `request_bytes_max`; anything
    smaller is left to the broker.
    """

    codec: str = "none"
    idempotent: bool = True
    acks: str = "all"
    request_bytes_max: int = 4 * 1_048_576
    linger_ms: int = 20


@dataclass(frozen=True, slots=True)
class TopicShape:
    """A topic as a client reports it: partitions and their leaders (broker ids)."""

    leaders: Mapping[int, int] = field(default_factory=dict)

    @property
    def partitions(self) -> list[int]:
        """Partition numbers in ascending order."""
        return sorted(self.leaders)


class RefusedError(Exception):
    """A refusal by a broker, with Kafka's numeric error code, whatever the client calls it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"error {code}: {text}")
        self.code = code


def stored(messages: Iterable[Message], starts: Mapping[int, int] | None = None) -> list[Stored]:
    """What a topic must hold once `messages` were written in this order from offsets `starts`."""
    next_offset = dict(starts or {})
    result = []
    for m in messages:
        offset = next_offset.get(m.partition, 0)
        next_offset[m.partition] = offset + 1
        result.append(Stored(m.partition, offset, m.timestamp_ms, m.key, m.value, m.headers))
    return result


def end_offsets(records: Iterable[Stored]) -> dict[int, int]:
    """Exclusive end of each partition that occurs."""
    ends: dict[int, int] = {}
    for r in records:
        ends[r.partition] = max(ends.get(r.partition, 0), r.offset + 1)
    return ends


def digest(records: Iterable[Stored]) -> str:
    """SHA-256 over all fields in (partition, offset) order; null and empty differ."""
    sha = hashlib.sha256()
    for r in sorted(records, key=lambda r: (r.partition, r.offset)):
        sha.update(struct.pack(">iqq", r.partition, r.offset, r.timestamp_ms))
        _add(sha, r.key)
        _add(sha, r.value)
        sha.update(struct.pack(">i", len(r.headers)))
        for name, value in r.headers:
            _add(sha, name.encode())
            _add(sha, value)
    return sha.hexdigest()


def _add(sha: "hashlib._Hash", data: bytes | None) -> None:
    sha.update(struct.pack(">i", -1 if data is None else len(data)))
    sha.update(data or b"")


def differences(found: Sequence[Stored], expected: Sequence[Stored]) -> list[str]:
    """The first few records that are not as expected, abbreviated; empty if all are."""
    by_place = {(r.partition, r.offset): r for r in expected}
    lines = (
        [f"{len(found)} records, expected {len(expected)}"] if len(found) != len(expected) else []
    )
    for r in found:
        wanted = by_place.get((r.partition, r.offset))
        if wanted != r:
            lines.append(f"found {_brief(r)}, expected {_brief(wanted)}")
    return lines[:5]


def _brief(record: Stored | None) -> str:
    if record is None:
        return "nothing"
    return (
        f"p{record.partition}@{record.offset} t={record.timestamp_ms} key={_short(record.key)}"
        f" value={_short(record.value)} headers={record.headers}"
    )


def _short(data: bytes | None) -> str:
    return repr(data) if data is None or len(data) <= 40 else f"{data[:16]!r}… ({len(data)} bytes)"


def assorted(partitions: int, count: int = 60) -> list[Message]:
    """Every kind of record a client can send, spread over `partitions`, then ordinary ones."""
    rng = random.Random(partitions * 1_000 + count)
    contents = _peculiar() + [_ordinary(rng) for _ in range(count)]
    return [
        Message(i % partitions, EVENT_TIME_MS + rng.randrange(10_000_000), key, value, headers)
        for i, (key, value, headers) in enumerate(contents)
    ]


def _peculiar() -> list[tuple[bytes | None, bytes | None, Headers]]:
    return [
        (b"key", b"value", ()),
        (None, b"null key", ()),
        (b"null value", None, ()),
        (None, None, ()),
        (b"", b"", ()),
        (b"empty value", b"", ()),
        (b"", b"empty key", ()),
        (bytes(range(256)), bytes(range(255, -1, -1)), ()),
        (b"one header", b"v", (("trace", b"\x00\x01"),)),
        (b"same name twice", b"v", (("a", b"1"), ("b", b"2"), ("a", b"3"))),
        (b"null header", b"v", (("null", None), ("empty", b""), ("null", b"not this one"))),
        (b"unicode", "Größe 大きさ".encode(), (("größe-大", "✓".encode()),)),
        (b"compressible", b"\x00" * 100_000, ()),
        (b"incompressible", random.Random(7).randbytes(40_000), (("h", b"x" * 300),)),
    ]


def _ordinary(rng: random.Random) -> tuple[bytes | None, bytes | None, Headers]:
    headers = tuple((f"h{n}", rng.randbytes(n)) for n in range(rng.randrange(3)))
    return rng.randbytes(rng.randrange(1, 12)), rng.randbytes(rng.randrange(200)) * 2, headers


def ascending(count: int, step_ms: int = 1_000) -> list[Message]:
    """Partition 0, timestamps `step_ms` apart from EVENT_TIME_MS."""
    return [
        Message(0, EVENT_TIME_MS + n * step_ms, b"k%d" % n, b"value %d" % n) for n in range(count)
    ]


def single(value_bytes: int) -> Message:
    """One record with a value of `value_bytes` that no codec can shrink."""
    value = random.Random(value_bytes).randbytes(value_bytes)
    return Message(0, EVENT_TIME_MS, None, value)


LARGEST_ACCEPTED_VALUE_BYTES = MESSAGE_BYTES_MAX_DEFAULT - SINGLE_RECORD_OVERHEAD

"""Batches that clients may send, valid or wrong in one thing each, and where they are sent.

Apache Kafka walks the records of every batch: it recomputes the largest timestamp, and refuses what
no reader could read. Times are `T`, years ago, or `NOW`, when the case is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from raylog.wire.compression import Codec, compress
from tests.support.batches import NOW_MS, raw_batch, raw_record, sized, varint

T = NOW_MS
YEAR_MS = 365 * 24 * 3600 * 1000
CODECS = tuple(Codec)
LOG_APPEND = {"message.timestamp.type": "LogAppendTime"}
COMPACT = {"cleanup.policy": "compact"}
STRICT = {"message.timestamp.before.max.ms": "1000"}
NO_LIMIT = {"message.timestamp.after.max.ms": str(2**63 - 1)}

Build = Callable[[int], bytes]
"""A batch, given what the time is."""


@dataclass(frozen=True, slots=True)
class Case:
    """Batches that are sent to a topic of their own, one request each."""

    name: str
    batches: Sequence[Build]
    configs: Mapping[str, str] = field(default_factory=dict)


def batch(
    *records: bytes,
    codec: Codec = Codec.NONE,
    body: bytes | None = None,
    payload: bytes | None = None,
    base: int = T,
    largest: int = T,
    attributes: int = 0,
    count: int | None = None,
    producer_id: int = -1,
) -> bytes:
    """A batch of records or of a body; `payload` are its compressed bytes as they are."""
    plain = b"".join(records) if body is None else body
    if payload is None:
        payload = compress(codec, plain) if codec else plain
    number = len(records) if count is None else count
    return raw_batch(
        body=payload,
        count=number,
        last_offset_delta=number - 1,
        attributes=attributes | codec,
        base_timestamp=base,
        max_timestamp=largest,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=-1 if producer_id < 0 else 0,
    )


def timed(*deltas: int) -> tuple[bytes, ...]:
    """Records with these differences to the base timestamp."""
    return tuple(raw_record(n, time_delta=delta) for n, delta in enumerate(deltas))


THREE = timed(0, 5, 3)
LONG = timed(0, 100_000, *[40] * 98, 2**40, *[7] * 30)
CLAIMS: dict[str, Callable[[int], int]] = {
    "the largest": lambda base: base + 5,
    "nothing": lambda base: -1,
    "zero": lambda base: 0,
    "too little": lambda base: base + 1,
    "too much": lambda base: base + 100,
    "years too much": lambda base: base + 50 * YEAR_MS,
    "less than nothing": lambda base: -2,
    "the least": lambda base: -(2**63),
}


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _claims()
    yield from _times()
    for codec in CODECS:
        yield from _bodies(codec)
        yield from _records(codec)
    yield from _frames()
    yield from _stored_otherwise()
    yield from _several()


def always(made: bytes) -> Build:
    """The same batch, whatever the time is."""
    return lambda _now_ms: made


def _once(name: str, made: Build | bytes, configs: Mapping[str, str] | None = None) -> Case:
    build = always(made) if isinstance(made, bytes) else made
    return Case(name, [build], configs or {})


def _claims() -> Iterator[Case]:
    for codec in CODECS:
        for name, claim in CLAIMS.items():
            yield _once(f"{codec.name} claims {name}", batch(*THREE, codec=codec, largest=claim(T)))
        for name in ("nothing", "years too much"):
            yield _once(
                f"{codec.name} claims {name}, log append time",
                batch(*THREE, codec=codec, largest=CLAIMS[name](T)),
                LOG_APPEND,
            )
        yield _once(
            f"{codec.name} claims log append time", batch(*THREE, codec=codec, attributes=8)
        )
        yield _once(
            f"{codec.name} claims log append time where it is so",
            batch(*THREE, codec=codec, attributes=8),
            LOG_APPEND,
        )


def from_now(*records: bytes, codec: Codec, base: int = 0, largest: int | None = None) -> Build:
    """A batch of times that are relative to when the case is played; it may claim no largest."""

    def build(now_ms: int) -> bytes:
        claimed = -1 if largest is None else now_ms + largest
        return batch(*records, codec=codec, base=now_ms + base, largest=claimed)

    return build


def _times() -> Iterator[Case]:
    for codec in (Codec.NONE, Codec.LZ4):
        name = codec.name
        for about, deltas, base, largest in (
            ("no times", (0, 0), -1, -1),
            ("no times, but claims", (0, 0), -1, T),
            ("times of zero", (0, 0), 0, -1),
            ("one time is none", (0, -T - 1, 3), T, -1),
            ("times fall", (0, -5, -7), T, T),
            ("times below zero", (0, -5), -1000, -1),
            ("times overflow", (0, 2**62), 2**62 + 5, -1),
        ):
            made = batch(*timed(*deltas), codec=codec, base=base, largest=largest)
            yield _once(f"{name} {about}", made)
        yield _once(f"{name} many records of many times", batch(*LONG, codec=codec, largest=-1))
        yield from _times_out_of_range(codec)


def _times_out_of_range(codec: Codec) -> Iterator[Case]:
    name = codec.name
    far = timed(0, 50 * YEAR_MS, 1)
    old = (*timed(0, -5000, -6000), raw_record(3, key=None))
    back = timed(-50 * YEAR_MS, -50 * YEAR_MS + 7)
    claimed = from_now(*far, codec=codec, largest=0)
    yield _once(f"{name} a base in the future", from_now(*back, codec=codec, base=50 * YEAR_MS))
    yield _once(f"{name} one in the future", claimed)
    yield _once(
        f"{name} one in the future, claimed", from_now(*far, codec=codec, largest=50 * YEAR_MS)
    )
    yield _once(f"{name} one in the future, without a limit", claimed, NO_LIMIT)
    yield _once(f"{name} in the future, log append time", claimed, LOG_APPEND)
    yield _once(
        f"{name} one too old", from_now(*timed(0, -5000, 1), codec=codec, largest=0), STRICT
    )
    yield _once(
        f"{name} a base too old",
        from_now(*timed(5000, 5001), codec=codec, base=-5000, largest=0),
        STRICT,
    )
    yield _once(
        f"{name} two too old, one without a key in a compacted topic",
        from_now(*old, codec=codec),
        {**STRICT, **COMPACT},
    )


def _bodies(codec: Codec) -> Iterator[Case]:
    """The records' bytes as a whole."""
    name = codec.name
    body = b"".join(THREE)

    def of(body: bytes, count: int) -> bytes:
        return batch(codec=codec, body=body, count=count)

    yield _once(f"{name} no body", of(b"", 1))
    yield _once(f"{name} one record too few", of(body, 4))
    yield _once(f"{name} one record too many", of(body, 2))
    yield _once(f"{name} a million records claimed", of(body, 1_000_000))
    yield _once(f"{name} cut by a byte", of(body[:-1], 3))
    yield _once(f"{name} a byte behind", of(body + b"\0", 3))
    yield _once(f"{name} bytes behind", of(body + b"behind all", 3))
    yield _once(f"{name} garbage", of(bytes(range(40, 90)), 3))


def _records(codec: Codec) -> Iterator[Case]:
    """One record that is wrong, between two that are right."""
    name = codec.name

    def of(record: bytes) -> bytes:
        return batch(raw_record(0), record, raw_record(2), codec=codec)

    one = raw_record(1)
    for delta in (0, 2, 3, -1, 2**31 - 1, -(2**31)):
        yield _once(f"{name} offset delta {delta} for 1", of(raw_record(delta)))
    yield _once(f"{name} offset deltas from 1", batch(raw_record(1), raw_record(2), codec=codec))
    yield _once(f"{name} a length that is more by 1", of(raw_record(1, length=len(one))))
    yield _once(f"{name} a length that is less by 1", of(raw_record(1, length=len(one) - 2)))
    yield _once(f"{name} a length beyond all", of(raw_record(1, length=1000)))
    yield _once(f"{name} a length of 2^31 - 1", of(raw_record(1, length=2**31 - 1)))
    yield _once(f"{name} a negative length", of(raw_record(1, length=-5)))
    yield _once(f"{name} a length of 0", of(raw_record(1, length=0)))
    yield _once(f"{name} record attributes", of(raw_record(1, attributes=0x7F)))
    for length in (-2, 100, 2**31 - 1):
        yield _once(f"{name} a key of length {length}", of(_with(key=varint(length) + b"k")))
        yield _once(f"{name} a value of length {length}", of(_with(value=varint(length) + b"v")))
    yield _once(f"{name} a key that takes the rest", of(_with(key=varint(4) + b"kkkk", value=b"")))
    for count in (-1, 1, 5, 2**31 - 1):
        yield _once(f"{name} {count} headers announced", of(_with(headers=varint(count))))
    yield _once(f"{name} bytes behind the headers", of(_with(headers=b"\0abc")))
    yield _once(f"{name} a header", of(_with(headers=varint(1) + sized(b"h") + sized(b"x"))))
    yield _once(
        f"{name} a header without a value", of(_with(headers=varint(1) + sized(b"h") + sized(None)))
    )
    yield _once(
        f"{name} a header without a name", of(_with(headers=varint(1) + sized(None) + sized(b"x")))
    )
    yield _once(
        f"{name} a header's name beyond all",
        of(_with(headers=varint(1) + varint(50) + b"h" + sized(b"x"))),
    )
    yield _once(
        f"{name} a header's value beyond all",
        of(_with(headers=varint(1) + sized(b"h") + varint(50) + b"x")),
    )
    yield _once(
        f"{name} a header's value of length -7",
        of(_with(headers=varint(1) + sized(b"h") + varint(-7))),
    )
    yield _once(
        f"{name} a header's name that is no text",
        of(_with(headers=varint(1) + sized(b"\xff\xfe") + sized(b"x"))),
    )
    yield _once(f"{name} a varint of six bytes", of(_with(delta=b"\x82\x80\x80\x80\x80\x00")))
    yield _once(f"{name} a varint longer than it must be", of(_with(delta=b"\x82\x00")))
    yield _once(f"{name} a time of eleven bytes", of(_with(time=b"\x80" * 10 + b"\0")))
    yield _once(f"{name} no key, no value", of(_with(key=sized(None), value=sized(None))))


def _with(
    *,
    time: bytes = varint(0),
    delta: bytes = varint(1),
    key: bytes = sized(b"k"),
    value: bytes = sized(b"v"),
    headers: bytes = varint(0),
) -> bytes:
    """A record with a part that is wrong; its length is right."""
    content = b"\0" + time + delta + key + value + headers
    return varint(len(content)) + content


def _frames() -> Iterator[Case]:
    """Compressed bytes that are not one whole frame."""
    body = b"".join(THREE)
    for codec in CODECS[1:]:
        name = codec.name
        frame = compress(codec, body)

        def of(payload: bytes, codec: Codec = codec) -> bytes:
            return batch(*THREE, codec=codec, payload=payload)

        yield _once(f"{name} frame of no bytes", of(b""))
        yield _once(f"{name} frame of garbage", of(bytes(range(40, 90))))
        yield _once(f"{name} frame not compressed", of(body))
        yield _once(f"{name} frame cut by a byte", of(frame[:-1]))
        yield _once(f"{name} frame cut by a half", of(frame[: len(frame) // 2]))
        yield _once(f"{name} frame and a byte", of(frame + b"\0"))
        yield _once(f"{name} frame and garbage", of(frame + b"behind all"))
        yield _once(f"{name} frame twice", of(frame + frame))
        halves = compress(codec, THREE[0]) + compress(codec, THREE[1] + THREE[2])
        yield _once(f"{name} frame in two", of(halves))
        flipped = bytearray(frame)
        flipped[-6] ^= 0x41
        yield _once(f"{name} frame with bits flipped", of(bytes(flipped)))
        yield _once(f"{name} frame of another codec", of(compress(Codec(codec % 4 + 1), body)))
    yield _once("snappy raw", batch(*THREE, codec=Codec.SNAPPY, payload=_raw_snappy(body)))
    yield _once(
        "snappy raw and a byte", batch(*THREE, codec=Codec.SNAPPY, payload=_raw_snappy(body) + b"x")
    )
    for codec in CODECS[1:]:
        many = b"".join(raw_record(n, value=bytes(1000)) for n in range(20_000))
        yield _once(f"{codec.name} holds 20 MB", batch(codec=codec, body=many, count=20_000))


def _raw_snappy(data: bytes) -> bytes:
    """Snappy's own format, all of it literal."""
    assert len(data) < 61
    return bytes([len(data), (len(data) - 1) << 2]) + data


def _stored_otherwise() -> Iterator[Case]:
    """Topics that walk or compress records anew."""
    for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4):
        for kind in ("uncompressed", "gzip", "zstd"):
            name = f"{codec.name} stored as {kind}"
            topic = {"compression.type": kind}
            yield _once(f"{name}, claims nothing", batch(*THREE, codec=codec, largest=-1), topic)
            yield _once(
                f"{name}, claims years too much",
                batch(*THREE, codec=codec, largest=T + 50 * YEAR_MS),
                topic,
            )
            yield _once(
                f"{name}, claims nothing, log append time",
                batch(*THREE, codec=codec, largest=-1),
                {**topic, **LOG_APPEND},
            )
            yield _once(
                f"{name}, an offset delta twice",
                batch(raw_record(0), raw_record(0), codec=codec),
                topic,
            )
            yield _once(
                f"{name}, one record too many",
                batch(codec=codec, body=b"".join(THREE), count=2),
                topic,
            )
        yield _once(
            f"{codec.name} compacted, claims nothing",
            batch(*THREE, codec=codec, largest=-1),
            COMPACT,
        )
        yield _once(
            f"{codec.name} compacted, no key",
            batch(raw_record(0), raw_record(1, key=None), codec=codec),
            COMPACT,
        )
        yield _once(
            f"{codec.name} compacted, no key, an offset delta twice",
            batch(raw_record(0), raw_record(0, key=None), codec=codec),
            COMPACT,
        )


def _several() -> Iterator[Case]:
    """What lookups find in several batches."""
    for codec in (Codec.NONE, Codec.ZSTD):

        def of(*deltas: int, largest: int, codec: Codec = codec) -> Build:
            return always(batch(*timed(*deltas), codec=codec, largest=largest))

        yield Case(
            f"{codec.name} three batches that claim nothing",
            [of(0, 1, largest=-1), of(10, 30, 20, largest=-1), of(5, 30, largest=-1)],
        )
        yield Case(
            f"{codec.name} the first claims too much",
            [of(0, 1, largest=T + 10**6), of(10, 30, 20, largest=T + 30), of(5, largest=T + 5)],
        )
        yield Case(
            f"{codec.name} the last claims zero",
            [of(0, 1, largest=T + 1), of(10, 30, 20, largest=0)],
        )
        repeated = batch(*timed(3, 9, 4), codec=codec, largest=-1, producer_id=4711)
        yield Case(
            f"{codec.name} of one producer, claiming nothing",
            [always(repeated), always(repeated)],
        )

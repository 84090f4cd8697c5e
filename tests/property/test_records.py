"""Record batches: round trips, two independent implementations, and invalid bytes."""

import contextlib
from collections.abc import Callable

import aiokafka.record.default_records as aiokafka_records
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.wire.compression import Codec, compress, decompress
from raylog.wire.control import decode_end_txn_marker
from raylog.wire.errors import DecodeError, InvalidRecord, KafkaError
from raylog.wire.record import encode_records
from raylog.wire.records import (
    DECOMPRESSED_BYTES_MAX,
    Record,
    TimestampType,
    body_of,
    check_produced,
    compressed,
    decode_batch,
    encode_batch,
    encode_like,
    iter_batches,
    read_header,
    validate_records,
)
from raylog.wire.varint import decode_varint, encode_varint
from raylog.wire.walk import Walked, walk
from tests.support.kafka_python import kafka

CODECS = st.sampled_from(Codec)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**45)
CONTENT = st.none() | st.binary(max_size=200) | st.sampled_from([b"", b"x" * 8_191, b"y" * 70_000])
HEADERS = st.lists(
    st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=80)), max_size=4
).map(lambda headers: headers or ())
# aiokafka takes a first timestamp of -1 for none given yet, so these lists have none.
TIMED_LISTS = st.lists(
    st.builds(Record, st.just(0), TIMES, CONTENT, CONTENT, HEADERS), min_size=1, max_size=20
)
RECORD_LISTS = TIMED_LISTS | st.lists(
    st.builds(Record, st.just(0), TIMES | st.just(-1), CONTENT, CONTENT, HEADERS),
    min_size=1,
    max_size=20,
)


def numbered(records: list[Record], base_offset: int) -> list[Record]:
    """The records as a reader of the batch gets them."""
    return [record._replace(offset=offset) for offset, record in enumerate(records, base_offset)]


# -- against itself ------------------------------------------------------------------------------


@given(INT64)
def test_varints_come_back(number: int) -> None:
    encoded = encode_varint(number)

    assert decode_varint(b"\xff" + encoded + b"\xff", 1) == (number, 1 + len(encoded))


@given(CODECS, st.binary(max_size=5_000), st.integers(1, 200))
def test_compressed_data_comes_back(codec: Codec, unit: bytes, repeats: int) -> None:
    data = unit * repeats

    assert decompress(codec, compress(codec, data), len(data)) == data


@given(
    records=RECORD_LISTS,
    base_offset=st.integers(0, 2**62),
    codec=CODECS,
    producer=st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
    is_transactional=st.booleans(),
    leader_epoch=st.integers(-1, 2**31 - 1),
)
def test_records_and_header_come_back(
    records: list[Record],
    base_offset: int,
    codec: Codec,
    producer: tuple[int, int, int],
    is_transactional: bool,
    leader_epoch: int,
) -> None:
    buf = encode_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=is_transactional,
        leader_epoch=leader_epoch,
    )

    header = read_header(buf)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert (header.codec, header.is_transactional) == (codec, is_transactional)
    assert (header.base_offset, header.next_offset) == (base_offset, base_offset + len(records))
    assert header.partition_leader_epoch == leader_epoch
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.size == len(buf)
    assert decode_batch(buf) == numbered(records, base_offset)


@given(RECORD_LISTS, CODECS)
def test_encoded_batch_passes_the_produce_checks(records: list[Record], codec: Codec) -> None:
    buf = encode_batch(records, codec=codec)

    header = check_produced(buf)
    found = validate_records(buf, header, earliest_ms=0, latest_ms=2**45)
    assert found is not None
    assert found.max_timestamp == header.max_timestamp


def number(body: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    found, behind = decode_varint(body, position)
    if bits == 32 and (behind - position > 5 or not -(2**31) <= found < 2**31):
        raise DecodeError("no number of 32 bits")
    return found, behind


def content(body: bytes, position: int, smallest: int = -1) -> tuple[int, int]:
    """The length of the content at a position, and its end."""
    length, position = number(body, position)
    if length < smallest:
        raise InvalidRecord("no length")
    return length, position + max(length, 0)


def walked_singly(body: bytes, count: int) -> Walked:
    """A straightforward walk over one record after another."""
    position = 0
    times, lengths = [], []
    for expected in range(count):
        size, position = number(body, position)
        end = position + size
        time, position = number(body, position + 1, bits=64)
        delta, position = number(body, position)
        key, position = content(body, position)
        _, position = content(body, position)
        headers, position = number(body, position)
        if headers < 0:
            raise InvalidRecord("no number")
        for _ in range(headers):
            _, position = content(body, position, smallest=0)
            _, position = content(body, position, smallest=-(2**31))
        if position != end or size < 0 or delta != expected:
            raise InvalidRecord("not in line")
        times.append(time)
        lengths.append(key)
    if position != len(body):
        raise InvalidRecord("another number of records")
    return Walked(min(times), max(times), min(lengths) < 0)


HEADER_LISTS = st.lists(
    st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=2
)
SHAPES = st.tuples(
    st.integers(1, 90),  # records
    st.sampled_from([0, 1, 63, 64, 100, 8_191, 8_192, -1, -64, -65, 2**40]),  # time of the first
    st.sampled_from([0, 1, 7, -3]),  # between them
    st.none() | st.binary(max_size=66),
    st.none() | st.sampled_from([0, 10, 50, 60, 120]).map(bytes),
    HEADER_LISTS,
)


@settings(deadline=None)
@given(st.lists(SHAPES, min_size=1, max_size=3), st.integers(-2, 2), st.data())
def test_a_walk_is_as_one_record_after_the_other(
    shapes: list[tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    miscount: int,
    data: st.DataObject,
) -> None:
    records = [
        Record(0, time + n * step, key, value, headers)
        for count, time, step, key, value, headers in shapes
        for n in range(count)
    ]
    body = bytearray(encode_records(records, range(len(records)), 0))
    for _ in range(data.draw(st.integers(0, 2), label="changes")):
        at = data.draw(st.integers(0, len(body) - 1), label="at")
        body[at] = data.draw(st.integers(0, 255), label="byte")
    count = max(1, len(records) + data.draw(st.sampled_from([0, 0, 0, miscount])))
    try:
        expected = walked_singly(bytes(body), count)
    except (InvalidRecord, DecodeError):
        with pytest.raises(InvalidRecord):
            walk(bytes(body), count)
    else:
        assert walk(bytes(body), count) == expected


@given(RECORD_LISTS, CODECS, CODECS)
def test_reencoded_records_come_back(records: list[Record], source: Codec, target: Codec) -> None:
    buf = encode_batch(records, codec=source)
    header = read_header(buf)
    body = body_of(memoryview(buf), header, DECOMPRESSED_BYTES_MAX)
    again = compressed(header, body, target)

    assert read_header(again).codec is target
    assert decode_batch(again) == numbered(records, 0)


@given(RECORD_LISTS, CODECS, st.sampled_from(TimestampType), st.data())
def test_any_subset_of_the_records_keeps_offsets_and_times(
    records: list[Record], codec: Codec, timestamp_type: TimestampType, data: st.DataObject
) -> None:
    buf = encode_batch(records, base_offset=1_000, codec=codec, timestamp_type=timestamp_type)
    kept = [record for record in decode_batch(buf) if data.draw(st.booleans())]

    again = encode_like(read_header(buf), kept)

    assert decode_batch(again) == kept
    assert read_header(again).next_offset == 1_000 + len(records)


@given(st.lists(RECORD_LISTS, max_size=4), st.integers(0, 200))
def test_a_fetch_answer_is_whole_batches_and_a_cut_one(lists: list[list[Record]], cut: int) -> None:
    batches = [encode_batch(records) for records in lists]
    answer = b"".join(batches)
    seen = [view for _, view in iter_batches(answer[: len(answer) - cut])]

    assert seen == batches[: len(seen)]
    assert sum(map(len, batches[: len(seen) + 1])) > len(answer) - cut or cut == 0


# -- against independent implementations ---------------------------------------------------------

Parser = Callable[[bytes], list[Record]]
Builder = Callable[[list[Record], Codec], bytes]


def read_by_kafka_python(buf: bytes) -> list[Record]:
    batch = kafka.record.default_records.DefaultRecordBatch(buf)
    assert batch.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]


def read_by_aiokafka(buf: bytes) -> list[Record]:
    batch = aiokafka_records.DefaultRecordBatch(buf)
    assert batch.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]


def built_by_kafka_python(records: list[Record], codec: Codec) -> bytes:
    builder = kafka.record.default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec.value,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**24,
    )
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp, record.key, record.value, [*record.headers])
    return bytes(builder.build())


def built_by_aiokafka(records: list[Record], codec: Codec) -> bytes:
    builder = aiokafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec.value,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**24,
    )
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp, record.key, record.value, [*record.headers])
    return bytes(builder.build())


# kafka-python reads and writes snappy only where python-snappy is installed too.
PARSERS = [
    pytest.param(parser, codec, id=f"{parser.__name__}-{codec.name}")
    for parser in (read_by_kafka_python, read_by_aiokafka)
    for codec in Codec
    if (parser, codec) != (read_by_kafka_python, Codec.SNAPPY)
]
BUILDERS = [
    pytest.param(builder, codec, id=f"{builder.__name__}-{codec.name}")
    for builder in (built_by_kafka_python, built_by_aiokafka)
    for codec in Codec
    if (builder, codec) != (built_by_kafka_python, Codec.SNAPPY)
]


@pytest.mark.parametrize(("parser", "codec"), PARSERS)
@given(records=RECORD_LISTS)
def test_foreign_parsers_read_encoded_batches(
    parser: Parser, codec: Codec, records: list[Record]
) -> None:
    found = parser(encode_batch(records, codec=codec))
    assert [(*each[:4], tuple(each[4])) for each in found] == [
        (*each[:4], tuple(each[4])) for each in numbered(records, 0)
    ]


@pytest.mark.parametrize(("builder", "codec"), BUILDERS)
@given(records=TIMED_LISTS)
def test_we_read_what_others_write(builder: Builder, codec: Codec, records: list[Record]) -> None:
    buf = builder(records, codec)

    assert check_produced(buf).record_count == len(records)
    assert decode_batch(buf) == numbered(records, 0)


@pytest.mark.parametrize("builder", [built_by_kafka_python, built_by_aiokafka])
@given(records=TIMED_LISTS)
def test_uncompressed_bytes_are_equal(builder: Builder, records: list[Record]) -> None:
    ours = bytearray(encode_batch(records))
    theirs = bytearray(builder(records, Codec.NONE))
    ours[12:16] = theirs[12:16]  # leader epoch: 0 there, unknown (-1) here, the broker's to set

    assert ours == theirs


# -- junk ----------------------------------------------------------------------------------------


def read_in_every_way(buf: bytes) -> None:
    """Decode with every function. Any error but DecodeError and KafkaError fails the test."""
    with contextlib.suppress(DecodeError, KafkaError):
        header = check_produced(buf)
        found = validate_records(
            buf, header, needs_keys=True, earliest_ms=0, latest_ms=2**62, max_bytes=2**20
        )
        assert found is not None
        read = decode_batch(buf, max_bytes=2**20)  # by all who come after
        assert found.max_timestamp == max(-1, *(record.timestamp for record in read))
    with contextlib.suppress(DecodeError, KafkaError):
        for header, view in iter_batches(buf):
            encode_like(header, decode_batch(view, max_bytes=2**20))
            for record in decode_batch(view, max_bytes=2**20):
                decode_end_txn_marker(record)
    with contextlib.suppress(DecodeError, KafkaError):
        decode_batch(buf, max_bytes=2**20)


@given(st.binary(max_size=300))
def test_random_bytes(buf: bytes) -> None:
    read_in_every_way(buf)


@given(RECORD_LISTS, CODECS, st.data())
def test_mutated_batches(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    buf = bytearray(encode_batch(records, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        buf[data.draw(st.integers(0, len(buf) - 1))] = data.draw(st.integers(0, 255))

    read_in_every_way(bytes(buf[: data.draw(st.integers(0, len(buf)))]))


@given(RECORD_LISTS, CODECS, st.data())
def test_mutations_behind_a_right_crc(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    """The CRC does not protect from a client that computes it."""
    buf = encode_batch(records, codec=codec)
    body = bytearray(buf[61:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    kept = body[: data.draw(st.integers(0, len(body)))]

    read_in_every_way(with_body(buf, bytes(kept)))


@given(CODECS, st.binary(max_size=200), st.integers(1, 2**31 - 1))
def test_any_body_behind_a_right_crc(codec: Codec, body: bytes, count: int) -> None:
    buf = encode_batch([Record(0, 0, None, None, [])], codec=codec)

    read_in_every_way(with_body(buf, body, count))


def with_body(buf: bytes, body: bytes, count: int | None = None) -> bytes:
    """The batch with other record bytes, and matching length, count and CRC."""
    covered = bytearray(buf[21:61])
    if count is not None:
        covered[36:40] = count.to_bytes(4)
        covered[2:6] = (count - 1).to_bytes(4)
    covered += body
    length = (len(covered) + 9).to_bytes(4)
    return buf[:8] + length + buf[12:17] + crc32c(covered).to_bytes(4) + covered


@given(CODECS, st.binary(max_size=300))
def test_random_bytes_as_compressed_data(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(KafkaError):
        assert len(decompress(codec, data, 10_000)) <= 10_000


@given(CODECS, st.binary(min_size=1, max_size=300), st.data())
def test_mutated_compressed_data(codec: Codec, content: bytes, data: st.DataObject) -> None:
    compressed = bytearray(compress(codec, content * 20))
    for _ in range(data.draw(st.integers(1, 4))):
        compressed[data.draw(st.integers(0, len(compressed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(KafkaError):
        assert len(decompress(codec, compressed, 10_000)) <= 10_000

"""What clients may write. The answers were recorded from Apache Kafka 4.3.1 over a raw socket.

Where Raylog is stricter than Kafka, the case says so. It is never more lenient, judging by the
header.
"""

import pytest

from raylog.wire.compression import Codec
from raylog.wire.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    UnsupportedCompressionType,
)
from raylog.wire.records import check_produced, read_header
from tests.support.batches import raw_batch, raw_record

ONE = raw_record()
TWO = (raw_record(), raw_record(1))
GOOD = raw_batch(ONE)

REFUSED = {
    "no bytes": (b"", InvalidRecord),
    "five bytes": (b"abcde", InvalidRecord),
    "cut inside the header": (GOOD[:60], InvalidRecord),
    "cut by one byte": (GOOD[:-1], InvalidRecord),
    "two batches": (GOOD + GOOD, InvalidRecord),
    # Kafka drops a cut second batch in silence and calls other bytes behind a batch corrupt.
    "one batch and a cut one": (GOOD + GOOD[:-1], InvalidRecord),
    "one byte behind the batch": (GOOD + b"x", InvalidRecord),
    "format v0": (raw_batch(ONE, magic=0), InvalidRecord),
    "format v1": (raw_batch(ONE, magic=1), InvalidRecord),
    "magic 3": (raw_batch(ONE, magic=3), CorruptMessage),
    "magic -1": (raw_batch(ONE, magic=-1), CorruptMessage),
    "batch length one less than a header": (raw_batch(ONE, length=48), CorruptMessage),
    "batch length negative": (raw_batch(ONE, length=-1), CorruptMessage),
    "batch length beyond the buffer": (raw_batch(ONE, length=2**31 - 1), InvalidRecord),
    "base offset above 0": (raw_batch(ONE, base_offset=5), InvalidRecord),
    "base offset below 0": (raw_batch(ONE, base_offset=-1), InvalidRecord),
    "bad CRC": (raw_batch(ONE, crc=1), CorruptMessage),
    "bad CRC and bad count": (raw_batch(ONE, crc=1, count=7), CorruptMessage),
    "no records": (raw_batch(), InvalidRecord),
    "no records, last offset delta 0": (raw_batch(last_offset_delta=0), InvalidRecord),
    "count below the offset range": (raw_batch(*TWO, count=1), InvalidRecord),
    "count above the offset range": (raw_batch(ONE, count=2), InvalidRecord),
    "last offset delta too small": (raw_batch(*TWO, last_offset_delta=0), InvalidRecord),
    "last offset delta too large": (raw_batch(*TWO, last_offset_delta=2), InvalidRecord),
    "count and range negative": (raw_batch(ONE, count=-1, last_offset_delta=-2), InvalidRecord),
    "range that overflows": (
        raw_batch(ONE, count=-(2**31), last_offset_delta=2**31 - 1),
        InvalidRecord,
    ),
    "more records than bytes": (
        raw_batch(ONE, count=2**31 - 1, last_offset_delta=2**31 - 2),
        InvalidRecord,
    ),
    "one record in an empty body": (raw_batch(ONE, body=b""), InvalidRecord),
    "control bit": (raw_batch(ONE, attributes=0x20), InvalidRecord),
    "control bit of a transaction": (
        raw_batch(ONE, attributes=0x30, producer_id=1, producer_epoch=0, base_sequence=0),
        InvalidRecord,
    ),
    "producer id without sequence": (
        raw_batch(ONE, producer_id=5002, producer_epoch=0),
        InvalidRecord,
    ),
    "producer id with sequence -5": (
        raw_batch(ONE, producer_id=5003, producer_epoch=0, base_sequence=-5),
        InvalidRecord,
    ),
    "producer epoch -5": (
        raw_batch(ONE, producer_id=5004, producer_epoch=-5, base_sequence=0),
        InvalidProducerEpoch,
    ),
    # Kafka lets the next five pass: no client sends them, and each would mislead later readers.
    "producer epoch -1": (
        raw_batch(ONE, producer_id=5001, producer_epoch=-1, base_sequence=0),
        InvalidProducerEpoch,
    ),
    "producer id -2": (
        raw_batch(ONE, producer_id=-2, producer_epoch=0, base_sequence=0),
        InvalidRecord,
    ),
    "transactional without producer id": (raw_batch(ONE, attributes=0x10), InvalidRecord),
    "delete horizon bit": (raw_batch(ONE, attributes=0x40), InvalidRecord),
    "attribute bit 15": (raw_batch(ONE, attributes=-(2**15)), InvalidRecord),
    # Kafka refuses it on topics of LogAppendTime and clears it on others.
    "log append time": (raw_batch(ONE, attributes=0x08), InvalidTimestamp),
    # Kafka stumbles over these: UNKNOWN_SERVER_ERROR.
    "codec 5": (raw_batch(ONE, attributes=5), UnsupportedCompressionType),
    "codec 6": (raw_batch(ONE, attributes=6), UnsupportedCompressionType),
    "codec 7": (raw_batch(ONE, attributes=7), UnsupportedCompressionType),
}

ACCEPTED = {
    "one record": GOOD,
    "two records": raw_batch(*TWO),
    "a leader epoch, which the broker overwrites": raw_batch(ONE, leader_epoch=7),
    "idempotent": raw_batch(ONE, producer_id=5000, producer_epoch=0, base_sequence=0),
    "transactional": raw_batch(
        ONE, attributes=0x10, producer_id=5000, producer_epoch=3, base_sequence=9
    ),
    "greatest sequence": raw_batch(*TWO, producer_id=78, producer_epoch=0, base_sequence=2**31 - 1),
    # kafkajs sends zeros there.
    "epoch and sequence without producer id": raw_batch(ONE, producer_epoch=0, base_sequence=0),
    "no timestamps": raw_batch(ONE, base_timestamp=-1, max_timestamp=-1),
    # Apache Kafka refuses this too, when it walks the records; see validate_records.
    "records of another number than the header's": raw_batch(*TWO, count=1, last_offset_delta=0),
    "smallest record": raw_batch(raw_record(key=None, value=None)),
}


@pytest.mark.parametrize(("buf", "refusal"), REFUSED.values(), ids=REFUSED)
def test_refuses(buf: bytes, refusal: type[KafkaError]) -> None:
    with pytest.raises(refusal):
        check_produced(buf)


@pytest.mark.parametrize("buf", ACCEPTED.values(), ids=ACCEPTED)
def test_accepts(buf: bytes) -> None:
    assert check_produced(buf) == read_header(buf)


@pytest.mark.parametrize("codec", list(Codec))
def test_accepts_every_codec(codec: Codec) -> None:
    assert check_produced(raw_batch(ONE, attributes=codec)).codec is codec


def test_accepts_views_of_a_receive_buffer() -> None:
    frame = bytearray(b"before" + GOOD + b"behind")
    view = memoryview(frame)[6 : 6 + len(GOOD)]

    assert check_produced(view).size == len(GOOD)
    assert check_produced(view.toreadonly()).size == len(GOOD)


def test_one_flipped_bit_anywhere_is_refused_except_in_the_leader_epoch() -> None:
    buf = raw_batch(*TWO)
    for bit in range(len(buf) * 8):
        flipped = bytearray(buf)
        flipped[bit // 8] ^= 1 << bit % 8
        if 12 <= bit // 8 < 16:
            assert check_produced(flipped).record_count == 2
        else:
            with pytest.raises((CorruptMessage, InvalidRecord)):
                check_produced(flipped)

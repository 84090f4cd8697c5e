"""Bulk decoding gives the same results as the ordinary decoders."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.wire import bulk
from raylog.wire.compression import Codec, compress
from raylog.wire.errors import CorruptMessage, DecodeError, InvalidRecord, MessageTooLarge
from raylog.wire.internal.blobs import (
    OFFSETS_TOPIC,
    decode_record,
    encode_key,
    encode_value,
)
from raylog.wire.internal.commits import (
    decode_commit_key,
    decode_commit_value,
    is_commit_key,
)
from raylog.wire.internal.offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from raylog.wire.record import decode_records
from raylog.wire.records import Record, decode_batch, encode_batch

BLOBS = st.none() | st.binary(max_size=70) | st.sampled_from([b"k" * 8_192, b"v" * 63, b"v" * 64])
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
RECORDS = st.lists(
    st.builds(Record, st.just(0), st.integers(-(2**40), 2**45), BLOBS, BLOBS, HEADERS),
    min_size=1,
    max_size=30,
)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


@given(st.lists(st.tuples(RECORDS, st.sampled_from(list(Codec))), max_size=3))
def test_bulk_reads_what_decode_batch_reads(parts: list[tuple[list[Record], Codec]]) -> None:
    encoded = []
    offset = 7
    for records, codec in parts:
        encoded.append(encode_batch(records, base_offset=offset, codec=codec))
        offset += len(records)
    found = [
        (key_offset, key, value)
        for header, records in bulk.batches(b"".join(encoded))
        for key_offset, key, value, _ in records
    ]
    assert found == [(r.offset, r.key, r.value) for data in encoded for r in decode_batch(data)]


@given(RECORDS, st.data())
def test_damage_is_found_or_harmless(records: list[Record], data: st.DataObject) -> None:
    """What the ordinary decoder takes for whole is whole, what is not raises INVALID_RECORD."""
    body = bytearray(encode_batch(records)[61:])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(1, len(body))) :]
    expected = None
    with contextlib.suppress(InvalidRecord):
        expected = list(decode_records(bytes(body), len(records), 0, 0))
    try:
        found = list(bulk.bulk_records(bytes(body), len(records), 0))
    except InvalidRecord:
        assert expected is None or any(record.offset < 0 for record in expected)
    else:
        if expected is not None:
            assert [each[:3] for each in found] == [(r.offset, r.key, r.value) for r in expected]


def test_a_wrong_crc_is_refused() -> None:
    data = bytearray(encode_batch([Record(0, 0, b"k", b"v", [])]))
    data[-1] ^= 1
    with pytest.raises(CorruptMessage):
        list(bulk.batches(data))


def test_batch_of_any_size_is_read_if_it_is_not_compressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log may have one: it is in memory as it is. A compressed one is bounded."""
    monkeypatch.setattr(bulk, "DECOMPRESSED_BYTES_MAX", 100)
    record = Record(0, 0, b"k", b"v" * 1_000, [])
    ((_, records),) = bulk.batches(encode_batch([record]))
    assert [value for _, _, value, _ in records] == [record.value]
    with pytest.raises(MessageTooLarge):
        list(bulk.batches(encode_batch([record], codec=Codec.GZIP)))


def test_the_end_of_each_record_is_reported() -> None:
    records = [Record(0, 0, b"k", b"v" * size, [("h", b"x")]) for size in (0, 5, 200)]
    body = encode_batch(records)[61:]
    ends = [end for _, _, _, end in bulk.bulk_records(body, 3, 0)]
    again = b"".join(body[a:b] for a, b in zip([0, *ends], ends, strict=False))
    assert again == body
    assert compress(Codec.NONE, body) == body


@given(st.text(), st.text(), INT32)
def test_commit_keys(group: str, topic: str, partition: int) -> None:
    key = encode_key(OffsetCommitKey(group=group, topic=topic, partition=partition))
    assert is_commit_key(key)
    assert decode_commit_key(key) == (group, topic, partition)
    assert not is_commit_key(encode_key(GroupMetadataKey(group=group)))
    for cut in range(2, len(key)):
        with pytest.raises(DecodeError):
            decode_commit_key(key[:cut])


@given(
    INT64,
    INT32,
    st.text(max_size=70) | st.just("x" * 200),
    INT64,
    INT64,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 4),
    st.data(),
)
def test_commit_values(
    offset: int,
    epoch: int,
    metadata: str,
    time: int,
    expiry: int,
    topic_id: bytes,
    version: int,
    data: st.DataObject,
) -> None:
    value = encode_value(
        OffsetCommitValue(
            offset=offset,
            leader_epoch=epoch,
            metadata=metadata,
            commit_timestamp=time,
            expire_timestamp=expiry,
            topic_id=topic_id,
        ),
        version,
    )
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
    assert decode_commit_value(value) == _fields(key, value)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(DecodeError):
        decode_commit_value(value[:cut])
    with pytest.raises(DecodeError):
        decode_commit_value(value + b"\0")


def _fields(key: bytes, value: bytes) -> tuple[object, ...]:
    found = decode_record(OFFSETS_TOPIC, key, value)
    assert found is not None
    commit = found[1]
    assert isinstance(commit, OffsetCommitValue)
    return (
        commit.offset,
        commit.leader_epoch,
        commit.metadata,
        commit.commit_timestamp,
        commit.expire_timestamp,
        commit.topic_id,
    )

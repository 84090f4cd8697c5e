"""Batches written by the Java producer and librdkafka, as stored by Apache Kafka 4.3.1."""

import pytest

from raylog.wire.compression import Codec
from raylog.wire.control import EndTxnMarker, decode_end_txn_marker, encode_end_txn_marker
from raylog.wire.records import (
    Record,
    check_crc,
    check_produced,
    decode_batch,
    encode_like,
    iter_batches,
    read_header,
    validate_records,
)

JAVA = {
    Codec.NONE: (
        "00000000000000000000008200000000021ad5695c000000000001000001a1fda36752000001a1fd"
        "a3677a00000000000000050000000000000000000236000000046b311276616c7565206f6e650404"
        "68310261046832026268005002046b324e76616c75652074776f2076616c75652074776f2076616c"
        "75652074776f2076616c75652074776f020468310263"
    ),
    Codec.GZIP: (
        "0000000000000000000000750000000002251d7794000100000001000001a1fda41dd6000001a1fd"
        "a41de8000000000000000b000000000000000000021f8b08000000000000ff3363606060c936142a"
        "4bcc294d55c8cf4b6561c930644a64c930624aca60506162c936f283c89594e72be0653181742603"
        "00f0d8fe2951000000"
    ),
    Codec.SNAPPY: (
        "00000000000000000000007d0000000002c84286b5000200000001000001a1fda42cae000001a1fd"
        "a42d1d000000000000000c0000000000000000000282534e41505059000000000100000001000000"
        "38529036000000046b311276616c7565206f6e6504046831026104683202626a00de0102046b324e"
        "091d0c74776f20720a0014020468310263"
    ),
    Codec.LZ4: (
        "00000000000000000000007800000000021b87c5fa000300000001000001a1fda43b55000001a1fd"
        "a43bba000000000000000d0000000000000000000204224d1860408238000000f21636000000046b"
        "311276616c7565206f6e6504046831026104683202626a00ca0102046b324e1d004f74776f200a00"
        "0a6002046831026300000000"
    ),
    Codec.ZSTD: (
        "0000000000000000000000760000000002c6890a6f000400000001000001a1fda452b6000001a1fd"
        "a45307000000000000000e0000000000000000000228b52ffd0058cc0100f40236000000046b3112"
        "76616c7565206f6e6504046831026104683202626a00a20102046b324e74776f2002046831026302"
        "002d971460ea09010000"
    ),
}

LIBRDKAFKA = {
    Codec.NONE: (
        "000000000000000000000126000000000246ac14090000000000020000018bcfe568000000018bcf"
        "e5687bffffffffffffffffffffffffffff0000000330000000046b311276616c7565206f6e650402"
        "680276026e01a40300f60102046b32900376616c75652074776f2076616c75652074776f2076616c"
        "75652074776f2076616c75652074776f2076616c75652074776f2076616c75652074776f2076616c"
        "75652074776f2076616c75652074776f2076616c75652074776f2076616c75652074776f2076616c"
        "75652074776f2076616c75652074776f2076616c75652074776f2076616c75652074776f2076616c"
        "75652074776f2076616c75652074776f2076616c75652074776f2076616c75652074776f2076616c"
        "75652074776f2076616c75652074776f20000e00c80104010100"
    ),
    Codec.GZIP: (
        "00000000000000000000007b00000000029fd70e940001000000020000018bcfe568000000018bcf"
        "e5687bffffffffffffffffffffffffffff000000031f8b08000000000000033360606060c936142a"
        "4bcc294d55c8cf4b6561ca602a63ca635cc2ccf08d918925db68023344aea43c5f6168b318f8184e"
        "30b23032320000e34e9bb5f5000000"
    ),
    Codec.SNAPPY: (
        "00000000000000000000007500000000020d9106a50002000000020000018bcfe568000000018bcf"
        "e5687bffffffffffffffffffffffffffff00000003f5019030000000046b311276616c7565206f6e"
        "650402680276026e01a40300f60102046b32900376051c0c74776f200926fe0a00fe0a00de0a0020"
        "000e00c80104010100"
    ),
    Codec.LZ4: (
        "00000000000000000000007a00000000022f51d40d0003000000020000018bcfe568000000018bcf"
        "e5687bffffffffffffffffffffffffffff0000000304224d186040823a000000f21530000000046b"
        "311276616c7565206f6e650402680276026e01a40300f60102046b3290031c004f74776f200a00ab"
        "90000e00c8010401010000000000"
    ),
    Codec.ZSTD: (
        "00000000000000000000007600000000020073b5f80004000000020000018bcfe568000000018bcf"
        "e5687bffffffffffffffffffffffffffff0000000328b52ffd0058e50100140330000000046b3112"
        "76616c7565206f6e650402680276026e01a40300f60102046b32900374776f20000e00c801040101"
        "000200bb164af8c37c02"
    ),
}

# A committed record, its marker, an aborted record, its marker.
TRANSACTIONS = (
    "0000000000000000000000410000000002432ba3bc0010000000000000018bcfe568000000018bcf"
    "e56800000000000000000a000000000000000000011e0000000112636f6d6d697474656400000000"
    "0000000001000000420000000002bd6e1d45003000000000000001a1fda3b2e6000001a1fda3b2e6"
    "000000000000000a0000ffffffff000000012000000008000000010c000000000000000000000000"
    "0000020000003f00000000026055d4b50010000000000000018bcfe568000000018bcfe568000000"
    "00000000000a000000000001000000011a000000010e61626f727465640000000000000000030000"
    "0042000000000204fe41d6003000000000000001a1fda3b336000001a1fda3b33600000000000000"
    "0a0000ffffffff000000012000000008000000000c00000000000000"
)

JAVA_CONTENT = [
    (b"k1", b"value one", [("h1", b"a"), ("h2", b"b")]),
    (b"k2", b"value two value two value two value two", [("h1", b"c")]),
]
LIBRDKAFKA_RECORDS = [
    Record(0, 1_700_000_000_000, b"k1", b"value one", [("h", b"v"), ("n", None)]),
    Record(1, 1_700_000_000_123, b"k2", b"value two " * 20, ()),
    Record(2, 1_700_000_000_100, None, None, ()),
]


@pytest.mark.parametrize("codec", JAVA)
def test_batches_of_the_java_producer(codec: Codec) -> None:
    buf = bytes.fromhex(JAVA[codec])

    header = check_produced(buf)
    records = decode_batch(buf)

    assert header.codec is codec
    assert header.size == len(buf)
    assert header.producer_epoch == header.base_sequence == 0
    assert [(record.key, record.value, record.headers) for record in records] == JAVA_CONTENT
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == records[1].timestamp
    validate_records(buf, header, needs_keys=True, earliest_ms=0, latest_ms=2**62)


@pytest.mark.parametrize("codec", LIBRDKAFKA)
def test_batches_of_librdkafka(codec: Codec) -> None:
    buf = bytes.fromhex(LIBRDKAFKA[codec])

    assert check_produced(buf).codec is codec
    assert decode_batch(buf) == LIBRDKAFKA_RECORDS


@pytest.mark.parametrize("captured", [JAVA[Codec.NONE], LIBRDKAFKA[Codec.NONE]])
def test_our_bytes_are_theirs(captured: str) -> None:
    buf = bytes.fromhex(captured)

    assert encode_like(read_header(buf), decode_batch(buf)) == buf


def test_markers_of_apache_kafka() -> None:
    batches = list(iter_batches(bytes.fromhex(TRANSACTIONS)))
    for header, view in batches:
        check_crc(view, header)

    assert [header.is_control for header, _ in batches] == [False, True, False, True]
    assert [header.is_transactional for header, _ in batches] == [True] * 4
    for (header, view), is_commit in zip(batches[1::2], [True, False], strict=True):
        (record,) = decode_batch(view)
        marker = decode_end_txn_marker(record)
        assert marker == EndTxnMarker(is_commit=is_commit, coordinator_epoch=0)
        assert view == encode_end_txn_marker(
            marker,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            timestamp_ms=record.timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
        )

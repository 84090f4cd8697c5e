"""Codecs: what they accept, and that no input makes them use much memory."""

import gzip
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard

from raylog.wire.compression import Codec, compress, decompress
from raylog.wire.errors import CorruptMessage, MessageTooLarge
from tests.support.cpu_time import cpu_s

MIB = 1024 * 1024
REAL = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"line %d of a log\n" % number for number in range(10_000))
XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"a", TEXT[:32_768], TEXT[:32_769], TEXT])
def test_data_comes_back_up_to_the_bound(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)

    assert decompress(codec, compressed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(compressed)), 10 * MIB) == data
    assert type(decompress(codec, bytearray(compressed), 10 * MIB)) is bytes
    if data:
        with pytest.raises(MessageTooLarge):
            decompress(codec, compressed, len(data) - 1)


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, -5, 19)]
)
def test_levels(codec: Codec, low: int, high: int) -> None:
    fast, small = compress(codec, TEXT, low), compress(codec, TEXT, high)

    assert len(small) < len(fast)
    assert decompress(codec, small, MIB) == decompress(codec, fast, MIB) == TEXT


# -- formats -------------------------------------------------------------------------------------


def test_snappy_is_written_in_chunks_of_32_kib_as_java_does() -> None:
    data = bytes(range(256)) * 200
    compressed = compress(Codec.SNAPPY, data)

    assert compressed.startswith(XERIAL_HEADER)
    (length,) = struct.unpack_from(">i", compressed, 16)
    assert bytes(cramjam.snappy.decompress_raw(compressed[20 : 20 + length])) == data[:32_768]


def test_snappy_is_read_without_the_framing_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), MIB) == TEXT


def test_lz4_frames_are_what_java_reads() -> None:
    flags = compress(Codec.LZ4, TEXT)[4]

    assert flags >> 6 == 1  # version
    assert flags >> 5 & 1 == 1  # independent blocks
    assert flags >> 3 & 1 == 0  # no content size


@pytest.mark.parametrize(
    "frame",
    [
        lz4.frame.compress(TEXT),
        lz4.frame.compress(TEXT, block_linked=False, content_checksum=True, block_checksum=True),
        lz4.frame.compress(TEXT, store_size=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB),
    ],
)
def test_lz4_frames_of_other_writers(frame: bytes) -> None:
    assert decompress(Codec.LZ4, frame, MIB) == TEXT


@pytest.mark.parametrize("has_size", [True, False])
@pytest.mark.parametrize("has_checksum", [True, False])
@pytest.mark.parametrize("data", [TEXT, b"\x00" * 300_000, b"tiny", b"x" * 300, b"y" * 70_000])
def test_zstd_frames_of_other_writers(has_size: bool, has_checksum: bool, data: bytes) -> None:
    writer = zstandard.ZstdCompressor(write_content_size=has_size, write_checksum=has_checksum)
    stream = writer.compressobj()
    frames = [writer.compress(data), stream.compress(data) + stream.flush()]

    for frame in frames:
        assert decompress(Codec.ZSTD, frame, MIB) == data


def test_gzip_with_a_file_name() -> None:
    assert decompress(Codec.GZIP, gzip.compress(TEXT, mtime=7), MIB) == TEXT


# -- malformed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", REAL)
def test_every_cut_is_corrupt(codec: Codec) -> None:
    compressed = compress(codec, bytes(range(200)))
    whole_chunks = {16}  # the snappy framing has no end mark

    for size in range(len(compressed)):
        if codec is Codec.SNAPPY and size in whole_chunks:
            continue
        with pytest.raises(CorruptMessage):
            decompress(codec, compressed[:size], MIB)


BEHIND = {
    # What Apache Kafka 4.3.1 makes of it; tests/differential/test_batches.py asks a broker.
    "gzip ignores what follows": (Codec.GZIP, b"xyz", b"abc"),
    "gzip ignores zeros": (Codec.GZIP, bytes(100), b"abc"),
    "gzip goes on with another frame": (Codec.GZIP, compress(Codec.GZIP, b"def"), b"abcdef"),
    "snappy ignores less than a length": (Codec.SNAPPY, b"xyz", b"abc"),
    "snappy goes on behind a header": (Codec.SNAPPY, compress(Codec.SNAPPY, b"def"), b"abcdef"),
    "snappy takes four bytes for a length": (Codec.SNAPPY, b"wxyz", None),
    "lz4 ignores what follows": (Codec.LZ4, b"xyz", b"abc"),
    "lz4 ignores another frame": (Codec.LZ4, compress(Codec.LZ4, b"def"), b"abc"),
    "zstd goes on with another frame": (Codec.ZSTD, compress(Codec.ZSTD, b"def"), b"abcdef"),
    "zstd ends with a frame": (Codec.ZSTD, b"xyz", None),
    "zstd ends with a whole frame": (Codec.ZSTD, compress(Codec.ZSTD, b"def")[:-1], None),
    "gzip ends with a whole frame": (Codec.GZIP, compress(Codec.GZIP, b"def")[:-1], None),
}


@pytest.mark.parametrize(("codec", "behind", "expected"), BEHIND.values(), ids=BEHIND)
def test_data_after_a_compressed_frame(codec: Codec, behind: bytes, expected: bytes | None) -> None:
    data = compress(codec, b"abc") + behind
    if expected is None:
        with pytest.raises(CorruptMessage):
            decompress(codec, data, MIB)
    else:
        assert decompress(codec, data, MIB) == expected


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_frames_are_counted_and_share_one_bound(codec: Codec) -> None:
    frame = compress(codec, b"abc")
    assert decompress(codec, frame * 64, 192) == b"abc" * 64
    with pytest.raises(MessageTooLarge):
        decompress(codec, frame * 64, 191)
    with pytest.raises(CorruptMessage, match="more than 64 frames"):
        decompress(codec, frame * 65, MIB)


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("data", [b"", b"\x01", b"plain text, not compressed", b"\xff" * 50])
def test_other_bytes_are_corrupt(codec: Codec, data: bytes) -> None:
    with pytest.raises((CorruptMessage, MessageTooLarge)):
        decompress(codec, data, MIB)


@pytest.mark.parametrize("length", [0, -1, 5, 2**31 - 1])
def test_snappy_chunk_lengths_that_lie(length: int) -> None:
    with pytest.raises(CorruptMessage):
        decompress(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", length) + b"\x01\x00a", MIB)


# -- bombs ---------------------------------------------------------------------------------------

ZEROS = b"\x00" * (32 * MIB)


def _snappy_that_claims(size: int) -> bytes:
    declared = bytearray()
    while size > 0x7F:
        declared.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*declared, size]) + b"\x00a"


BOMBS = {
    "gzip": (Codec.GZIP, zlib.compress(ZEROS, 9, wbits=31)),
    "snappy that is large": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(ZEROS))),
    "snappy that claims 4 GiB": (Codec.SNAPPY, _snappy_that_claims(2**32 - 1)),
    "snappy of many chunks": (Codec.SNAPPY, compress(Codec.SNAPPY, ZEROS)),
    "lz4": (Codec.LZ4, lz4.frame.compress(ZEROS)),
    "zstd": (Codec.ZSTD, zstandard.ZstdCompressor().compress(ZEROS)),
    "zstd of unknown size": (
        Codec.ZSTD,
        zstandard.ZstdCompressor(write_content_size=False).compress(ZEROS),
    ),
}


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_costs_no_more_than_the_bound(codec: Codec, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge):
            decompress(codec, bomb, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB + 4 * len(bomb)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD, Codec.GZIP])
def test_a_large_bound_is_not_allocated_for_a_small_batch(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    tracemalloc.start()
    try:
        assert decompress(codec, compressed, 1024 * MIB) == TEXT
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB


def _xerial_of(chunk: bytes, count: int) -> bytes:
    raw = bytes(cramjam.snappy.compress_raw(chunk))
    return XERIAL_HEADER + (len(raw).to_bytes(4, "big") + raw) * count


def _zstd_of_empty_blocks(count: int) -> bytes:
    return b"\x28\xb5\x2f\xfd\x00\x58" + bytes(3) * count + b"\x01\x00\x00"


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.SNAPPY, _xerial_of(b"", 200_000)),
        (Codec.SNAPPY, _xerial_of(b"a", 150_000)),
        (Codec.SNAPPY, XERIAL_HEADER * 60_000),
        (Codec.ZSTD, _zstd_of_empty_blocks(300_000)),
    ],
    ids=["empty chunks", "small chunks", "headers", "empty blocks"],
)
def test_pieces_that_hold_nothing_take_no_time(codec: Codec, data: bytes) -> None:
    def decompressing() -> None:
        for _ in range(10):
            with pytest.raises(MessageTooLarge):
                decompress(codec, data, 256 << 10)

    assert cpu_s(decompressing, 0.1) < 0.1, "ten batches of 1 MB held the loop for 10 s"


def test_a_few_small_pieces_are_as_good_as_others() -> None:
    assert decompress(Codec.SNAPPY, _xerial_of(b"a", 60), 1_000) == b"a" * 60
    assert decompress(Codec.SNAPPY, _xerial_of(bytes(32 << 10), 2_048), 64 << 20) == bytes(64 << 20)
    assert decompress(Codec.ZSTD, _zstd_of_empty_blocks(60), 1_000) == b""

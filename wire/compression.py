"""Compression codecs of record batches: gzip, snappy, lz4 (KIP-57) and zstd (KIP-110).

Compressed data is hostile. Every decompressor stops at `max_bytes` of output and allocates in
proportion to its output, so that a small batch cannot take much memory. Almost empty pieces of a
frame are limited, so that it cannot take much time either.

Input is accepted as by Apache Kafka's brokers and consumers:

| codec | several frames | bytes after the last |
|---|---|---|
| gzip | are concatenated | are ignored |
| snappy | are concatenated | up to three are ignored |
| lz4 | only the first counts | are ignored |
| zstd | are concatenated | are CORRUPT_MESSAGE |

A truncated frame is CORRUPT_MESSAGE. The library of a codec is imported at its first use.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from raylog.wire.buffers import Buffer
from raylog.wire.errors import CorruptMessage, MessageTooLarge

_FRAMES_MAX = 64
"""The most frames in one batch. Writers make one."""
_PIECES_MIN = 64
_PIECE_BYTES = 4 << 10
"""The least bytes that a piece of a frame holds on average, beyond PIECES_MIN pieces. Java's have
32 KiB or more. Each piece takes a microsecond or more, even if it is empty."""


class Codec(IntEnum):
    """Compression of a batch: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The codec's name in settings."""
        return self.name.lower()


class Levels(NamedTuple):
    """The levels of a codec, as in Kafka's settings (KIP-390)."""

    low: int
    high: int
    default: int
    """The codec's default. If it is below `low`, the library chooses the level."""


LEVELS = {
    Codec.GZIP: Levels(1, 9, -1),
    Codec.LZ4: Levels(1, 17, 9),
    Codec.ZSTD: Levels(-131_072, 22, 3),
}
"""The codecs that have levels."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` as one frame of `codec`, at the codec's own default level unless one is given."""
    return _FUNCTIONS[codec][0](data, level)


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """What `data` holds; MESSAGE_TOO_LARGE beyond `max_bytes`, CORRUPT_MESSAGE if malformed."""
    return _FUNCTIONS[codec][1](memoryview(data), max_bytes)


# -- none ------------------------------------------------------------------------------------


def _copy_bounded(data: memoryview, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(data)


# -- gzip ------------------------------------------------------------------------------------

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's number for a 32 KiB window inside gzip's header and trailer


def _gzip(data: Buffer, level: int | None) -> bytes:
    deflater = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return deflater.compress(data) + deflater.flush()


def _gunzip(data: memoryview, max_bytes: int) -> bytes:
    parts = []
    left = max_bytes
    rest: Buffer = data
    for _ in range(_FRAMES_MAX):
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        try:
            parts.append(inflater.decompress(rest, left + 1))
        except zlib.error as error:
            raise CorruptMessage(f"gzip: {error}") from error
        left -= len(parts[-1])
        if left < 0:
            raise _too_large(max_bytes)
        if not inflater.eof:
            raise CorruptMessage(_cut("gzip", data))
        rest = inflater.unused_data
        if rest[: len(_GZIP_MAGIC)] != _GZIP_MAGIC:
            return b"".join(parts)
    raise _too_many("gzip")


# -- snappy ----------------------------------------------------------------------------------
# Java wraps raw snappy in chunks of 32 KiB with a header (the "xerial" framing); librdkafka sends
# raw snappy. Both are read, and the former is written.

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible version
_XERIAL_CHUNK_BYTES = 32 * 1024
_CHUNK_LENGTH = struct.Struct(">i")


def _snappy(data: Buffer, level: int | None) -> bytes:
    import cramjam

    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_CHUNK_BYTES):
        chunk = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK_BYTES]))
        parts += (_CHUNK_LENGTH.pack(len(chunk)), chunk)
    return b"".join(parts)


def _unsnappy(data: memoryview, max_bytes: int) -> bytes:
    import cramjam

    chunks = (
        _xerial_chunks(data, max_bytes) if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [data]
    )
    parts = []
    left = max_bytes
    try:
        for chunk in chunks:
            left -= cramjam.snappy.decompress_raw_len(chunk)
            if left < 0:
                raise _too_large(max_bytes)
            parts.append(memoryview(cramjam.snappy.decompress_raw(chunk)))
    except cramjam.DecompressionError as error:
        raise CorruptMessage(str(error)) from error
    return b"".join(parts)


def _xerial_chunks(data: memoryview, max_bytes: int) -> list[memoryview]:
    """The raw snappy chunks after each header."""
    chunks = []
    position = len(_XERIAL_HEADER)
    pieces = _pieces_max(max_bytes)
    while position + _CHUNK_LENGTH.size <= len(data):
        pieces -= 1
        if pieces < 0:
            raise _too_large(max_bytes)
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        (length,) = _CHUNK_LENGTH.unpack_from(data, position)
        position += _CHUNK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise CorruptMessage(f"snappy: chunk of {length} bytes, {len(data) - position} left")
        chunks.append(data[position : position + length])
        position += length
    if not chunks and position != len(data):
        raise CorruptMessage(_cut("snappy", data))
    return chunks


# -- lz4 -------------------------------------------------------------------------------------


def _lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # Java's reader supports independent blocks only.
    framed: bytes = lz4.frame.compress(
        data, compression_level=level or 0, block_linked=False, store_size=False
    )
    return framed


def _unlz4(data: memoryview, max_bytes: int) -> bytes:
    import lz4.frame

    context = lz4.frame.create_decompression_context()
    parts = []
    position = size = 0
    finished = False
    while not finished:
        # decompress_chunk allocates all of max_length before it reads the data.
        room = min(max_bytes - size + 1, _step_bytes(data, size))
        try:
            part, read, finished = lz4.frame.decompress_chunk(
                context, data[position:], max_length=room
            )
        except RuntimeError as error:
            raise CorruptMessage(f"lz4: {error}") from error
        position += read
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if not (finished or part or read):
            break
        parts.append(part)
    if not finished:
        raise CorruptMessage(_cut("lz4", data))
    return b"".join(parts)


# -- zstd ------------------------------------------------------------------------------------

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)
_ZSTD_SIZE_BYTES = (0, 2, 4, 8)
_ZSTD_RUN_LENGTH = 1
_ZSTD_AT_ONCE_BYTES = 1 << 20
"""The largest declared size of a frame that is decompressed into one buffer of that size."""


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(3 if level is None else level).compress(data)


def _unzstd(data: memoryview, max_bytes: int) -> bytes:
    # The stream reader takes a truncated frame for a short one, so find the frames' ends first.
    parts: list[bytes] = []
    left = max_bytes
    begin = 0
    for _ in range(_FRAMES_MAX):
        end = _zstd_frame_end(data, begin, max_bytes)
        left -= _unzstd_frame(data[begin:end], left, parts)
        if left < 0:
            raise _too_large(max_bytes)
        if end == len(data):
            return b"".join(parts)
        begin = end
    raise _too_many("zstd")


def _unzstd_frame(frame: memoryview, max_bytes: int, parts: list[bytes]) -> int:
    """Append the content of a frame to `parts`. Returns its size, at most one above the limit."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    size = 0
    try:
        if 0 < zstandard.frame_content_size(frame) <= min(max_bytes, _ZSTD_AT_ONCE_BYTES):
            parts.append(decompressor.decompress(frame))
            return len(parts[-1])
        reader = decompressor.stream_reader(frame)
        while part := reader.read(min(max_bytes - size + 1, _step_bytes(frame, size))):
            size += len(part)
            parts.append(part)
            if size > max_bytes:
                break
    except zstandard.ZstdError as error:
        raise CorruptMessage(f"zstd: {error}") from error
    return size


def _zstd_frame_end(data: memoryview, begin: int, max_bytes: int) -> int:
    """Where the frame at `begin` ends by its block headers (RFC 8878, 3.1.1)."""
    if data[begin : begin + 4] != _ZSTD_MAGIC:
        raise CorruptMessage(f"zstd: no frame at byte {begin}")
    try:
        descriptor = data[begin + 4]
        single_segment = descriptor >> 5 & 1
        size_flag = descriptor >> 6
        position = begin + 5 + _ZSTD_DICTIONARY_BYTES[descriptor & 3]
        position += (
            (_ZSTD_SIZE_BYTES[size_flag] or 1)
            if single_segment
            else (1 + _ZSTD_SIZE_BYTES[size_flag])
        )
        is_last = 0
        pieces = _pieces_max(max_bytes)
        while not is_last:
            pieces -= 1
            if pieces < 0:
                raise _too_large(max_bytes)
            block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            is_last = block & 1
            position += 3 + (1 if block >> 1 & 3 == _ZSTD_RUN_LENGTH else block >> 3)
    except IndexError:
        raise CorruptMessage(_cut("zstd", data)) from None
    position += 4 * (descriptor >> 2 & 1)  # the checksum, if there is one
    if position > len(data):
        raise CorruptMessage(_cut("zstd", data))
    return position


# -- shared ----------------------------------------------------------------------------------


def _step_bytes(data: memoryview, size: int) -> int:
    """The output size to request at once: enough for a usual batch, in proportion to the input.

    Later it is the size so far, because freed large pieces are returned to the system.
    """
    return max(64 * 1024, 4 * len(data), size)


def _pieces_max(max_bytes: int) -> int:
    """The most chunks or blocks of a frame that holds at most `max_bytes`."""
    return _PIECES_MIN + max_bytes // _PIECE_BYTES


def _too_large(max_bytes: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"batch holds more than {max_bytes} bytes when decompressed, or too many small pieces"
    )


def _too_many(name: str) -> CorruptMessage:
    return CorruptMessage(f"{name}: more than {_FRAMES_MAX} frames in one batch")


def _cut(name: str, data: memoryview) -> str:
    return f"{name}: the frame is cut at {len(data)} bytes"


_FUNCTIONS: dict[
    Codec, tuple[Callable[[Buffer, int | None], bytes], Callable[[memoryview, int], bytes]]
] = {
    Codec.NONE: (lambda data, _: bytes(data), _copy_bounded),
    Codec.GZIP: (_gzip, _gunzip),
    Codec.SNAPPY: (_snappy, _unsnappy),
    Codec.LZ4: (_lz4, _unlz4),
    Codec.ZSTD: (_zstd, _unzstd),
}

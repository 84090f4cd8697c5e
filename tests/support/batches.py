"""Record batches with any field wrong, built independently of the code under test."""

import struct

from crc32c import crc32c

NOW_MS = 1_700_000_000_000


def varint(number: int) -> bytes:
    """Return a zigzag varint, encoded the textbook way."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest >> 7:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def sized(content: bytes | None) -> bytes:
    """Return bytes prefixed with their varint length."""
    return varint(-1) if content is None else varint(len(content)) + content


def raw_record(
    delta: int = 0,
    *,
    time_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: bytes = b"\x00",
    attributes: int = 0,
    length: int | None = None,
) -> bytes:
    """Return one record; `headers` are raw bytes, and `length` overrides the true length."""
    content = bytes([attributes]) + varint(time_delta) + varint(delta)
    content += sized(key) + sized(value) + headers
    return varint(len(content) if length is None else length) + content


def raw_batch(
    *records: bytes,
    base_offset: int = 0,
    length: int | None = None,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = NOW_MS,
    max_timestamp: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """Return a batch of `records` (or of `body`); each header field can be overridden."""
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        len(records) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if count is None else count,
    )
    covered += b"".join(records) if body is None else body
    return (
        struct.pack(
            ">qiibI",
            base_offset,
            9 + len(covered) if length is None else length,
            leader_epoch,
            magic,
            crc32c(covered) if crc is None else crc,
        )
        + covered
    )

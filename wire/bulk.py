"""Fast decoding of many small records, for the cleaner and for loading coordinators.

`decode_batch` makes a `Record` of everything. Here timestamps and headers are skipped, and a record
is a bare tuple of offset, key and value, at about half the cost:

    for header, records in batches(data):
        if header.is_control:
            ...  # the marker: decode_end_txn_marker(decode_batch(batch)[0])
        for offset, key, value, _ in records:
            ...

`raylog.wire.internal.commits` decodes the keys and values of committed offsets as fast. A caller
that keeps millions of these objects should disable Python's garbage collector meanwhile
(`gc.disable`), because it would traverse all of them repeatedly.
"""

from collections.abc import Generator, Iterator

from raylog.wire.buffers import Buffer
from raylog.wire.errors import DecodeError, InvalidRecord
from raylog.wire.records import (
    DECOMPRESSED_BYTES_MAX,
    BatchHeader,
    body_of,
    check_crc,
    iter_batches,
)
from raylog.wire.varint import read_long

BulkRecord = tuple[int, bytes | None, bytes | None, int]
"""Offset, key, value, and the record's end in the decompressed body, where the next one begins."""


def batches(buf: Buffer) -> Iterator[tuple[BatchHeader, Iterator[BulkRecord]]]:
    """Header and records of each whole batch in a slice of the log. Checks CRCs.

    Raises CORRUPT_MESSAGE or INVALID_RECORD if a batch is malformed, MESSAGE_TOO_LARGE if it is
    compressed and holds more than DECOMPRESSED_BYTES_MAX. A batch may have no records, since the
    cleaner leaves empty ones.
    """
    for header, batch in iter_batches(buf):
        check_crc(batch, header)
        if header.record_count:
            body = body_of(batch, header, max(DECOMPRESSED_BYTES_MAX, len(batch)))
            yield header, bulk_records(body, header.record_count, header.base_offset)
        else:
            yield header, iter(())


def bulk_records(body: bytes, count: int, base_offset: int) -> Iterator[BulkRecord]:
    """The records of a decompressed batch.

    Raises INVALID_RECORD at the first malformed record, and at the end unless `body` held exactly
    `count`.
    """
    try:
        position = yield from _bulk_records(body, count, base_offset)
    except (IndexError, DecodeError) as error:
        raise InvalidRecord(f"fewer than {count} whole records: {error}") from error
    if position != len(body):
        raise InvalidRecord(f"{len(body) - position} bytes behind {count} records")


def _bulk_records(body: bytes, count: int, base_offset: int) -> Generator[BulkRecord, None, int]:
    """Return the end of the last record. Names with `z_` are zigzag numbers, as in `record.py`."""
    position = 0
    for _ in range(count):
        z_size = body[position]
        position += 1
        if z_size > 127:
            if (high := body[position]) < 128:  # two bytes: the usual case
                z_size += (high << 7) - 128
                position += 1
            else:
                z_size, position = read_long(body, position, z_size)
        end = position + (z_size >> 1)
        position += 1  # the attributes
        while body[position] > 127:  # the time
            position += 1
        z_delta = body[position + 1]
        position += 2
        if z_delta > 127:
            if (high := body[position]) < 128:
                z_delta += (high << 7) - 128
                position += 1
            else:
                z_delta, position = read_long(body, position, z_delta)
        z_key = body[position]
        position += 1
        if z_key > 127:
            z_key, position = read_long(body, position, z_key)
        key = None if z_key & 1 else body[position : (position := position + (z_key >> 1))]
        z_value = body[position]
        position += 1
        if z_value > 127:
            z_value, position = read_long(body, position, z_value)
        value = None if z_value & 1 else body[position : (position := position + (z_value >> 1))]
        if position >= end or z_size & 1 or z_delta & 1:
            raise InvalidRecord(f"record ends at byte {end}, its value at {position}")
        position = end
        yield base_offset + (z_delta >> 1), key, value, position
    return position

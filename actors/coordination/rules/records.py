"""Encodes and decodes records of `__consumer_offsets` and `__transaction_state`."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.actors.coordination.rules.step import LogRecord
from raylog.wire.errors import DecodeError
from raylog.wire.internal.blobs import RecordKind, decode_record, encode_key, encode_value
from raylog.wire.record import Record
from raylog.wire.records import encode_batch
from raylog.wire.schema import layout_of

Blobs = tuple[bytes, bytes | None]
"""Key and value of one record."""
_newest: dict[type, int] = {}


def newest_version(value_class: type) -> int:
    """Return the newest version of a value."""
    newest = _newest.get(value_class)
    if newest is None:
        versions = layout_of(value_class).versions
        assert versions is not None, f"{value_class.__name__} is a part of a message"
        newest = _newest[value_class] = versions[-1]
    return newest


def encode(record: LogRecord) -> Blobs:
    """Encode key and value of a record; raises EncodeError."""
    value = record.value
    if value is None:
        return encode_key(record.key), None
    version = record.value_version
    if version is None:
        version = newest_version(type(value))
    return encode_key(record.key), encode_value(value, version)


def batch_of(blobs: Sequence[Blobs], now_ms: int) -> bytes:
    """Build one batch of encoded records."""
    return encode_batch([Record(0, now_ms, key, value, []) for key, value in blobs])


def decode(
    kinds: dict[int, RecordKind], key: bytes | None, value: bytes | None
) -> LogRecord | None:
    """Decode a record; None if its kind is unknown and it must be skipped."""
    if key is None:
        raise DecodeError("a record without a key")
    found = decode_record(kinds, key, value)
    return None if found is None else LogRecord(*found)

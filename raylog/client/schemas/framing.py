"""The wire format: how a record names the schema it is written with.

| where | bytes |
|---|---|
| before the value | 0, the schema's id (4 bytes, big endian), the value |
| in a header | `__key_schema_id` or `__value_schema_id`: 1, the schema's GUID (16 bytes) |

After the id or GUID, Protobuf adds the message's place in its file as zigzag varints: the number of
indexes, then the indexes. A single byte 0 stands for [0], the first message of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from raylog.client.schemas.errors import DecodingFailed
from raylog.client.serializers import Headers

MAGIC_ID = 0
MAGIC_GUID = 1
PREFIX_BYTES = 5
GUID_BYTES = 17
KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"
ID_MAX = 2**31 - 1
_DEPTH_MAX = 100
"""No real schema nests messages more deeply."""
_VARINT_BYTES_MAX = 5
_ID = struct.Struct(">bI")


@dataclass(frozen=True, slots=True)
class Frame:
    """How a record identifies its schema."""

    id: int | None
    guid: str | None
    indexes: tuple[int, ...] | None
    """The message's indexes; Protobuf only."""
    start: int
    """Where the value starts in the record's bytes."""


def header_name(*, is_key: bool) -> str:
    """Return the name of the header that holds a GUID."""
    return KEY_HEADER if is_key else VALUE_HEADER


def id_prefix(schema_id: int, indexes: Sequence[int] | None = None) -> bytes:
    """Return the bytes before a value."""
    return _ID.pack(MAGIC_ID, schema_id) + (b"" if indexes is None else encode_indexes(indexes))


def guid_header(guid: str, indexes: Sequence[int] | None = None) -> bytes:
    """Return the value of the header; the record's value then has no prefix."""
    rest = b"" if indexes is None else encode_indexes(indexes)
    return bytes([MAGIC_GUID]) + UUID(guid).bytes + rest


def read_frame(data: bytes, headers: Headers, *, is_key: bool, indexed: bool) -> Frame:
    """Find the schema of `data`: in its header if there is one, else in its first bytes.

    `indexed` is for Protobuf, where message indexes follow. Raises DecodingFailed.
    """
    if headers:
        name = header_name(is_key=is_key)
        for key, value in headers:
            if key == name and value is not None:
                return _read(value, indexed=indexed, name=name)
    return _read(data, indexed=indexed, name=None)


def _read(data: bytes, *, indexed: bool, name: str | None) -> Frame:
    """Read magic byte, id or GUID, and indexes; from a header if `name` is given."""
    magic = data[0] if data else None
    if magic == MAGIC_ID and len(data) >= PREFIX_BYTES:
        schema_id, guid, end = int.from_bytes(data[1:PREFIX_BYTES]), None, PREFIX_BYTES
        if schema_id > ID_MAX:
            raise DecodingFailed(f"expected a schema id of at most {ID_MAX}, found {schema_id}")
    elif magic == MAGIC_GUID and len(data) >= GUID_BYTES:
        schema_id, guid, end = None, str(UUID(bytes=bytes(data[1:GUID_BYTES]))), GUID_BYTES
    else:
        place = "the value's first bytes" if name is None else f"the header {name}"
        raise DecodingFailed(
            f"expected the wire format of a schema registry in {place} (a byte 0 and an id of 4 "
            f"bytes, or a byte 1 and a GUID of 16), found {bytes(data[:8]).hex(' ') or 'nothing'}"
            f"{'...' if len(data) > 8 else ''} of {len(data)} bytes"
        )
    indexes = None
    if indexed:
        indexes, end = decode_indexes(data, end)
    if name is not None:
        if end != len(data):
            raise DecodingFailed(f"expected {end} bytes in the header {name}, found {len(data)}")
        end = 0
    return Frame(schema_id, guid, indexes, end)


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Encode a message's place in its file, which must not be empty."""
    assert indexes
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def decode_indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return a message's place and where its bytes end; raises DecodingFailed."""
    count, end = _unzigzag(data, start)
    if count == 0:
        return (0,), end
    if not 0 < count <= _DEPTH_MAX:
        raise DecodingFailed(f"expected 0 to {_DEPTH_MAX} message indexes, found {count}")
    indexes = []
    for _ in range(count):
        index, end = _unzigzag(data, end)
        if index < 0:
            raise DecodingFailed(f"expected message indexes of 0 or more, found {index}")
        indexes.append(index)
    return tuple(indexes), end


def _zigzag(number: int) -> bytes:
    left = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _unzigzag(data: bytes, start: int) -> tuple[int, int]:
    """Return a signed 32-bit varint and where it ends; raises DecodingFailed."""
    value = 0
    for place, byte in enumerate(data[start : start + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value >= 2**32:
                break
            return (value >> 1) ^ -(value & 1), start + place + 1
    raise DecodingFailed(
        f"expected message indexes as varints of 32 bits at byte {start}, found "
        f"{bytes(data[start : start + _VARINT_BYTES_MAX]).hex(' ') or 'the end'}"
    )

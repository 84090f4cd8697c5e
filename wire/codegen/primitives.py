"""Functions of generated codecs for rare or repeated cases: long varints, tags, int arrays."""

from collections.abc import Callable
from struct import Struct
from typing import NoReturn

from raylog.wire.errors import DecodeError, EncodeError, TooManyElements
from raylog.wire.schema import Buffer

STRING_BYTES_MAX = 0x7FFF
UVARINT_MAX = 0xFFFFFFFF
_TABLE_SIZE = 32  # arrays up to this length have their Struct ready


def read_uvarint(buf: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint. `first`, above 127, is the byte before `position`."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                break
            return value, position
    raise DecodeError(f"varint before byte {position} exceeds 32 bits")


def put_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint of at most 32 bits."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_tag(buf: Buffer, position: int) -> tuple[int, int, int]:
    """Read a tag.

    Returns its number, and the start and end of its value, which are not checked yet.
    """
    tag = buf[position]
    position += 1
    if tag > 0x7F:
        tag, position = read_uvarint(buf, position, tag)
    size = buf[position]
    position += 1
    if size > 0x7F:
        size, position = read_uvarint(buf, position, size)
    return tag, position, position + size


def skip_tags(buf: Buffer, position: int, count: int, left: int) -> tuple[int, int]:
    """Skip `count` tagged fields, such as those of a newer peer.

    Returns the position after them and the rest of `left`, of which each takes one.
    """
    end = len(buf)
    if count > 0x7F:
        count, position = read_uvarint(buf, position, count)
    if count > (end - position) >> 1:
        raise DecodeError(f"{count} tagged fields in {end - position} bytes")
    if count > left:
        too_many("tagged fields", count)
    for _ in range(count):
        _, _, position = read_tag(buf, position)
        if position > end:
            raise DecodeError("a tagged field runs past the end")
    return position, left - count


def put_tag(out: bytearray, tag: int, value: bytearray) -> None:
    """Append one tagged field."""
    put_uvarint(out, tag)
    put_uvarint(out, len(value))
    out += value


def bad_length(field: str, length: int, rest: int) -> NoReturn:
    """Raise for a length or count that is negative, null without being nullable, or too large."""
    raise DecodeError(f"{field}: length {length} with {rest} bytes left")


def too_many(field: str, count: int) -> NoReturn:
    """Raise for an array with more elements than all arrays may have together."""
    raise TooManyElements(f"{field}: {count} elements exceed the limit")


def bad_uuid(field: str, value: bytes) -> NoReturn:
    """Raise for a UUID that does not have 16 bytes."""
    raise EncodeError(f"{field}: a UUID has 16 bytes, not {len(value)}")


def absent_field(field: str, version: int, value: object) -> NoReturn:
    """Raise for a value that would be lost, because this version has no field for it."""
    raise EncodeError(f"{field}: version {version} cannot carry {value!r}")


def long_string(field: str, size: int) -> NoReturn:
    """Raise for a string whose UTF-8 form is too long."""
    raise EncodeError(f"{field}: {size} bytes of text, at most {STRING_BYTES_MAX} are allowed")


def _int_structs(code: str) -> list[Struct]:
    return [Struct(f">{count}{code}") for count in range(_TABLE_SIZE)]


def _unpacker(code: str) -> Callable[[Buffer, int, int], list[int]]:
    table = [entry.unpack_from for entry in _int_structs(code)]

    def unpack(buf: Buffer, position: int, count: int) -> list[int]:
        if count < _TABLE_SIZE:
            return list(table[count](buf, position))
        return list(Struct(f">{count}{code}").unpack_from(buf, position))

    return unpack


def _packer(code: str) -> Callable[[list[int]], bytes]:
    table = [entry.pack for entry in _int_structs(code)]

    def pack(values: list[int]) -> bytes:
        count = len(values)
        if count < _TABLE_SIZE:
            return table[count](*values)
        return Struct(f">{count}{code}").pack(*values)

    return pack


UNPACKERS = {code: _unpacker(code) for code in ("b", "i", "q")}
PACKERS = {code: _packer(code) for code in ("b", "i", "q")}

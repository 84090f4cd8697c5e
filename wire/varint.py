"""Zigzag varints of record batch v2 (KIP-98): 7 bits per byte, least significant first.

Loops over many records inline the first byte and call `read_long` for the rest, because a call per
field would cost more than the decoding.
"""

from functools import cache

from raylog.wire.buffers import Buffer
from raylog.wire.errors import DecodeError, EncodeError

VARINT_BYTES_MAX = 10
"""The most bytes of a varint, for 64 bits."""

UINT64_MAX = (1 << 64) - 1

TABLE_SIZE = 8192
"""Numbers from -1 to below this take one or two bytes."""


def encode_varint(number: int) -> bytes:
    """Encode a signed 64-bit number as a zigzag varint. Raises EncodeError for any other."""
    rest = (number << 1) ^ (number >> 63)
    if rest > UINT64_MAX:
        raise EncodeError(f"expected a number of 64 bits, found {number}")
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_varint(buf: Buffer, position: int) -> tuple[int, int]:
    """Decode the number at `position`. Returns it and the position after it.

    Raises DecodeError if it is truncated or too long.
    """
    try:
        first = buf[position]
        position += 1
        if first > 0x7F:
            first, position = read_long(buf, position, first)
    except IndexError:
        raise DecodeError(f"varint is cut at byte {position}") from None
    return (first >> 1) ^ -(first & 1), position


def read_long(buf: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read a varint of two or more bytes. Returns its zigzag form and the position after it.

    `first` is its first byte and `position` that of the second. Raises IndexError if it is
    truncated, DecodeError if it has more than ten bytes.
    """
    byte = buf[position]
    if byte < 0x80:
        return first & 0x7F | byte << 7, position + 1
    third = buf[position + 1]
    if third < 0x80:
        return first & 0x7F | (byte & 0x7F) << 7 | third << 14, position + 2
    number = first & 0x7F
    shift = 7
    end = position + VARINT_BYTES_MAX - 1
    while position < end:
        byte = buf[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number > UINT64_MAX:
                break
            return number, position
        shift += 7
    raise DecodeError(f"varint of more than 64 bits before byte {position}")


@cache
def varint_table() -> list[bytes]:
    """The varints of 0 to 8191, and of -1 as the last. Created at the first call."""
    one_byte = [bytes((low,)) for low in range(0, 0x80, 2)]
    first = [bytes((low | 0x80,)) for low in range(0, 0x80, 2)]
    second = [bytes((high,)) for high in range(1, TABLE_SIZE >> 6)]
    return [*one_byte, *(low + high for high in second for low in first), b"\x01"]

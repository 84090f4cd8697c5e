"""Zigzag varints."""

import pytest

from raylog.wire.errors import DecodeError, EncodeError
from raylog.wire.varint import TABLE_SIZE, decode_varint, encode_varint, varint_table

KNOWN = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    8191: "fe7f",
    -8192: "ff7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}


@pytest.mark.parametrize(("number", "encoded"), KNOWN.items())
def test_known_numbers(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
    assert decode_varint(b"x" + bytes.fromhex(encoded) + b"y", 1) == (
        number,
        1 + len(encoded) // 2,
    )


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, -(2**64), 2**127, -(2**127) - 1])
def test_numbers_beyond_64_bits_are_refused(number: int) -> None:
    with pytest.raises(EncodeError, match=f"expected a number of 64 bits, found {number}"):
        encode_varint(number)


def test_table_holds_what_the_encoder_makes() -> None:
    expected = [*(encode_varint(number) for number in range(TABLE_SIZE)), encode_varint(-1)]
    assert varint_table() == expected
    assert varint_table()[-1] == encode_varint(-1)


@pytest.mark.parametrize(
    "encoded",
    [b"", b"\x80", b"\xff\xff", b"\x80" * 9, b"\x80" * 10, b"\xff" * 11, b"\xff" * 9 + b"\x02"],
)
def test_cut_and_overlong_numbers(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_varint(encoded, 0)

"""Values of a load test: their contents, and that a changed byte is detected."""

from __future__ import annotations

import pytest

from raylog.loadtest.records import (
    BYTES_MIN,
    encode,
    encode_many,
    heads,
    run_number,
    torn,
)

RUN = run_number("a run")


def test_a_value_says_who_sent_it() -> None:
    value = encode(RUN, 7, 1 << 39, 1_700_000_000_000_000, 100)
    assert len(value) == 100
    assert heads([value]).tolist() == [(RUN, 7, 1 << 39, 1_700_000_000_000_000)]
    assert torn([value]) == []


def test_runs_have_numbers_of_their_own() -> None:
    assert run_number("another run") != RUN
    assert RUN == run_number("a run") < 1 << 64


@pytest.mark.parametrize("size", [0, BYTES_MIN, BYTES_MIN + 1, 33, 100, 5_000])
def test_values_of_one_size(size: int) -> None:
    values = encode_many(RUN, 1, 5, [10, 20, 30], size)
    assert {len(value) for value in values} == {max(size, BYTES_MIN)}
    assert torn(values) == []
    assert heads(values)["sequence"].tolist() == [5, 6, 7]
    assert heads(values)["intended_us"].tolist() == [10, 20, 30]
    assert values == [encode(RUN, 1, 5 + at, at * 10 + 10, size) for at in range(3)]


def test_values_of_several_sizes() -> None:
    values = encode_many(RUN, 1, 0, [1, 2, 3], [40, 32, 1_000])
    assert [len(value) for value in values] == [40, 32, 1_000]
    assert torn(values) == []


@pytest.mark.parametrize("size", [BYTES_MIN, 100])
def test_any_changed_byte_is_noticed(size: int) -> None:
    value = encode(RUN, 1, 2, 3, size)
    for position in range(size):
        changed = bytearray(value)
        changed[position] ^= 1
        assert torn([value, bytes(changed), value]) == [1]


def test_malformed_values_are_torn() -> None:
    good = encode(RUN, 1, 2, 3, 64)
    assert torn([None, good, b"", b"short", good[:-1], good + b"x"]) == [0, 2, 3, 4, 5]
    assert torn([]) == []


def test_too_short_value_with_a_valid_checksum_is_torn() -> None:
    """A checksum of nothing: four bytes that every short value could end with."""
    assert torn([b"\x00\x00\x00\x00"]) == [0]

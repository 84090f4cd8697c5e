"""Iterating over records: the same verdict as decoding, and their lowest and highest times."""

import random

import pytest

from raylog.wire.errors import InvalidRecord
from raylog.wire.record import Record, encode_records
from raylog.wire.walk import HEADERS_MAX, RUN_PAUSE, SHAPED_HEADERS_MAX, Patience, walk
from tests.support.batches import raw_record, sized, varint

NOW_MS = 1_700_000_000_000
HEADERS: list[tuple[str, bytes | None]] = [("trace", b"0123"), ("none", None)]


def body_of(records: list[Record]) -> bytes:
    return encode_records(records, range(len(records)), NOW_MS)


def of_times(times: list[int], size: int = 20, key: bytes | None = None) -> bytes:
    """Records with values of one size and these times after the base."""
    return body_of([Record(n, NOW_MS + time, key, b"v" * size, []) for n, time in enumerate(times)])


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 100, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("headers", [[], HEADERS], ids=["plain", "headers"])
def test_records_of_one_shape_are_looked_at_together(
    count: int, headers: list[tuple[str, bytes | None]]
) -> None:
    body = body_of([Record(n, NOW_MS + n // 7, b"key", b"value", headers) for n in range(count)])
    assert walk(body, count) == (0, (count - 1) // 7, False)
    assert walk(body, count, patience=Patience(RUN_PAUSE)) is not None


def of_sizes(sizes: list[int], key_sizes: list[int]) -> bytes:
    """Records with values and keys of these sizes, those in turn."""
    keys = [b"k" * size for size in key_sizes]
    return body_of(
        [
            Record(n, NOW_MS + n % 50, keys[n % len(keys)], b"v" * size, [])
            for n, size in enumerate(sizes)
        ]
    )


SIZES = random.Random(1).choices(range(300), k=2_000)


@pytest.mark.parametrize(
    ("sizes", "key_sizes", "patience"),
    [
        (SIZES, [5], 64 + 2_000 // 3),
        (SIZES, [100], 64 + 2_000 // 3),
        ([0, 62, 63, 64, 65] * 300, [3], 64 + 500),  # lengths of one byte and of two
        ([8_000] * 50 + [7_000, 8_200] * 20, [0], 200),  # and of three
        (SIZES, [5, 6], 2_000 + 2_000 // 3),  # one by one
    ],
)
def test_records_of_different_sizes_are_looked_at_together(
    sizes: list[int], key_sizes: list[int], patience: int
) -> None:
    body = of_sizes(sizes, key_sizes)
    assert walk(body, len(sizes), patience=Patience(patience)) == (0, 49, False)


def test_patience_has_an_end() -> None:
    body = of_sizes(SIZES, [5, 6])
    assert walk(body, 2_000, patience=Patience(1_900)) is None
    assert walk(of_sizes(SIZES, [5]), 2_000, patience=Patience(600)) is None
    assert walk(of_times([0] * 2_000), 2_000, patience=Patience(64)) == (0, 0, True)


@pytest.mark.parametrize("count", [1, SHAPED_HEADERS_MAX, SHAPED_HEADERS_MAX + 1, 1_000])
@pytest.mark.parametrize("records", [1, 100])
def test_headers_count_too(count: int, records: int) -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("h" * (n % 70), b"v" * (n % 130)) for n in range(count)
    ]
    body = body_of([Record(n, NOW_MS, b"k", b"v", headers) for n in range(records)])
    assert walk(body, records) == (0, 0, False)
    if count == 1_000:
        assert walk(body, records, patience=Patience(2 * count)) is None


@pytest.mark.long
def test_a_batch_has_no_more_headers_than_anybody_needs() -> None:
    """Two bytes each: a megabyte of them is 106 bytes with zstd."""
    most = body_of([Record(0, NOW_MS, b"k", b"v", [("", None)] * HEADERS_MAX)])
    assert walk(most, 1) == (0, 0, False)
    more = body_of(
        [Record(n, NOW_MS, b"k", b"v", [("", None)] * (HEADERS_MAX // 2)) for n in range(3)]
    )
    with pytest.raises(InvalidRecord, match="more than 1048576 record headers"):
        walk(more, 3)


SPREADS = {
    "one byte": [0, 5, 63, 60, 1],
    "two bytes": [64, 8_191, 70, 200, 128],
    "two bytes that rise": list(range(64, 300)),
    "three bytes": [8_192, 9_000, 1_048_575, 8_192],
    "four bytes": [1_048_576, 100_000_000, 1_048_576],
    "six bytes": [2**35, 2**40, 2**36],
    "nine bytes": [2**57, 2**61, 2**57 + 1],
    "ten bytes": [2**62, 2**63 - 1 - NOW_MS, 2**62 + 5],
    "before the base": [-1, -64, -30],
    "long before the base": [-65, -8_000, -100],
    "before and behind": [-5, 7, -9, 3],
    "far before and far behind": [-5_000, 7_000, -9_000, 3_000, 6_999],
    "of every length": [0, -1, 100, -5_000, 10**6, -(10**10), 2**50, 3],
}


@pytest.mark.parametrize("times", SPREADS.values(), ids=SPREADS)
@pytest.mark.parametrize("repeat", [1, 30, 400])
@pytest.mark.parametrize("order", ["as they are", "sorted", "falling", "mixed"])
def test_the_extremes_of_times(times: list[int], repeat: int, order: str) -> None:
    all_times = times * repeat
    match order:
        case "sorted":
            all_times.sort()
        case "falling":
            all_times.sort(reverse=True)
        case "mixed":
            random.Random(7).shuffle(all_times)
    body = of_times(all_times)
    assert walk(body, len(all_times)) == (min(times), max(times), True)


@pytest.mark.parametrize("at", [0, 1, 40, 63, 64, 65, 200, 299])
def test_one_null_key_is_found(at: int) -> None:
    records = [Record(n, NOW_MS, b"k", b"v", []) for n in range(300)]
    assert walk(body_of(records), 300) == (0, 0, False)
    records[at] = records[at]._replace(key=None, value=b"vw")  # of the same length
    assert walk(body_of(records), 300) == (0, 0, True)


def replaced(at: int, record: bytes, count: int = 300, values: tuple[int, ...] = (1,)) -> bytes:
    """Records, with values of these sizes in turn, of which one is another."""
    return b"".join(
        [
            record if n == at else raw_record(n, value=b"v" * values[n % len(values)])
            for n in range(count)
        ]
    )


WRONG = {
    "delta of the one before": raw_record(99),
    "delta of the one behind": raw_record(101),
    "delta of the other sign": raw_record(-101),
    "a key of length -2": sized(
        b"\0" + varint(0) + varint(100) + varint(-2) + b"k" + sized(b"v") + b"\0"
    ),
    "a value of length -2": sized(
        b"\0" + varint(0) + varint(100) + sized(b"k") + varint(-2) + b"v\0"
    ),
    "a key one longer": sized(
        b"\0" + varint(0) + varint(100) + varint(2) + b"k" + sized(b"v") + b"\0"
    ),
    "a value one longer": sized(b"\0" + varint(0) + varint(100) + sized(b"k") + varint(2) + b"v\0"),
    "a header too many": raw_record(100, headers=varint(1)),
    "a negative number of headers": raw_record(100, headers=varint(-1)),
    "a length of six bytes": b"\x90\x80\x80\x80\x80\x00" + raw_record(100)[1:],
    "a number of 33 bits": sized(
        b"\0" + varint(0) + varint(100 + 2**32) + sized(b"k") + sized(b"v\0")
    ),
    "a length one more": raw_record(100, length=len(raw_record(100))),
    "a length one less": raw_record(100, length=len(raw_record(100)) - 2),
    "a negative length": raw_record(100, length=-5),
    "a null value and a byte": sized(b"\0" + varint(0) + varint(100) + sized(b"k") + b"\1\0\0"),
    "a value of length -2 and two bytes": sized(
        b"\0" + varint(0) + varint(100) + sized(b"k") + varint(-2) + b"\0\0"
    ),
    "a value of three bytes of length": sized(
        b"\0" + varint(0) + varint(100) + sized(b"k") + b"\x82\x80\0" + b"v\0" + b"\0"
    ),
    "another last byte": sized(b"\0" + varint(0) + varint(100) + sized(b"k") + sized(b"v") + b"\2"),
}


@pytest.mark.parametrize("values", [(1,), (1, 2, 70)], ids=["of one size", "of several"])
@pytest.mark.parametrize("record", WRONG.values(), ids=WRONG)
def test_one_wrong_record_among_others_of_its_shape(record: bytes, values: tuple[int, ...]) -> None:
    assert walk(replaced(100, raw_record(100), values=values), 300) is not None
    with pytest.raises(InvalidRecord):
        walk(replaced(100, record, values=values), 300)


@pytest.mark.parametrize("count", [1, 299, 301, 2**31 - 1])
def test_another_number_of_records(count: int) -> None:
    with pytest.raises(InvalidRecord):
        walk(replaced(0, raw_record(0)), count)


@pytest.mark.parametrize("surplus", [b"\0", b"abc", raw_record(300)])
def test_bytes_behind_the_records(surplus: bytes) -> None:
    with pytest.raises(InvalidRecord, match=f"{len(surplus)} bytes behind"):
        walk(replaced(0, raw_record(0)) + surplus, 300)


@pytest.mark.parametrize("cut", [1, 5, 200])
def test_the_last_record_is_cut(cut: int) -> None:
    with pytest.raises(InvalidRecord):
        walk(replaced(0, raw_record(0))[:-cut], 300)

"""Decoding fetched data."""

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.consumer.settings import ConsumerSettings
from raylog.wire.compression import Codec
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.errors import CorruptMessage, MessageTooLarge
from raylog.wire.records import Record, encode_batch

KEY = TopicPartition("t", 0)


def batch(base: int, *values: bytes, producer: int = -1, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(0, 1000, None, value, []) for value in values]
    return encode_batch(
        records,
        base_offset=base,
        codec=codec,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        is_transactional=producer >= 0,
    )


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    return encode_end_txn_marker(
        EndTxnMarker(is_commit=commit, coordinator_epoch=1),
        producer_id=producer,
        producer_epoch=0,
        timestamp_ms=1000,
        base_offset=base,
    )


def fetched(
    data: bytes, start: int = 0, aborted: list[tuple[int, int]] | None = None
) -> FetchedBatches:
    return FetchedBatches(
        KEY,
        memoryview(data),
        from_offset=start,
        high_watermark=100,
        aborted=aborted,
        decompressed_bytes_max=10_000,
    )


def values(block: FetchedBatches) -> list[bytes | None]:
    found = []
    while not block.is_empty:
        found += [record.value for record in block.take()]
    return found


def test_batches_are_decoded_one_by_one() -> None:
    block = fetched(batch(5, b"a", b"b") + batch(7, b"c", codec=Codec.LZ4), start=5)
    assert block.end_offset == 8
    assert [(record.offset, record.value) for record in block.take()] == [(5, b"a"), (6, b"b")]
    assert block.next_offset == 7
    assert values(block) == [b"c"]
    assert block.next_offset == 8


def test_a_cut_batch_is_left_for_the_next_fetch() -> None:
    whole = batch(0, b"a") + batch(1, b"b" * 100)
    for cut in range(1, 100):
        block = fetched(whole[:-cut])
        assert (values(block), block.end_offset) == ([b"a"], 1)


def test_records_before_the_position_are_skipped() -> None:
    block = fetched(batch(0, b"old") + batch(1, b"a", b"b", b"c"), start=2)
    assert values(block) == [b"b", b"c"]


def damaged(data: bytes, at: int, value: int) -> bytes:
    """With another number of four bytes somewhere in its header, CRC left as it is."""
    changed = bytearray(data)
    changed[at : at + 4] = value.to_bytes(4, "big", signed=True)
    return bytes(changed)


@pytest.mark.parametrize("delta", [-1, 0])
def test_a_batch_that_seems_to_end_before_the_position_is_checked(delta: int) -> None:
    """It holds the position, and would be passed over with all that is behind it."""
    data = damaged(batch(0, b"a", b"b", b"c"), 23, delta) + batch(3, b"d")
    with pytest.raises(CorruptMessage, match="t-0 at offset 1: "):
        fetched(data, start=1)
    assert values(fetched(batch(9, b"y") + data, start=9)) == [b"y"], "its turn comes"


def test_a_batch_that_has_fewer_offsets_than_records_is_refused() -> None:
    data = damaged(batch(0, b"a", b"b", b"c"), 23, 1)
    with pytest.raises(CorruptMessage, match="t-0 at offset 0: 3 records, last offset delta 1"):
        fetched(data)


def test_a_batch_that_seems_to_end_far_away_is_refused_before_any_other() -> None:
    block = fetched(damaged(batch(0, b"a", b"b"), 23, 2**31 - 1) + batch(2, b"c"))
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="CRC"):
            block.take()
        assert block.next_offset == 0


def test_batches_with_lower_offsets_do_not_move_the_position_back() -> None:
    first = batch(0, *(b"%d" % offset for offset in range(10)))
    block = fetched(first + batch(3, b"again") + batch(8, b"8", b"9", b"10") + first)
    assert block.end_offset == 11
    assert values(block) == [b"%d" % offset for offset in range(11)]
    assert block.next_offset == 11


@pytest.mark.parametrize("size", [20, 70])
def test_an_answer_without_a_whole_batch_is_refused(size: int) -> None:
    with pytest.raises(CorruptMessage, match=f"t-0 at offset 4: .* found {size} bytes"):
        fetched(batch(4, b"v" * 50)[:size], start=4)


@pytest.mark.parametrize("length", [2**31 - 1, 60])
def test_a_batch_whose_length_lies_is_refused(length: int) -> None:
    with pytest.raises(CorruptMessage, match="t-0 at offset 0"):
        values(fetched(damaged(batch(0, b"v" * 50), 8, length) + batch(1, b"b")))


def test_an_answer_that_ends_before_the_position_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="expected a whole batch that ends behind"):
        fetched(batch(0, b"a"), start=5)


def test_control_batches_move_the_position_only() -> None:
    block = fetched(batch(0, b"a", producer=1) + marker(1, 1, commit=True) + batch(2, b"b"))
    assert values(block) == [b"a", b"b"]
    assert block.next_offset == 3


def test_aborted_records_are_left_out_up_to_their_marker() -> None:
    data = (
        batch(0, b"other", producer=2)
        + batch(1, b"committed", producer=1)
        + marker(2, 1, commit=True)
        + batch(3, b"aborted", producer=1)
        + batch(4, b"plain")
        + marker(5, 1, commit=False)
        + batch(6, b"later", producer=1)
        + marker(7, 2, commit=True)
    )
    assert values(fetched(data, aborted=[(1, 3)])) == [b"other", b"committed", b"plain", b"later"]
    assert len(values(fetched(data))) == 5, "read_uncommitted sees all"


def test_reading_uncommitted_is_the_default_and_shows_no_control_records_either() -> None:
    assert not ConsumerSettings().read_committed
    data = batch(0, b"aborted", producer=1) + marker(1, 1, commit=False) + batch(2, b"plain")
    assert values(fetched(data)) == [b"aborted", b"plain"]


def test_an_aborted_transaction_may_begin_before_the_fetch() -> None:
    data = batch(10, b"aborted", producer=1) + marker(11, 1, commit=False)
    assert values(fetched(data, start=10, aborted=[(1, 3)])) == []


def test_a_decompression_bomb_is_refused() -> None:
    block = fetched(batch(0, b"\0" * 50_000, codec=Codec.GZIP))
    with pytest.raises(MessageTooLarge):
        block.take()


def test_a_batch_that_cannot_be_decoded_stays_the_next_one() -> None:
    spoilt = bytearray(batch(0, b"a") + batch(1, b"b"))
    spoilt[-1] ^= 0xFF
    block = fetched(bytes(spoilt))
    assert [record.value for record in block.take()] == [b"a"]
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="CRC"):
            block.take()
        assert (block.next_offset, block.is_empty) == (1, False)


def test_a_marker_that_cannot_be_decoded_stays_the_next_one() -> None:
    spoilt = bytearray(batch(0, b"a", producer=7) + marker(1, 7, commit=False) + batch(2, b"b"))
    spoilt[len(batch(0, b"a", producer=7)) + 70] ^= 0xFF
    block = fetched(bytes(spoilt), aborted=[(7, 0)])
    assert block.take() == []
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="CRC"):
            block.take()
        assert block.next_offset == 1

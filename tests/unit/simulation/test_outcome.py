"""What a log's batches alone say about transactions: the model for replicas."""

from raylog.simulation.transactions.outcome import Outcome, committed_records
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.records import Record, decode_batch, encode_batch, iter_batches

NOW_MS = 1_700_000_000_000


def data(offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    return encode_batch(
        [Record(at, NOW_MS, None, value, []) for at, value in enumerate(values)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )


def marker(offset: int, producer_id: int, *, commit: bool, coordinator_epoch: int = 0) -> bytes:
    batch = bytearray(
        encode_end_txn_marker(
            EndTxnMarker(commit, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=NOW_MS,
        )
    )
    batch[:8] = offset.to_bytes(8, "big")  # not covered by the checksum
    return bytes(batch)


LOG = b"".join(
    [
        data(0, b"alone"),
        data(1, b"a", b"b", producer_id=7),
        data(3, b"c", producer_id=8),
        marker(4, 7, commit=False),
        data(5, b"d", producer_id=7),
        marker(6, 8, commit=True),
        data(7, b"between"),
        marker(8, 7, commit=True, coordinator_epoch=3),
        data(9, b"open", producer_id=9),
    ]
)


def outcome() -> Outcome:
    return Outcome((header, decode_batch(batch)) for header, batch in iter_batches(LOG))


def test_visible_records_follow_from_the_markers() -> None:
    found = outcome()
    assert found.visible == {0: b"alone", 3: b"c", 5: b"d", 7: b"between"}
    assert found.aborted == {1: b"a", 2: b"b"}
    assert found.aborted_spans() == [(7, 1, 4)]
    assert [(one.offset, one.coordinator_epoch) for one in found.markers] == [
        (4, 0),
        (6, 0),
        (8, 3),
    ]


def test_a_marker_ends_what_was_written_since_the_last() -> None:
    together = list(outcome().values_together())
    assert together == [[b"a", b"b"], [b"c"], [b"d"], [b"open"]]


def test_last_stable_offset_follows_from_the_high_watermark() -> None:
    stable = [outcome().last_stable_offset(high_watermark) for high_watermark in range(11)]
    assert stable == [0, 1, 1, 1, 1, 3, 3, 5, 5, 9, 9]


def test_readers_of_what_is_committed_pass_over_what_was_aborted() -> None:
    shown = [
        (record.offset, record.value)
        for _, records in committed_records(LOG, [(7, 1)])
        for record in records
    ]
    assert shown == [(0, b"alone"), (3, b"c"), (5, b"d"), (7, b"between"), (9, b"open")]


def test_every_batch_is_passed_even_without_records() -> None:
    ends = [header.next_offset for header, _ in committed_records(LOG, [(7, 1)])]
    assert ends == [1, 3, 4, 5, 6, 7, 8, 9, 10]

"""A sink's records in the state topic: which count, judged by the log alone."""

import json

import pytest

from raylog.sink.state import SinkState, StateUnreadable, WrittenJob, encode_state
from raylog.sink.state_scan import StateScan, registration, state_batches
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.records import Record, encode_batch, iter_batches, with_producer

SINK, OTHER = "copy-ü", "other"


def state(sequence: int) -> SinkState:
    return SinkState(sequence, jobs=(WrittenJob(f"job {sequence}", ""),))


def written(
    sequence: int, producer_id: int = 7, *, sink_id: str = SINK, batch_bytes_max: int = 1_000_000
) -> list[bytes]:
    """A state as a task writes it."""
    encoded = encode_state(state(sequence))
    batches = state_batches(sink_id, sequence, encoded, batch_bytes_max=batch_bytes_max, now_ms=1)
    return [with_producer(batch, producer_id, 0, number) for number, batch in enumerate(batches)]


def ended(producer_id: int = 7, *, is_commit: bool = True) -> bytes:
    """A marker."""
    return encode_end_txn_marker(
        EndTxnMarker(is_commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=1
    )


def scanned(*batches: bytes) -> StateScan:
    scan = StateScan(SINK, "__raylog_sinks-3")
    for header, batch in iter_batches(b"".join(batches)):
        scan.add(header, batch)
    return scan


def test_a_committed_state_counts_and_an_aborted_one_does_not() -> None:
    log = [*written(1), ended(), *written(2), ended(), *written(3), ended(is_commit=False)]
    scan = scanned(*log)
    assert scan.state() == state(2)
    assert scan.is_settled


def test_open_transactions_of_other_sinks_hide_nothing() -> None:
    """Though the last stable offset is before them, and so before this sink's state."""
    scan = scanned(*written(1, 9, sink_id=OTHER), *written(1), ended())
    assert scan.state() == state(1)
    assert scan.is_settled


def test_a_transaction_without_a_marker_is_not_settled() -> None:
    scan = scanned(*written(1), ended(), *written(2))
    assert not scan.is_settled
    assert scan.state() == state(1)


def test_a_marker_ends_the_transactions_of_its_own_producer() -> None:
    """An id that has used up its epochs goes on with another producer id."""
    scan = scanned(*written(1, 7), ended(8, is_commit=False), ended(7))
    assert scan.state() == state(1)


def test_a_registration_is_no_state() -> None:
    scan = scanned(registration(SINK, 1))
    assert (scan.is_registered, scan.is_known, scan.state()) == (True, True, None)
    assert not scanned(registration(OTHER, 1)).is_known
    assert scanned(*written(1)).is_known, "an open transaction's"


def test_a_long_state_comes_in_parts() -> None:
    """Of the newest alone, though an older one had more."""
    small, large = written(2), written(1, batch_bytes_max=550)
    assert len(small) == 1
    assert len(large) > 1
    assert scanned(*large, ended(), *small, ended()).state() == state(2)
    assert scanned(*small, ended(), *written(3, batch_bytes_max=550), ended()).state() == state(3)


def test_a_state_with_a_part_missing_is_reported() -> None:
    large = written(1, batch_bytes_max=550)
    with pytest.raises(StateUnreadable, match=r"expected \d+ parts of sequence 1, found"):
        scanned(*large[:-1], ended()).state()


def test_a_topic_for_tiny_batches_has_no_room() -> None:
    with pytest.raises(StateUnreadable, match=r"max\.message\.bytes=200"):
        written(1, batch_bytes_max=200)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ([("version", b"3")], "is of version 3, this build knows 1 .* and 2"),
        ([], "damaged"),
        ([("version", b"2"), ("sequence", b"x"), ("parts", b"1")], "damaged"),
    ],
)
def test_a_record_that_this_build_cannot_read_is_named(
    headers: list[tuple[str, bytes | None]], says: str
) -> None:
    key = json.dumps([SINK, 0]).encode()
    batch = encode_batch([Record(0, 1, key, b"{}", headers)])
    with pytest.raises(StateUnreadable, match=f"offset 0 of __raylog_sinks-3 is.*{says}|{says}"):
        scanned(batch)


def test_a_tombstone_forgets() -> None:
    key = json.dumps([SINK, 0]).encode()
    assert (
        scanned(*written(1), ended(), encode_batch([Record(0, 1, key, None, [])])).state() is None
    )


@pytest.mark.parametrize("key", [None, b"", b"x", b'["other",0]', b'{"copy": 0}'])
def test_records_of_others_are_passed_over(key: bytes | None) -> None:
    assert not scanned(encode_batch([Record(0, 1, key, b"{}", [])])).is_known

"""What readers find: slices and their metadata, indexes in memory, aborted transactions."""

import pytest

from raylog.storage.log import Log, Slice
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import (
    NOW_MS,
    append,
    batch,
    flush,
    looked_up,
    marker,
    open_log,
)


def segmented(disk: FaultyDisk, count: int = 6, **settings: int) -> Log:
    """A log with two batches of one record in each segment, all durable."""
    log = open_log(disk, segment_bytes=2 * len(batch()), **settings)
    for _ in range(2 * count):
        append(log, batch())
    assert log.segment_count == count
    flush(log)
    return log


def piece_at(log: Log, offset: int, max_bytes: int = 1) -> Slice:
    found = log.read(offset, max_bytes, log.log_end_offset)
    assert found is not None
    return found


# ---- indexes ---------------------------------------------------------------------------------


def indexed(log: Log) -> list[int]:
    return [int(name[:20]) for name in log.segments if log.reader.is_indexed(int(name[:20]))]


def test_few_indexes_of_closed_segments_are_in_memory(disk: FaultyDisk) -> None:
    log = segmented(disk)
    assert indexed(log) == [10]
    for offset in (1, 3, 5):
        piece_at(log, offset)
    assert indexed(log) == [2, 4, 10]
    for offset in (6, 8):
        job = log.reader.begin_index(offset)
        job.run()
        log.reader.end_index(job)
    assert indexed(log) == [6, 8, 10]
    log.retention(NOW_MS, 0)
    assert indexed(log) == [10]


def test_an_index_that_is_there_already_is_counted_once(disk: FaultyDisk) -> None:
    log = segmented(disk)
    piece_at(log, 1)
    for _ in range(3):
        job = log.reader.begin_index(0)
        job.run()
        log.reader.end_index(job)
    piece_at(log, 3)
    assert indexed(log) == [0, 2, 10]


def test_the_index_of_a_segment_that_grows_stays(disk: FaultyDisk) -> None:
    segmented(disk, index_interval_bytes=1).close()
    log = open_log(disk, index_interval_bytes=1)
    assert not log.reader.is_indexed(10)
    append(log, batch())
    for offset in (1, 3, 5):
        piece_at(log, offset)
    assert log.reader.is_indexed(10)
    append(log, batch())
    assert piece_at(log, 13).first_offset == 13


# ---- slices ----------------------------------------------------------------------------------


def test_last_written_bytes_are_recent(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = segmented(disk)
    size = len(batch())
    pieces = [piece_at(log, offset) for offset in range(12)]
    assert [log.reader.is_recent(piece) for piece in pieces] == [False] * 10 + [True] * 2
    monkeypatch.setattr("raylog.storage.reader.RECENT_BYTES", 2 * size)
    assert log.reader.is_recent(pieces[10])
    monkeypatch.setattr("raylog.storage.reader.RECENT_BYTES", 2 * size - 1)
    assert [log.reader.is_recent(piece) for piece in pieces[10:]] == [False, True]


def test_records_of_a_just_opened_log_are_not_recent(disk: FaultyDisk) -> None:
    segmented(disk).close()
    log = open_log(disk)
    assert not log.reader.is_recent(piece_at(log, 11))
    append(log, batch())
    assert log.reader.is_recent(piece_at(log, 12))


@pytest.mark.parametrize(
    ("ahead", "asked", "checked"),
    [(0, 1, 1), (1, 1, 1), (2, 1, 2), (3, 1, 3), (9, 1, 6), (1, 3, 3), (2, 6, 6)],
)
def test_a_check_goes_some_way_ahead(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, ahead: int, asked: int, checked: int
) -> None:
    log = open_log(disk, index_interval_bytes=1)
    size = len(batch())
    for _ in range(6):
        append(log, batch())
    log.close()
    monkeypatch.setattr("raylog.storage.checking.AHEAD_BYTES", ahead * size)
    log = open_log(disk, index_interval_bytes=1)
    found = piece_at(log, 0, asked * size)
    job = log.reader.begin_check(found)
    job.run()
    assert job.found == (found.position, checked * size, None)
    log.reader.end_check(job)
    needed = [log.reader.unchecked.touches(piece_at(log, offset)) for offset in range(6)]
    assert needed == [offset >= checked for offset in range(6)]


def test_the_last_batch_of_a_segment_is_checked_by_itself(disk: FaultyDisk) -> None:
    segmented(disk).close()
    log = open_log(disk)
    for offset in (3, 11):
        found = piece_at(log, offset)
        assert log.reader.unchecked.touches(found)
        job = log.reader.begin_check(found)
        job.run()
        assert job.found is not None
        assert job.found.damage is None
        log.reader.end_check(job)
        assert not log.reader.unchecked.touches(found)
        assert log.reader.unchecked.touches(piece_at(log, offset - 1))


def test_a_batch_in_which_the_log_starts_is_of_the_epoch_that_starts_there(
    disk: FaultyDisk,
) -> None:
    log = open_log(disk)
    append(log, batch(5), epoch=2)
    append(log, batch(5), epoch=3)
    log.delete_records_to(3)
    log.close()
    log = open_log(disk)
    assert log.epochs.entries() == [(2, 3), (3, 5)]
    job = log.reader.begin_check(piece_at(log, 3))
    job.run()
    assert job.found is not None
    assert job.found.damage is None


# ---- lookups ---------------------------------------------------------------------------------


def test_timestamp_lookup_returns_the_first_of_equal_times(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=3 * len(batch()))
    for timestamp in (5, 9, 7, 9, 9, 9):
        append(log, batch(timestamp=NOW_MS + timestamp))
    assert log.segment_count > 1
    assert looked_up(log, None) == (1, NOW_MS + 9, 0)
    assert looked_up(log, NOW_MS + 9) == (1, NOW_MS + 9, 0)


def test_a_lookup_is_of_the_moment_when_it_was_begun(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    job = log.reader.begin_lookup(None)
    append(log, batch(timestamp=NOW_MS + 9))
    job.run()
    assert job.found is not None
    assert job.found.offset == 0
    assert looked_up(log, None) == (1, NOW_MS + 9, 0)


# ---- aborted transactions --------------------------------------------------------------------


@pytest.mark.parametrize("segment_bytes", [200, 10_000])
def test_aborted_transactions_of_a_part_of_the_log(disk: FaultyDisk, segment_bytes: int) -> None:
    log = open_log(disk, segment_bytes=segment_bytes)
    for producer_id in (1, 2):
        append(log, batch(producer_id=producer_id, transactional=True))
    append(log, marker(1, commit=False))
    append(log, marker(2, commit=False))
    append(log, batch(producer_id=3, transactional=True))
    append(log, marker(3, commit=False))
    one, two, three = (1, 0, 2, 1), (2, 1, 3, 4), (3, 4, 5, 6)
    assert log.reader.aborted_transactions(0, 6) == [one, two, three]
    for start, end, expected in [
        (0, 1, [one]),
        (0, 2, [one, two]),
        (1, 2, [one, two]),
        (2, 3, [one, two]),
        (3, 4, [two]),
        (3, 5, [two, three]),
        (4, 5, [three]),
        (5, 6, [three]),
    ]:
        assert log.reader.aborted_transactions(start, end) == expected, (start, end)
    log.close()
    log = open_log(disk, segment_bytes=segment_bytes)
    assert log.reader.aborted_transactions(0, 6) == [one, two, three]


def test_committed_transaction_is_not_listed_as_aborted(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch(producer_id=1, transactional=True))
    append(log, marker(1, commit=True))
    assert log.reader.aborted_transactions(0, 2) == []
    assert log.reader.last_stable_offset(1) == 0
    assert log.reader.last_stable_offset(2) == 2

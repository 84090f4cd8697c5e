"""What retention and truncation leave of a log's files, producers and memory."""

import pytest

from raylog.storage.checkpoint import StateFile
from raylog.storage.log import Log, LogConfig
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    begin_clean,
    checkpoint,
    clean,
    clean_step,
    flush,
    keyed,
    names,
    open_log,
)

DAY_MS = 24 * 3_600_000
SIZE = len(batch(producer_id=1))


def segmented(disk: FaultyDisk, **settings: int) -> Log:
    """A log with two batches of one record in each of six segments."""
    log = open_log(disk, segment_bytes=2 * SIZE, index_interval_bytes=1, **settings)
    for number in range(12):
        append(log, batch(producer_id=1, sequence=number))
    return log


def test_producers_expire_with_retention(disk: FaultyDisk) -> None:
    log = segmented(disk, retention_ms=-1)
    log.retention(NOW_MS + DAY_MS - 1, 12)
    assert len(log.producers.describe()) == 1
    log.retention(NOW_MS + DAY_MS, 12)
    assert log.producers.describe() == []


def test_retention_does_not_take_the_log_start_back(disk: FaultyDisk) -> None:
    log = segmented(disk)
    log.delete_records_to(5)
    assert log.retention(NOW_MS, 12) == [f"{0:020}.log", f"{2:020}.log"]
    assert log.log_start_offset == 5


def test_snapshots_go_with_their_segments(disk: FaultyDisk) -> None:
    log = segmented(disk, file_delete_delay_ms=0)
    flush(log)
    checkpoint(log)
    assert names(disk, ".producers") == [f"{base:020}.producers" for base in range(2, 12, 2)]
    log.delete_records_to(8)
    log.retention(NOW_MS, 12)
    checkpoint(log)
    assert names(disk, ".producers") == [f"{base:020}.producers" for base in (8, 10)]
    assert names(disk, ".log") == log.segments


@pytest.mark.parametrize("offset", [4, 3])
def test_truncation_to_the_log_start_leaves_nothing(disk: FaultyDisk, offset: int) -> None:
    log = segmented(disk)
    log.delete_records_to(4)
    log.truncate_to(offset, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.segments) == (offset, offset, [])
    assert names(disk, ".log") == []


def test_truncation_removes_what_expired(disk: FaultyDisk) -> None:
    log = segmented(disk)
    log.delete_records_to(4)
    log.retention(NOW_MS, 12)
    assert f"{0:020}.log" in names(disk, ".log")
    log.truncate_to(9, NOW_MS)
    assert names(disk, ".log") == log.segments


def test_snapshots_of_what_was_cut_are_not_saved(disk: FaultyDisk) -> None:
    log = segmented(disk)
    log.truncate_to(5, NOW_MS)
    flush(log)
    checkpoint(log)
    assert max(int(name[:20]) for name in names(disk, ".producers")) == 5
    for number in range(3):
        append(log, batch(producer_id=2, sequence=number))
    disk.kill()
    log = open_log(disk, segment_bytes=2 * SIZE)
    known = [(one.producer_id, one.last_sequence) for one in log.producers.describe()]
    assert known == [(1, 4), (2, 2)]


def test_readers_that_go_on_are_not_sent_to_a_segment_that_was_cut(disk: FaultyDisk) -> None:
    log = segmented(disk)
    for offset in range(12):
        log.read(offset, 1, 12)
    log.truncate_to(7, NOW_MS)
    append(log, batch(producer_id=1, sequence=7))
    for offset in range(8):
        found = log.read(offset, 1, 8)
        assert found is not None
        assert found.segment_id in log.segments
        assert len(log.reader.load(found)) == SIZE


def test_readers_that_go_on_are_sent_to_what_was_cleaned(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=500, min_cleanable_dirty_ratio=0, index_interval_bytes=1)
    for number in range(12):
        append(log, keyed([(b"%d" % (number % 5), b"v" * 50)]))
    for offset in range(12):
        log.read(offset, 1, 12)
    assert clean(log)
    for offset in range(12):
        found = log.read(offset, 1, 12)
        assert found is not None
        assert found.segment_id in log.segments


def test_a_log_that_is_whole_again_says_so(disk: FaultyDisk) -> None:
    log = segmented(disk)
    flush(log)
    checkpoint(log)
    disk.kill()
    disk.unlink(f"{DIRECTORY}/{log.segments[-1]}")
    log = Log.open(DIRECTORY, LogConfig(segment_bytes=2 * SIZE), disk, now_ms=NOW_MS)
    file = StateFile(disk, str(DIRECTORY))
    for held in (12, 12, 0):
        checkpoint(log)
        state = file.read()
        assert state is not None
        assert (state.held, log.state.is_whole) == (held, held == 0)
        append(log, batch())


def test_a_high_watermark_that_moved_is_worth_a_checkpoint(disk: FaultyDisk) -> None:
    log = segmented(disk)
    flush(log)
    for high_watermark in (5, 6):
        job = log.checkpoints.begin(NOW_MS, high_watermark)
        assert job is not None
        job.run()
        log.checkpoints.end(job)
        assert log.checkpoints.high_watermark_saved == high_watermark
        assert log.checkpoints.begin(NOW_MS, high_watermark) is None


def test_pauses_are_for_all_bytes_that_were_read_and_written(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=10, min_cleanable_dirty_ratio=0)
    data = keyed([(b"%04d" % number, b"") for number in range(600)])
    for _ in range(2):
        append(log, bytearray(data))
    append(log, keyed([(b"last", b"")]))
    flush(log)
    checkpoint(log)
    pauses: list[int] = []
    job = begin_clean(log, pause=pauses.append)
    assert job is not None
    while clean_step(log, job):
        pass
    size = len(data)
    assert pauses[:3] == [size, size, size], "keys of both, and the first is looked at again"
    assert size <= pauses[3] < 2 * size, "of the first next to nothing was written"

"""Retention, DeleteRecords and truncation."""

import errno

import pytest

from raylog.storage.log import Log, LogConfig
from raylog.wire.errors import KafkaStorageError, OffsetOutOfRange
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    flush,
    open_log,
)

HOUR_MS = 3_600_000


def settings(retention_bytes: int) -> LogConfig:
    return LogConfig(retention_bytes=retention_bytes, retention_ms=-1)


def segmented(disk: FaultyDisk, count: int = 6, **settings: int) -> Log:
    """A log with one batch of one record in each segment, one hour apart."""
    log = open_log(disk, segment_bytes=100, **{"retention_ms": -1} | settings)
    for number in range(count):
        append(log, batch(timestamp=NOW_MS + number * HOUR_MS), epoch=number // 2)
    assert log.segment_count == count
    return log


def test_segments_expire_by_their_newest_record(disk: FaultyDisk) -> None:
    log = segmented(disk, retention_ms=2 * HOUR_MS)
    assert log.retention(NOW_MS + 2 * HOUR_MS, 6) == []
    assert log.retention(NOW_MS + 4 * HOUR_MS, 6) == [f"{0:020}.log", f"{1:020}.log"]
    assert log.log_start_offset == 2
    assert log.epochs.entries() == [(1, 2), (2, 4)]


def test_segments_go_while_the_log_is_too_large(disk: FaultyDisk) -> None:
    log = segmented(disk)
    size = log.size // 6
    log.reconfigure(settings(3 * size))
    assert len(log.retention(NOW_MS, 6)) == 3
    log.reconfigure(settings(3 * size - 1))
    assert log.retention(NOW_MS, 6) == []


def test_without_any_retention_what_is_past_goes(disk: FaultyDisk) -> None:
    log = segmented(disk, retention_ms=0)
    last_ms = NOW_MS + 5 * HOUR_MS
    assert len(log.retention(last_ms, 6)) == 5
    assert len(log.retention(last_ms + 1, 6)) == 1


def test_segments_expire_only_in_order(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=100, retention_ms=HOUR_MS)
    for age_ms in (0, 9 * HOUR_MS, 9 * HOUR_MS):
        append(log, batch(timestamp=NOW_MS - age_ms))
    assert log.retention(NOW_MS, 3) == []
    assert log.log_start_offset == 0


def test_a_segment_that_was_just_begun_does_not_expire(disk: FaultyDisk) -> None:
    log = segmented(disk, retention_ms=HOUR_MS, retention_bytes=0, segment_ms=HOUR_MS)
    assert log.roll_if_due(NOW_MS + 99 * HOUR_MS)
    assert not log.roll_if_due(NOW_MS + 199 * HOUR_MS)
    assert len(log.retention(NOW_MS + 99 * HOUR_MS, 6)) == 6
    assert log.segments == [f"{6:020}.log"]
    assert log.retention(NOW_MS + 99 * HOUR_MS, 6) == []


@pytest.mark.parametrize("retention", [{"retention_ms": 1}, {"retention_bytes": 0}])
def test_a_log_that_is_compacted_only_loses_what_was_deleted(
    disk: FaultyDisk, retention: dict[str, int]
) -> None:
    log = segmented(disk)
    log.reconfigure(
        LogConfig(
            delete=False,
            compact=True,
            retention_ms=retention.get("retention_ms", -1),
            retention_bytes=retention.get("retention_bytes", -1),
        )
    )
    assert log.retention(NOW_MS + 99 * HOUR_MS, 6) == []
    log.delete_records_to(2)
    assert log.retention(NOW_MS + 99 * HOUR_MS, 6) == [f"{0:020}.log", f"{1:020}.log"]


def test_a_segment_goes_when_all_its_records_were_deleted(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=400, retention_ms=-1)
    for _ in range(6):
        append(log, batch())
    base = int(log.segments[1][:20])
    log.delete_records_to(base - 1)
    assert log.retention(NOW_MS, 6) == []
    log.delete_records_to(base)
    assert log.retention(NOW_MS, base - 1) == [], "it is not replicated"
    assert len(log.retention(NOW_MS, base)) == 1
    assert log.log_start_offset == base


def test_nothing_at_or_above_the_high_watermark_expires(disk: FaultyDisk) -> None:
    log = segmented(disk, retention_bytes=0)
    assert len(log.retention(NOW_MS, 3)) == 3
    assert log.log_start_offset == 3


def test_records_without_timestamps_are_as_old_as_their_file(disk: FaultyDisk) -> None:
    log = open_log(disk, retention_ms=HOUR_MS)
    append(log, batch(timestamp=-1))
    disk.now_ms += 1_000
    append(log, batch(timestamp=-1))
    log.close()
    disk.now_ms += HOUR_MS
    log = Log.open(DIRECTORY, log.state.config, disk, now_ms=disk.now_ms)
    assert log.retention(NOW_MS + 1_000 + HOUR_MS, 2) == []
    assert len(log.retention(NOW_MS + 1_001 + HOUR_MS, 2)) == 1


def test_a_record_with_a_time_decides_beside_those_without(disk: FaultyDisk) -> None:
    log = open_log(disk, retention_ms=HOUR_MS)
    append(log, batch(timestamp=-1))
    append(log, batch(timestamp=0))
    assert len(log.retention(NOW_MS, 2)) == 1


def test_a_file_whose_age_is_unknown_is_no_reason_to_delete_it(disk: FaultyDisk) -> None:
    log = open_log(disk, retention_ms=HOUR_MS)
    append(log, batch(timestamp=-1))
    disk.fail("modified_ms", errno.EIO)
    with pytest.raises(KafkaStorageError, match="retention"):
        log.retention(NOW_MS + 2 * HOUR_MS, 1)
    assert log.segment_count == 1


def test_everything_can_expire_and_the_end_stays(disk: FaultyDisk) -> None:
    log = segmented(disk, retention_ms=HOUR_MS)
    append(log, batch(producer_id=4))
    assert len(log.retention(NOW_MS + 9 * HOUR_MS, 7)) == 7
    assert (log.log_start_offset, log.log_end_offset, log.segments) == (7, 7, [])
    assert log.read(7, 100, 7) is None
    checkpoint(log, NOW_MS + 10 * HOUR_MS)
    disk.kill()
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset, log.segments) == (7, 7, [])
    assert [info.producer_id for info in log.producers.describe()] == [4]
    assert append(log, batch()).base_offset == 7


def test_producers_of_expired_records_survive_a_kill(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=400, retention_bytes=0)
    for sequence in range(3):
        append(log, batch(producer_id=1 + sequence // 2, sequence=sequence % 2))
    log.delete_records_to(2)
    log.retention(NOW_MS, 2)
    checkpoint(log, NOW_MS + HOUR_MS)
    log.close()
    log = open_log(disk, retention_bytes=0)
    log.retention(NOW_MS, 3)
    checkpoint(log)
    assert log.segments == []
    disk.kill()  # the last file is still there, the snapshot at its beginning is not
    log = Log.open(DIRECTORY, LogConfig(), disk, now_ms=NOW_MS, clean=False)
    assert [info.producer_id for info in log.producers.describe()] == [1, 2]


def test_expired_files_stay_for_a_while_then_go_after_the_state_was_saved(
    disk: FaultyDisk,
) -> None:
    log = segmented(disk, retention_bytes=0, file_delete_delay_ms=500)
    gone = log.retention(NOW_MS, 5)
    assert checkpoint(log, NOW_MS + 499)
    assert set(gone) <= set(disk.listdir(str(DIRECTORY)))
    disk.calls.clear()
    assert checkpoint(log, NOW_MS + 500)
    assert not set(gone) & set(disk.listdir(str(DIRECTORY)))
    assert disk.calls.index("rename") < disk.calls.index("unlink")
    assert not checkpoint(log, NOW_MS + 501)


def test_expired_files_go_in_time_though_the_clock_was_set_back(disk: FaultyDisk) -> None:
    log = segmented(disk, retention_bytes=0, file_delete_delay_ms=500)
    log.retention(NOW_MS, 5)
    checkpoint(log, NOW_MS)
    for ms, left in ((0, 6), (499, 6), (500, 1)):
        checkpoint(log, NOW_MS - HOUR_MS + ms)
        names = disk.listdir(str(DIRECTORY))
        assert len([name for name in names if name.endswith(".log")]) == left


def test_a_close_removes_expired_files(disk: FaultyDisk) -> None:
    log = segmented(disk, retention_bytes=0)
    gone = log.retention(NOW_MS, 5)
    log.close()
    assert not set(gone) & set(disk.listdir(str(DIRECTORY)))


def test_deleted_records_are_out_of_range_and_their_segments_expire(disk: FaultyDisk) -> None:
    log = segmented(disk)
    log.delete_records_to(3)
    log.delete_records_to(2)  # never back
    assert log.log_start_offset == 3
    assert log.segment_count == 6
    assert len(log.retention(NOW_MS, 6)) == 3
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_to(7)


def test_deleted_records_stay_deleted(disk: FaultyDisk) -> None:
    log = segmented(disk)
    log.delete_records_to(3)
    checkpoint(log)
    disk.kill()
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset) == (3, 6)


def test_truncation_makes_a_new_file_and_leaves_the_old_one_to_readers(disk: FaultyDisk) -> None:
    log = open_log(disk)
    size = append(log, batch()).length
    for number in range(4):
        append(log, batch(), epoch=number)
    old = log.segments[0]
    fd = disk.open(f"{DIRECTORY}/{old}")
    log.truncate_to(2, NOW_MS)
    assert log.log_end_offset == 2
    assert log.segments == ["00000000000000000000-1.log"]
    assert old not in disk.listdir(str(DIRECTORY))
    assert disk.size(fd) >= 5 * size  # a reader's file is as it was
    assert log.epochs.entries() == [(0, 0)]
    info = append(log, batch(), epoch=9)
    assert (info.base_offset, info.position) == (2, 2 * size)


def test_truncation_at_a_segment_removes_whole_segments(disk: FaultyDisk) -> None:
    log = segmented(disk)
    flush(log)
    log.truncate_to(4, NOW_MS)
    assert log.segments == [f"{number:020}.log" for number in range(4)]
    assert append(log, batch()).segment_id == "00000000000000000004-1.log"
    assert log.state.recovery_point == 4


def test_truncation_within_a_batch_drops_the_batch(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch(5))
    append(log, batch(5))
    log.truncate_to(7, NOW_MS)
    assert log.log_end_offset == 5


def test_truncation_to_the_end_or_beyond_does_nothing(disk: FaultyDisk) -> None:
    log = segmented(disk)
    disk.calls.clear()
    log.truncate_to(6, NOW_MS)
    log.truncate_to(99, NOW_MS)
    assert disk.calls == []
    assert log.log_end_offset == 6


def test_truncation_drops_an_epoch_without_records_at_the_end(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch(), epoch=3)
    log.epochs.assign(5, 1)
    log.truncate_to(1, NOW_MS)
    assert log.epochs.entries() == [(3, 0)]
    assert log.log_end_offset == 1


def test_a_log_that_begins_anew_knows_no_epochs(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch(), epoch=3)
    log.truncate_fully(100)
    assert log.epochs.entries() == []


def test_truncation_below_the_start_begins_the_log_anew(disk: FaultyDisk) -> None:
    log = segmented(disk)
    log.delete_records_to(4)
    log.truncate_to(2, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.segments) == (2, 2, [])
    log.truncate_fully(9)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    disk.kill()
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert append(log, batch()).segment_id == "00000000000000000009-2.log"


def test_truncation_into_a_gap_around_the_log_start(disk: FaultyDisk) -> None:
    log = open_log(disk)
    log.append_verbatim(batch(3) + batch(offset=5) + batch(offset=8), NOW_MS)
    log.delete_records_to(7)
    log.truncate_to(8, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    log.close()
    log = open_log(disk)
    assert log.report.clean
    assert (log.log_start_offset, log.log_end_offset, log.segments) == (7, 7, [])
    assert append(log, batch()).base_offset == 7


def test_appends_after_a_truncation_and_two_openings_are_found_again(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=400)
    for sequence in range(3):
        append(log, batch(producer_id=1, sequence=sequence))
    assert log.segment_count == 2
    log.close()
    log = open_log(disk, segment_bytes=400)
    log.truncate_to(2, NOW_MS)  # what is last now has a hole behind its data
    log.close()
    config = LogConfig(segment_bytes=600)
    log = Log.open(DIRECTORY, config, disk, now_ms=NOW_MS, clean=False)
    append(log, batch(producer_id=1, sequence=2, size=10))
    disk.kill()
    assert open_log(disk).log_end_offset == 3


def test_truncation_takes_producers_back(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=300)
    for sequence in range(8):
        append(log, batch(producer_id=3, sequence=sequence))
    log.truncate_to(5, NOW_MS)
    assert log.producers.describe()[0].last_sequence == 4
    append(log, batch(producer_id=3, sequence=5))


def test_no_truncation_while_a_job_is_under_way(disk: FaultyDisk) -> None:
    log = segmented(disk)
    job = log.flushes.begin()
    busy = [log.busy]
    with pytest.raises(AssertionError):
        log.truncate_to(3, NOW_MS)
    job.run()
    log.flushes.end(job)
    busy.append(log.busy)
    log.truncate_to(3, NOW_MS)
    assert busy == [True, False]


def test_no_truncation_while_a_checkpoint_is_under_way(disk: FaultyDisk) -> None:
    log = segmented(disk)
    job = log.checkpoints.begin(NOW_MS, 6)
    assert job is not None
    assert log.busy
    job.run()
    log.checkpoints.end(job)
    assert not log.busy


def test_segments_that_were_cut_are_not_flushed(disk: FaultyDisk) -> None:
    log = segmented(disk)
    log.truncate_to(2, NOW_MS)
    flush(log)
    indexes = {name for name in disk.listdir(str(DIRECTORY)) if name.endswith(".index")}
    assert indexes <= {name.replace(".log", ".index") for name in log.segments}


@pytest.mark.parametrize("anew", [False, True])
def test_the_high_watermark_goes_down_with_the_log(disk: FaultyDisk, anew: bool) -> None:
    log = segmented(disk)
    flush(log)
    checkpoint(log)
    assert log.checkpoints.high_watermark_saved == 6
    if anew:
        log.truncate_fully(4)
    else:
        log.truncate_to(4, NOW_MS)
    saved = log.checkpoints.high_watermark_saved
    assert saved == (0 if anew else 4)
    log.close()
    assert open_log(disk).checkpoints.high_watermark_saved == saved

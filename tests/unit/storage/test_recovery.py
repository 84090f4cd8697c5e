"""Opening a log after a clean close, a killed process, a power loss, and damage."""

import errno
import random
from contextlib import suppress
from itertools import count

import pytest

from raylog.storage.log import Log
from tests.worlds.storage.disk import FaultyDisk, Killed
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    flush,
    marker,
    open_log,
    path,
)


def fill(log: Log, count: int = 10) -> int:
    """Append; bytes of one batch."""
    for number in range(count):
        info = append(log, batch(producer_id=1, sequence=number))
    return info.length


def everything(log: Log) -> bytes:
    offset, data = log.log_start_offset, b""
    while (found := log.read(offset, 1_000, log.log_end_offset)) is not None:
        data += log.reader.load(found)
        offset = found.next_offset
    return data


def test_a_clean_close_cuts_the_hole_and_needs_no_scan(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=800)
    fill(log)
    data = everything(log)
    last = log.segments[-1]
    log.close(10)
    assert disk.open_descriptors == 0
    log = open_log(disk, segment_bytes=800)
    assert log.report.clean
    assert log.report.scanned_bytes == 0
    assert (log.log_end_offset, log.state.recovery_point, log.checkpoints.high_watermark_saved) == (
        10,
        10,
        10,
    )
    assert everything(log) == data
    assert len(disk.contents(path(last))) < 800
    assert log.producers.describe()[0].last_sequence == 9


def test_a_log_reopened_and_not_used_writes_nothing(disk: FaultyDisk) -> None:
    log = open_log(disk)
    fill(log)
    log.close(10)
    log = open_log(disk)
    disk.calls.clear()
    assert not checkpoint(log)
    log.close(10)
    assert not {"pwritev", "fdatasync", "rename"} & set(disk.calls)
    assert open_log(disk).report.clean


def test_the_clean_mark_does_not_outlive_the_next_append(disk: FaultyDisk) -> None:
    log = open_log(disk)
    fill(log)
    log.close()
    log = open_log(disk)
    append(log, batch(producer_id=1, sequence=10))
    disk.kill()
    log = open_log(disk)
    assert not log.report.clean
    assert log.log_end_offset == 11
    assert log.producers.describe()[0].last_sequence == 10


class Always(random.Random):
    """Chance with one outcome: at 0.0 no unsynced data survives, at 0.5 all of it does."""

    def __init__(self, outcome: float) -> None:
        super().__init__()
        self._outcome = outcome

    def random(self) -> float:
        return self._outcome


def test_no_epoch_outlives_its_records_in_a_power_cut(disk: FaultyDisk) -> None:
    """The file is what it was when the log was closed, and the saved state is not."""
    log = open_log(disk)
    fill(log)
    log.close()
    disk.crash(Always(0.5))
    log = open_log(disk)
    assert log.report.clean
    append(log, batch(producer_id=1, sequence=10), epoch=5)
    checkpoint(log)
    disk.crash(Always(0.0))
    log = open_log(disk)
    assert log.log_end_offset == 10
    assert log.epochs.latest == 0
    assert append(log, batch(producer_id=1, sequence=10), epoch=6).base_offset == 10


def test_a_killed_process_loses_nothing(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=800)
    fill(log)
    data = everything(log)
    disk.kill()
    log = open_log(disk, segment_bytes=800)
    assert log.log_end_offset == 10
    assert everything(log) == data
    assert log.report.rejected_bytes == 0
    append(log, batch(producer_id=1, sequence=10))
    assert log.report.removed_segments == []


def test_scanning_begins_at_the_segment_of_the_recovery_point(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=800)
    fill(log, 18)
    flush(log)
    checkpoint(log)
    append(log, batch())
    disk.kill()
    log = open_log(disk, segment_bytes=800)
    assert log.report.scanned_segments == 1
    assert log.log_end_offset == 19


def test_an_index_that_is_older_than_its_segment_is_not_believed(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=800)
    fill(log, 2)
    log.close()  # writes the index of a segment that goes on to grow
    log = open_log(disk, segment_bytes=800)
    for sequence in range(2, 4):
        append(log, batch(producer_id=1, sequence=sequence))
    flush(log)
    append(log, batch(producer_id=1, sequence=4))
    assert log.segment_count == 2
    checkpoint(log)
    disk.kill()
    log = open_log(disk, segment_bytes=800)
    assert log.log_end_offset == 5
    assert len(everything(log)) == log.size


def test_after_a_kill_only_what_came_after_the_last_checkpoint_is_scanned(
    disk: FaultyDisk,
) -> None:
    log = open_log(disk, index_interval_bytes=1, index_checkpoint_bytes=1_000)
    size = fill(log, 50)
    checkpoint(log)
    for sequence in range(50, 53):
        append(log, batch(producer_id=1, sequence=sequence), epoch=4)
    data = everything(log)
    disk.kill()
    log = open_log(disk, index_interval_bytes=1, index_checkpoint_bytes=1_000)
    assert log.report.scanned_bytes == 3 * size
    assert log.log_end_offset == 53
    assert log.producers.describe()[0].last_sequence == 52
    assert log.epochs.entries() == [(0, 0), (4, 50)]
    assert everything(log) == data
    found = log.read(17, size, 53)
    assert found is not None
    assert found.position == 17 * size
    log = open_log(disk, index_checkpoint_bytes=1_000)
    assert log.report.scanned_bytes == 3 * size


def test_an_index_is_checkpointed_when_its_segment_has_grown_enough(disk: FaultyDisk) -> None:
    """By so much since it was begun, opened, or checkpointed last."""

    def writes_index(log: Log, batches: int) -> bool:
        for _ in range(batches):
            append(log, batch())
        name = log.segments[0].replace(".log", ".index")
        if name in disk.listdir(str(DIRECTORY)):
            disk.unlink(path(name))
        checkpoint(log)
        return name in disk.listdir(str(DIRECTORY))

    every = 10 * len(batch())
    log = open_log(disk, index_checkpoint_bytes=every)
    for _ in range(2):
        assert not writes_index(log, 9)
        assert writes_index(log, 1)
    log.close()
    log = open_log(disk, index_checkpoint_bytes=every)
    assert not writes_index(log, 9)
    assert writes_index(log, 1)


def test_flushed_records_after_the_index_checkpoint_are_not_scanned(
    disk: FaultyDisk,
) -> None:
    sizes = {"segment_bytes": 1_000, "index_checkpoint_bytes": 500}
    log = open_log(disk, **sizes)
    fill(log, 5)
    checkpoint(log)
    for _ in range(21):
        append(log, batch(size=300))
    flush(log)
    checkpoint(log)  # the last segment has one batch: too little for an index
    append(log, batch(size=300))
    disk.kill()
    log = open_log(disk, **sizes)
    assert log.report.scanned_segments == 1
    assert log.log_end_offset == 27


def test_after_a_power_cut_the_last_checkpoint_does_not_count(disk: FaultyDisk) -> None:
    log = open_log(disk, index_checkpoint_bytes=1_000)
    size = fill(log, 50)
    flush(log)
    checkpoint(log)
    disk.crash(random.Random(0))
    log = open_log(disk, index_checkpoint_bytes=1_000)
    assert log.report.scanned_bytes == 50 * size
    assert log.log_end_offset == 50


@pytest.mark.parametrize("damage", [".index", ".producers"])
def test_a_checkpoint_without_its_files_costs_a_scan(disk: FaultyDisk, damage: str) -> None:
    log = open_log(disk, index_checkpoint_bytes=1_000)
    size = fill(log, 50)
    checkpoint(log)
    disk.kill()
    for name in disk.listdir(str(DIRECTORY)):
        if name.endswith(damage):
            disk.corrupt(path(name), 30, b"\xff\xff")
    log = open_log(disk, index_checkpoint_bytes=1_000)
    assert log.report.scanned_bytes == 50 * size
    assert log.producers.describe()[0].last_sequence == 49


def test_flushed_records_survive_a_power_cut(disk: FaultyDisk) -> None:
    for seed in range(30):
        disk = FaultyDisk()
        log = open_log(disk, segment_bytes=800)
        fill(log)
        flush(log)
        append(log, batch())
        disk.crash(random.Random(seed))
        log = open_log(disk, segment_bytes=800)
        assert log.log_end_offset in (10, 11)


def test_a_torn_tail_is_left_alone_and_the_log_goes_on_elsewhere(disk: FaultyDisk) -> None:
    log = open_log(disk)
    size = fill(log)
    name = log.segments[0]
    disk.kill()
    torn = disk.contents(path(name))[9 * size : 10 * size - 5]
    disk.corrupt(path(name), 9 * size, torn + bytes(5))
    log = open_log(disk)
    assert log.log_end_offset == 9
    assert 0 < log.report.rejected_bytes <= size
    info = append(log, batch(producer_id=1, sequence=9))
    assert (info.base_offset, info.position) == (9, 0)
    assert info.segment_id == "00000000000000000009-1.log"
    assert disk.contents(path(name))[9 * size : 10 * size - 5] == torn
    log.close()
    log = open_log(disk)
    assert (log.log_end_offset, log.report.clean) == (10, True)


def test_a_batch_of_a_new_epoch_stays_though_the_one_behind_it_is_torn(disk: FaultyDisk) -> None:
    log = open_log(disk)
    fill(log, 3)
    durable = append(log, batch(), epoch=1)
    flush(log)
    torn = append(log, batch(), epoch=1)
    disk.kill()
    name = path(log.segments[0])
    disk.corrupt(name, torn.position, bytes(8))  # its offset never reached the disk,
    disk.corrupt(name, torn.position + 30, bytes(torn.length - 30))  # nor did its records
    assert open_log(disk).log_end_offset == durable.base_offset + 1


def test_a_torn_first_batch_leaves_an_empty_log_with_a_fresh_name(disk: FaultyDisk) -> None:
    log = open_log(disk)
    size = fill(log, 1)
    disk.kill()
    disk.corrupt(path(log.segments[0]), size - 1, b"\0")
    log = open_log(disk)
    assert (log.log_end_offset, log.segments) == (0, [])
    assert append(log, batch()).segment_id == "00000000000000000000-2.log"


def test_segments_behind_missing_records_go(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=500)
    fill(log)
    segments = log.segments
    disk.kill()
    disk.corrupt(path(segments[1]), 30, b"\xff")
    log = open_log(disk, segment_bytes=500)
    assert log.log_end_offset == int(segments[1][:20])
    assert set(log.report.removed_segments) >= set(segments[2:])
    assert append(log, batch()).segment_id not in segments


def test_damage_below_the_recovery_point_is_left_to_readers(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=500)
    fill(log)
    segments = log.segments
    log.close()
    disk.corrupt(path(segments[0]), 30, b"\xff")
    assert open_log(disk).log_end_offset == 10


def test_indexes_come_and_go_with_those_who_read(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=800)
    size = fill(log, 12)
    disk.corrupt(path(log.segments[2]), 3 * size + 70, b"\xff")  # sealed by the next opening
    disk.kill()
    open_log(disk, segment_bytes=800).close()
    log = open_log(disk, segment_bytes=800)
    for _ in range(3):
        for offset in (9, 1, 9, 5, 2):
            found = log.read(offset, size, 11)
            assert found is not None
            assert found.position == offset % 4 * size
            append(log, batch(size=700))
            flush(log)


@pytest.mark.parametrize("damage", ["missing", "short", "wrong", "other"])
def test_an_index_is_made_again(disk: FaultyDisk, damage: str) -> None:
    log = open_log(disk, segment_bytes=2_000, index_interval_bytes=1)
    fill(log, 40)
    data = everything(log)
    first = path(log.segments[0].replace(".log", ".index"))
    whole = disk.contents(first) if first in disk.listdir("/") else b""
    log.close()
    whole = disk.contents(first)
    match damage:
        case "missing":
            disk.unlink(first)
        case "short":
            fd = disk.open(first)
            disk.ftruncate(fd, len(whole) // 2)
            disk.close(fd)
        case "wrong":
            disk.corrupt(first, len(whole) - 3, b"\xff")
        case _:
            disk.corrupt(first, 0, bytes(8))
    log = open_log(disk, segment_bytes=2_000, index_interval_bytes=1)
    assert log.log_end_offset == 40
    assert everything(log) == data
    assert log.read(3, 1, 40) == log.read(3, 1, 40)


def test_a_damaged_state_file_costs_a_scan_only(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=800)
    fill(log)
    log.close()
    disk.corrupt(path("state"), 20, b"\xff")
    log = open_log(disk, segment_bytes=800)
    assert not log.report.clean
    assert (log.log_start_offset, log.log_end_offset) == (0, 10)
    assert log.epochs.entries() == [(0, 0)]


def test_damaged_producer_snapshots_cost_a_scan_only(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=800)
    fill(log)
    log.close()
    for name in disk.listdir(str(DIRECTORY)):
        if name.endswith(".producers"):
            disk.corrupt(path(name), 20, b"\xff")
    log = open_log(disk, segment_bytes=800)
    assert log.producers.describe()[0].last_sequence == 9


def test_producers_stay_known_whose_segments_go_after_a_recovery(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=400)
    append(log, batch(producer_id=1, sequence=4))
    for sequence in range(8):
        append(log, batch(producer_id=2, sequence=sequence))
    disk.kill()  # before any checkpoint: recovery alone can write down who had written
    log = open_log(disk, segment_bytes=400)
    log.delete_records_to(4)
    assert len(log.retention(NOW_MS, 9)) == 2
    checkpoint(log)
    log.truncate_to(8, NOW_MS)
    known = [(one.producer_id, one.last_sequence) for one in log.producers.describe()]
    assert known == [(1, 4), (2, 6)]


def test_producers_stay_known_wherever_the_power_goes_while_their_segments_go() -> None:
    """What says that segments are gone is saved when all that they alone told is saved."""
    for call in count():
        disk = FaultyDisk()
        log = open_log(disk, segment_bytes=400, file_delete_delay_ms=0)
        append(log, batch(producer_id=2, sequence=4))
        fill(log, 8)
        log.delete_records_to(9)
        flush(log)
        assert len(log.retention(NOW_MS, 9)) == 5
        job = log.checkpoints.begin(NOW_MS, 9)
        assert job is not None
        disk.left = call
        with suppress(Killed):
            job.run()
        is_over, disk.left = disk.left > 0, -1
        disk.crash(random.Random(call))
        log = open_log(disk, segment_bytes=400)
        known = {one.producer_id: one.last_sequence for one in log.producers.describe()}
        assert (known, log.log_end_offset) == ({1: 7, 2: 4}, 9), call
        if is_over:
            break
    assert call > 8


def test_transactions_survive_with_their_aborted_list(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=500)
    for sequence in range(6):
        append(log, batch(producer_id=5, sequence=sequence, transactional=True))
    append(log, marker(5, commit=False))
    append(log, batch(producer_id=6, transactional=True))
    aborted = log.reader.aborted_transactions(0, 8)
    assert aborted == [(5, 0, 6, 7)]
    disk.kill()
    for _ in range(2):
        log = open_log(disk, segment_bytes=500)
        assert log.reader.aborted_transactions(0, 8) == aborted
        assert log.reader.aborted_transactions(7, 8) == []
        assert log.reader.last_stable_offset(8) == 7
        log.close()


def test_aborted_transactions_are_known_when_recovery_starts_at_a_checkpoint(
    disk: FaultyDisk,
) -> None:
    log = open_log(disk, index_checkpoint_bytes=500)
    for sequence in range(6):
        append(log, batch(producer_id=5, sequence=sequence, transactional=True))
    append(log, marker(5, commit=False))
    checkpoint(log)
    append(log, batch(producer_id=6, transactional=True))
    append(log, marker(6, commit=False))
    aborted = [(5, 0, 6, 7), (6, 7, 8, 9)]
    assert log.reader.aborted_transactions(0, 9) == aborted
    disk.kill()
    log = open_log(disk, index_checkpoint_bytes=500)
    assert 0 < log.report.scanned_bytes < log.size
    assert log.reader.aborted_transactions(0, 9) == aborted


def test_the_high_watermark_and_the_log_start_come_back(disk: FaultyDisk) -> None:
    log = open_log(disk)
    fill(log)
    flush(log)
    log.delete_records_to(4)
    job = log.checkpoints.begin(NOW_MS, 7)
    assert job is not None
    job.run()
    log.checkpoints.end(job)
    disk.crash(random.Random(1))
    log = open_log(disk)
    assert (log.log_start_offset, log.checkpoints.high_watermark_saved) in ((4, 7), (4, 0))


def test_temporary_files_and_strays_go(disk: FaultyDisk) -> None:
    log = open_log(disk)
    fill(log)
    log.close()
    for name in ("state.tmp", "00000000000000000077.index", "00000000000000000000.log.tmp"):
        disk.close(disk.open(path(name), create=True))
    open_log(disk)
    assert not [n for n in disk.listdir(str(DIRECTORY)) if n.endswith(".tmp") or "77" in n]


def test_files_of_others_are_left_alone(disk: FaultyDisk) -> None:
    disk.mkdir(str(DIRECTORY))
    disk.close(disk.open(path("lock"), create=True))
    log = open_log(disk)
    fill(log)
    log.close()
    open_log(disk).delete()
    assert disk.listdir(str(DIRECTORY)) == ["lock"]


def test_producers_are_replayed_up_to_the_offset_asked_for(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=100_000)
    for sequence in range(6):
        append(log, batch(producer_id=1, sequence=sequence))
    log.truncate_to(3, 0)
    assert log.producers.last_batches().offsets == {1: 2}
    append(log, batch(producer_id=1, sequence=3))
    log.truncate_to(2, 0)
    append(log, batch(producer_id=1, sequence=2))
    disk.kill()
    assert open_log(disk, segment_bytes=100_000).producers.last_batches().offsets == {1: 2}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_producers_that_a_recovery_cannot_save(disk: FaultyDisk, code: int) -> None:
    log = open_log(disk, segment_bytes=500)
    for sequence in range(9):
        append(log, batch(producer_id=1, sequence=sequence))
    disk.kill()
    disk.fail("pwritev", code, times=99, path=".producers")
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output"):
            open_log(disk, segment_bytes=500)
    else:
        log = open_log(disk, segment_bytes=500)
        assert log.producers.last_batches().offsets == {1: 8}


class ShortDisk(FaultyDisk):
    """A disk whose files are shorter than it says."""

    def size(self, fd: int) -> int:
        return super().size(fd) + 100


def test_a_file_that_ends_early_has_nothing_behind_its_data() -> None:
    disk = ShortDisk()
    append(open_log(disk), batch())
    disk.kill()
    log = open_log(disk)
    assert (log.log_end_offset, log.report.rejected_bytes) == (1, 0)

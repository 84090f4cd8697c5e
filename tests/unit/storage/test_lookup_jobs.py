"""Lookups by time run in parallel with appends, deletions and cleanings."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.storage.files import SegmentFiles
from raylog.storage.log import Log
from raylog.storage.segment import Segment
from raylog.wire.errors import KafkaStorageError
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import DIRECTORY, NOW_MS, append, batch, checkpoint, flush, open_log


def grown(disk: FaultyDisk) -> Log:
    """Four batches of two records, each in a segment of its own but for the last."""
    log = open_log(disk, segment_bytes=400, index_interval_bytes=1)
    for second in range(4):
        append(log, batch(2, timestamp=NOW_MS + 1_000 * second))
    flush(log)
    return log


def test_the_log_may_grow_roll_and_flush_meanwhile(disk: FaultyDisk) -> None:
    log = grown(disk)
    last, largest = log.reader.begin_lookup(NOW_MS + 3_001), log.reader.begin_lookup(None)
    for second in range(4, 9):
        append(log, batch(2, timestamp=NOW_MS + 1_000 * second))
    flush(log)
    for job, found in ((last, (7, NOW_MS + 3_001, 0)), (largest, (7, NOW_MS + 3_001, 0))):
        job.run()
        assert log.reader.end_lookup(job)
        assert job.found == found


def test_a_lookup_opens_what_it_reads_and_nothing_stays_open(disk: FaultyDisk) -> None:
    log = grown(disk)
    open_before = disk.open_descriptors
    jobs = [log.reader.begin_lookup(NOW_MS + 1_000 * second) for second in range(4)]
    log.close()
    for job in jobs:
        job.run()
    assert [job.found is not None for job in jobs] == [True] * 4
    assert disk.open_descriptors == 0 <= open_before


def test_lookup_is_repeated_when_its_records_were_deleted(disk: FaultyDisk) -> None:
    log = grown(disk)
    before, gone = log.reader.begin_lookup(0), log.reader.begin_lookup(0)
    before.run()
    log.delete_records_to(4)
    assert not log.reader.end_lookup(before)
    log.retention(NOW_MS, 8)
    checkpoint(log, NOW_MS + 1_000_000)
    gone.run()
    assert not log.reader.end_lookup(gone)
    assert not log.offline
    again = log.reader.begin_lookup(0)
    again.run()
    assert log.reader.end_lookup(again)
    assert again.found == (4, NOW_MS + 2_000, 0)


def test_a_segment_that_is_missing_takes_the_log_offline(disk: FaultyDisk) -> None:
    log = grown(disk)
    job = log.reader.begin_lookup(NOW_MS + 1_000)
    disk.unlink(f"{DIRECTORY}/{log.segments[1]}")
    job.run()
    with pytest.raises(KafkaStorageError, match="read"):
        log.reader.end_lookup(job)
    assert log.offline


def test_the_damaged_segment_is_condemned_and_no_other(disk: FaultyDisk) -> None:
    log = grown(disk)
    disk.corrupt(f"{DIRECTORY}/{log.segments[1]}", 70, b"\xff")
    job = log.reader.begin_lookup(NOW_MS + 1_000)
    job.run()
    with pytest.raises(KafkaStorageError, match=log.segments[1]):
        log.reader.end_lookup(job)
    log.close()
    assert open_log(disk).log_end_offset == 2


def test_a_lookup_begins_at_the_log_start(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of one time, and deleted but for the last: their headers are not read one by one."""
    log = open_log(disk, index_interval_bytes=1)
    for _ in range(200):
        append(log, batch(1, timestamp=NOW_MS))
    flush(log)
    log.delete_records_to(199)
    seen: list[int] = []
    batches = SegmentFiles.batches

    def counted(files: SegmentFiles, segment: Segment, start: int, *, check: bool) -> Any:
        for one in batches(files, segment, start, check=check):
            seen.append(one[0])
            yield one

    monkeypatch.setattr(SegmentFiles, "batches", counted)
    for timestamp in (NOW_MS, 0):
        seen.clear()
        job = log.reader.begin_lookup(timestamp)
        job.run()
        assert log.reader.end_lookup(job)
        assert job.found == (199, NOW_MS, 0)
        assert len(seen) == 1

"""Timestamps that older builds stored as clients claimed are corrected, once."""

import errno
import random

import pytest

from raylog.storage.checkpoint import STATE_KIND, Claims, decode, encode
from raylog.storage.clean_job import CleanJob
from raylog.storage.correcting import right_max_timestamp
from raylog.storage.log import Log
from raylog.wire.compression import Codec
from raylog.wire.errors import KafkaStorageError
from raylog.wire.records import (
    BatchHeader,
    TimestampType,
    decode_batch,
    iter_batches,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from tests.worlds.storage.disk import FaultyDisk, Killed
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    clean,
    clean_step,
    contents,
    flush,
    keyed,
    looked_up,
    marker,
    open_log,
)

DAY_MS = 24 * 3_600_000
SEGMENT = 10
"""Bytes after which a segment is full: each batch has its own."""
CALLS_MIN = 50
"""Calls to the disk that a correction of five segments takes at least."""
NEVER_EXPIRES = {"retention_ms": -1}


def claiming(timestamp: int, data: bytearray | None = None) -> bytearray:
    """A batch whose header says that this is its largest timestamp."""
    data = batch(2) if data is None else data
    set_max_timestamp(data, timestamp)
    return data


def as_before(disk: FaultyDisk) -> None:
    """Have the state file as builds wrote it that knew of no claims."""
    path = f"{DIRECTORY}/state"
    file = decode(STATE_KIND, 2, disk.contents(path), path)
    assert file is not None
    assert file.version == 2
    del file.value["claims"]
    data = encode(STATE_KIND, 1, file.value)
    fd = disk.open(path)
    disk.ftruncate(fd, 0)
    disk.pwritev(fd, (data,), 0)
    disk.fdatasync(fd)
    disk.close(fd)


def old_log(disk: FaultyDisk, *batches: bytearray, crash: bool = False, **settings: int) -> None:
    """A directory of an older build with these batches."""
    log = open_log(disk, **{"segment_bytes": SEGMENT} | NEVER_EXPIRES | settings)
    for each in batches:
        append(log, each)
    flush(log)
    checkpoint(log)
    if crash:
        disk.kill()
    else:
        log.close()
    as_before(disk)


def opened(disk: FaultyDisk, **settings: int) -> Log:
    return open_log(disk, **{"segment_bytes": SEGMENT} | settings)


def claims(log: Log) -> Claims | None:
    return log.state.claims


def begin(log: Log) -> CleanJob | None:
    return log.cleaner.begin_correct(NOW_MS, pause=lambda _: None, token="t")


def correct(log: Log) -> bool:
    """Correct what can be, as a shell does; whether there was anything."""
    job = begin(log)
    while job is not None and clean_step(log, job):
        pass
    return job is not None


def headers(log: Log) -> list[BatchHeader]:
    found = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 10_000, log.log_end_offset)) is not None:
        data = log.reader.load(piece)
        for header, whole in iter_batches(data):
            decode_batch(whole)  # its checksum is right
            found.append(header)
        offset = piece.next_offset
    return found


def times(log: Log) -> list[int]:
    return [header.max_timestamp for header in headers(log)]


RIGHT = NOW_MS + 1
"""The largest timestamp that `claiming` batches have."""


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("claimed", [-1, 0, NOW_MS - 7 * DAY_MS, NOW_MS + 400 * DAY_MS])
def test_max_timestamp_claimed_by_a_client_is_corrected(
    disk: FaultyDisk, claimed: int, *, crash: bool
) -> None:
    old_log(disk, batch(2), claiming(claimed), batch(2), crash=crash)
    log = opened(disk)
    assert claims(log) == Claims(0, 6)
    assert times(log) == [RIGHT, claimed, RIGHT]
    if crash:
        flush(log)
    before = log.segments
    assert correct(log)
    assert claims(log) is None
    assert times(log) == [RIGHT] * 3
    assert [old == new for old, new in zip(before, log.segments, strict=True)] == [
        True,
        False,
        True,
    ]
    found = looked_up(log, RIGHT)
    assert found is not None
    assert found.offset == 1
    assert not correct(log)


def test_correction_is_done_once(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0), batch(2))
    log = opened(disk)
    assert correct(log)
    log.close()
    log = opened(disk)
    assert (claims(log), log.report.clean, times(log)) == (None, True, [RIGHT, RIGHT])


def test_records_written_by_this_build_are_not_claims(disk: FaultyDisk) -> None:
    log = opened(disk)
    append(log, batch())
    assert claims(log) is None
    log.close()
    assert claims(opened(disk)) is None


def test_an_empty_log_has_no_claims(disk: FaultyDisk) -> None:
    log = opened(disk, retention_bytes=0)
    append(log, batch())
    assert len(log.retention(NOW_MS, 1)) == 1
    log.close()
    as_before(disk)
    assert claims(opened(disk)) is None


def test_without_a_state_nobody_knows_who_wrote_it(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0))
    disk.unlink(f"{DIRECTORY}/state")
    log = opened(disk)
    assert claims(log) == Claims(0, 2)
    assert correct(log)
    assert times(log) == [RIGHT]


def test_claimed_timestamps_do_not_expire_records(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0), claiming(-1), batch(2))
    disk.set_modified_ms(f"{DIRECTORY}/{2:020}.log", 0)
    log = opened(disk, retention_ms=7 * DAY_MS)
    assert log.retention(NOW_MS, 6) == []
    assert correct(log)
    assert log.retention(NOW_MS, 6) == []
    assert len(log.retention(NOW_MS + 8 * DAY_MS, 6)) == 3


def test_segments_go_for_other_reasons_than_age(disk: FaultyDisk) -> None:
    old_log(disk, *[claiming(0) for _ in range(4)])
    log = opened(disk, retention_bytes=0)
    log.delete_records_to(4)
    assert len(log.retention(NOW_MS, 6)) == 3
    assert claims(log) == Claims(6, 8)


def test_retention_may_delete_checked_segments_during_a_correction(disk: FaultyDisk) -> None:
    old_log(disk, *[claiming(number) for number in range(4)])
    log = opened(disk, retention_bytes=0)
    job = begin(log)
    assert job is not None
    assert log.retention(NOW_MS, 8) == []
    assert clean_step(log, job)
    outcome = job.work.step()
    job.take(outcome)  # the log does not know yet
    log.delete_records_to(8)
    assert len(log.retention(NOW_MS, 8)) == 1
    while log.cleaner.end_clean(job, NOW_MS):
        job.take(job.work.step())
    assert claims(log) is None
    assert len(log.retention(NOW_MS, 8)) == 3


def test_a_death_at_any_call_is_made_good() -> None:
    calls = 0
    finished = False
    while not finished:
        for seed in (2 * calls, 2 * calls + 1):
            finished = die_at(calls, seed)
        calls += 1
    assert calls > CALLS_MIN


def die_at(calls: int, seed: int) -> bool:
    """Whether the correction had come to its end before."""
    disk = FaultyDisk()
    old_log(disk, batch(2), claiming(0), claiming(-1), batch(2), claiming(5))
    log = opened(disk, file_delete_delay_ms=0)
    disk.left = calls
    try:
        correct(log)
        checkpoint(log, NOW_MS + 1)
        finished = True
    except Killed:
        finished = False
    disk.left = -1
    if seed % 2:
        disk.crash(random.Random(seed))
    else:
        disk.kill()
    log = opened(disk)
    assert log.log_end_offset == 10
    assert claims(log) is not None or times(log) == [RIGHT] * 5
    flush(log)
    correct(log)
    assert (claims(log), times(log)) == (None, [RIGHT] * 5)
    log.close()
    left = [name for name in disk.listdir(str(DIRECTORY)) if name.endswith((".tmp", ".log"))]
    assert sorted(left) == log.segments
    return finished


def test_stopped_correction_resumes_where_it_was(disk: FaultyDisk) -> None:
    old_log(disk, *[claiming(number) for number in range(4)])
    log = opened(disk)
    job = begin(log)
    assert job is not None
    for _ in range(2):
        assert clean_step(log, job)
    log.cleaner.stop()
    assert not clean_step(log, job)
    found = claims(log)
    assert found is not None
    start = found.start
    assert start >= 4
    log.close()
    log = opened(disk)
    assert claims(log) == Claims(start, 8)
    assert correct(log)
    assert (claims(log), times(log)) == (None, [RIGHT] * 4)


def test_append_during_a_correction_goes_to_a_new_segment(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0), segment_bytes=100_000)
    log = opened(disk, segment_bytes=100_000)
    job = begin(log)
    assert job is not None
    append(log, batch(2))
    assert clean_step(log, job)
    append(log, batch(2))
    assert not clean_step(log, job)
    assert (log.segment_count, times(log), claims(log)) == (2, [RIGHT] * 3, None)
    log.close()
    assert times(opened(disk)) == [RIGHT] * 3


def test_a_segment_that_stays_the_last_grows_on(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0), segment_bytes=100_000)
    log = opened(disk, segment_bytes=100_000)
    assert correct(log)
    append(log, batch(2))
    assert (log.segment_count, times(log)) == (1, [RIGHT] * 2)
    disk.kill()
    assert times(opened(disk)) == [RIGHT] * 2


def test_a_growing_segment_is_closed_and_flushed_first(disk: FaultyDisk) -> None:
    old_log(disk, claiming(NOW_MS), segment_bytes=100_000)
    log = opened(disk, segment_bytes=100_000)
    append(log, batch(2))
    assert log.cleaner.correctable == []
    assert log.cleaner.close_claimed(NOW_MS)
    assert not log.cleaner.close_claimed(NOW_MS)
    assert not correct(log)
    job = log.flushes.begin()
    assert not correct(log)
    job.run()
    log.flushes.end(job)
    assert correct(log)
    assert (claims(log), times(log)) == (None, [RIGHT] * 2)


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_records_are_looked_at_too(disk: FaultyDisk, codec: Codec) -> None:
    old_log(disk, claiming(0, keyed([(b"k", b"v")] * 3, codec=codec)))
    log = opened(disk)
    assert correct(log)
    assert times(log) == [NOW_MS + 2]


def test_a_cleaned_batch_has_gaps(disk: FaultyDisk) -> None:
    pairs: list[tuple[bytes, bytes | None]] = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    settings = {"min_cleanable_dirty_ratio": 0}
    log = opened(disk, **settings)
    append(log, keyed(pairs))
    append(log, claiming(0, keyed([(b"c", None)])))
    append(log, keyed([(b"z", b"")]))
    assert clean(log)
    data = disk.contents(f"{DIRECTORY}/{log.segments[0]}")
    assert [header.record_count for header, _ in iter_batches(data)] == [2]
    disk.corrupt(f"{DIRECTORY}/{log.segments[0]}", 0, bytes(claiming(7, bytearray(data))))
    log.close()
    as_before(disk)
    log = opened(disk, **settings)
    records = contents(log)
    assert times(log)[0] == 7
    assert correct(log)
    assert times(log) == [NOW_MS + 2, NOW_MS, NOW_MS]
    assert contents(log) == records


def test_timestamps_written_by_brokers_are_not_claims(disk: FaultyDisk) -> None:
    stamped = batch(2)
    set_log_append_time(stamped, 77)
    transactional = batch(producer_id=1, transactional=True)
    old_log(disk, stamped, transactional, marker(1, commit=False))
    log = opened(disk)
    before = log.segments, times(log)
    assert correct(log)
    assert (log.segments, times(log), claims(log)) == (*before, None)
    assert headers(log)[0].timestamp_type is TimestampType.LOG_APPEND_TIME


def test_aborted_transactions_stay_aborted(disk: FaultyDisk) -> None:
    lie = claiming(0, batch(2, producer_id=1, transactional=True))
    old_log(disk, lie, marker(1, commit=False), segment_bytes=100_000)
    log = opened(disk, segment_bytes=100_000)
    aborted = log.reader.aborted_transactions(0, 3)
    assert len(aborted) == 1
    assert correct(log)
    assert log.reader.aborted_transactions(0, 3) == aborted
    log.close()
    assert opened(disk).reader.aborted_transactions(0, 3) == aborted


def garbage() -> bytearray:
    """A batch that older builds let in: its records are none."""
    data = keyed([(b"k", b"v" * 100)], codec=Codec.LZ4)
    data[70:] = bytes(len(data) - 70)
    return claiming(3, data)


def test_unreadable_batch_is_kept_by_the_correction(disk: FaultyDisk) -> None:
    old_log(disk, garbage(), claiming(0))
    log = opened(disk)
    assert correct(log)
    assert claims(log) is None
    segments = log.segments
    assert segments[0] == f"{0:020}.log"
    assert segments[1] != f"{1:020}.log"


def test_a_damaged_segment_is_left_to_its_readers(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0), claiming(0))
    log = opened(disk)
    disk.corrupt(f"{DIRECTORY}/{0:020}.log", 100, b"?")
    job = begin(log)
    assert job is not None
    while clean_step(log, job):
        pass
    assert job.damages == [f"{DIRECTORY}/{0:020}.log is damaged at byte 0"]
    assert (claims(log), log.offline) == (None, False)
    assert log.segments[0] == f"{0:020}.log"
    assert log.segments[1] != f"{2:020}.log"


def test_a_full_disk_leaves_the_segment_and_the_claim(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0), claiming(0))
    log = opened(disk)
    disk.capacity = disk.used_bytes
    with pytest.raises(KafkaStorageError, match="No space"):
        correct(log)
    assert (log.offline, log.busy, claims(log)) == (False, False, Claims(0, 4))
    disk.heal()
    assert correct(log)
    assert times(log) == [RIGHT] * 2


def test_a_disk_that_fails_takes_the_log_offline(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0))
    log = opened(disk)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(KafkaStorageError):
        correct(log)
    assert log.offline


def test_a_cleaning_waits(disk: FaultyDisk) -> None:
    old_log(disk, *[claiming(0, keyed([(b"k", b"v")])) for _ in range(3)])
    log = opened(disk, min_cleanable_dirty_ratio=0)
    assert not clean(log)
    assert correct(log)
    assert clean(log)


def test_truncation_forgets_claims(disk: FaultyDisk) -> None:
    old_log(disk, *[claiming(0) for _ in range(3)])
    log = opened(disk)
    log.truncate_to(2, NOW_MS)
    assert claims(log) == Claims(0, 2)
    log.truncate_fully(9)
    assert claims(log) is None


def test_records_copied_from_a_log_with_claims_are_corrected(disk: FaultyDisk) -> None:
    log = opened(disk, segment_bytes=100_000)
    append(log, batch(2))
    log.cleaner.claim(2, 6)
    assert claims(log) is None  # nothing was copied
    log.append_verbatim(claiming(0, batch(2, offset=2)), NOW_MS)
    log.cleaner.claim(2, 6)
    assert claims(log) == Claims(2, 4)
    log.append_verbatim(claiming(0, batch(2, offset=4)), NOW_MS)
    log.cleaner.claim(4, 6)
    assert claims(log) == Claims(2, 6)
    checkpoint(log)
    disk.kill()
    log = opened(disk)
    assert claims(log) == Claims(2, 6)
    assert correct(log)
    assert times(log) == [RIGHT] * 3


def test_claims_survive_a_checkpoint_and_a_kill(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0), claiming(0))
    log = opened(disk)
    assert checkpoint(log)
    disk.kill()
    assert claims(opened(disk)) == claims(log) == Claims(0, 4)


def test_stopped_correction_keeps_the_claims(disk: FaultyDisk) -> None:
    pairs: list[tuple[bytes, bytes | None]] = [(b"k", b"v")] * 1_000
    old_log(disk, claiming(0, keyed(pairs)), claiming(0, keyed(pairs)))
    log = opened(disk)
    stops = iter([False, False, True])

    def pause(_: int) -> None:
        if next(stops, False):
            log.cleaner.stop()

    job = log.cleaner.begin_correct(NOW_MS, pause=pause, token="t")
    assert job is not None
    assert clean_step(log, job), "the first segment takes two walks"
    assert not clean_step(log, job)
    assert (log.busy, claims(log)) == (False, Claims(1_000, 2_000))
    assert not any(name.endswith(".tmp") for name in disk.listdir(str(DIRECTORY)))
    assert correct(log)
    assert claims(log) is None


def test_a_growing_segment_behind_the_claims_is_not_closed(disk: FaultyDisk) -> None:
    old_log(disk, claiming(0))
    log = opened(disk)
    append(log, batch(2))
    assert claims(log) == Claims(0, 2)
    assert not log.cleaner.close_claimed(NOW_MS)
    assert log.segment_count == 2
    log.cleaner.claim(2, 3)
    assert log.cleaner.close_claimed(NOW_MS)
    assert log.segment_count == 3


def test_a_log_without_claims_has_no_segment_to_close(disk: FaultyDisk) -> None:
    log = opened(disk)
    assert not log.cleaner.close_claimed(NOW_MS)
    append(log, batch())
    assert not log.cleaner.close_claimed(NOW_MS)
    assert log.segment_count == 1


def test_records_that_are_compressed_by_nothing_known_keep_their_time() -> None:
    data = claiming(7, batch(2))
    assert right_max_timestamp(memoryview(data), read_header(data)) == NOW_MS + 1
    for codec in (5, 6, 7):
        data[22] = codec
        assert right_max_timestamp(memoryview(data), read_header(data)) == 7

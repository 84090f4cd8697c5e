"""Full and failing disks: what is refused, what goes offline, what readers see meanwhile."""

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from raylog.storage.config import NEVER
from raylog.storage.log import Log, Slice
from raylog.wire.errors import InvalidRecord, KafkaStorageError, OffsetOutOfRange
from raylog.wire.records import Record, encode_batch
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    flush,
    looked_up,
    open_log,
)

FIRST = f"{DIRECTORY}/00000000000000000000.log"


def refuse(log: Log, size: int = 3_000) -> None:
    before = log.log_end_offset
    with pytest.raises(KafkaStorageError):
        append(log, batch(size=size))
    assert log.log_end_offset == before


def test_a_full_disk_refuses_a_batch_and_the_log_goes_on_when_there_is_space(
    disk: FaultyDisk,
) -> None:
    log = open_log(disk)
    append(log, batch())
    disk.capacity = disk.used_bytes + disk.block
    assert log.trouble == ""
    refuse(log)
    refuse(log)
    assert not log.offline
    assert "disk full" in log.trouble or "No space left" in log.trouble
    found = log.read(0, 10_000, 99)
    assert found is not None
    assert found.next_offset == 1
    disk.heal()
    assert append(log, batch(size=3_000)).base_offset == 1
    assert log.trouble == "", "it takes writes again"
    disk.kill()
    assert open_log(disk).log_end_offset == 2


def test_short_write_is_truncated(disk: FaultyDisk) -> None:
    log = open_log(disk)
    end = append(log, batch()).length
    disk.capacity = disk.used_bytes + disk.block
    refuse(log)
    assert len(disk.contents(FIRST)) == end
    disk.heal()
    append(log, batch())
    assert not any(disk.contents(FIRST)[2 * end :])


def test_a_full_disk_at_the_first_append(disk: FaultyDisk) -> None:
    log = open_log(disk)
    disk.capacity = 0
    refuse(log)
    assert log.trouble
    disk.heal()
    assert append(log, batch()).base_offset == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_failed_segment_creation_is_retried_by_the_next_append(disk: FaultyDisk, code: int) -> None:
    log = open_log(disk, segment_bytes=100)
    append(log, batch())
    disk.fail("open", code)
    refuse(log)
    assert not log.offline
    assert append(log, batch()).base_offset == 1


@pytest.mark.parametrize("call", ["pwritev", "ftruncate", "open"])
def test_any_other_failure_to_write_takes_the_log_offline(disk: FaultyDisk, call: str) -> None:
    log = open_log(disk, segment_bytes=70_000)
    append(log, batch())
    disk.fail(call, errno.EIO)
    with pytest.raises(KafkaStorageError, match="offline"):
        append(log, batch(size=69_900 if call != "ftruncate" else 66_000))
    assert log.offline
    assert "is offline" in log.trouble
    for use in (
        lambda: append(log, batch()),
        lambda: log.read(0, 100, 1),
        lambda: log.retention(NOW_MS, 1),
        log.flushes.begin,
        lambda: log.checkpoints.begin(NOW_MS, 1),
    ):
        with pytest.raises(KafkaStorageError, match="offline"):
            use()
    log.close()
    assert disk.open_descriptors == 0
    assert open_log(disk).log_end_offset == 1


def test_a_failure_to_read_takes_the_log_offline(disk: FaultyDisk) -> None:
    found = Slice("00000000000000000000.log", 0, 100, 0, 3)
    uses: list[Callable[[Log], object]] = [
        lambda log: log.read(4, 100, 6),
        lambda log: log.reader.load(found),
        lambda log: looked_up(log, NOW_MS),
        lambda log: looked_up(log, None),
    ]
    append(log := open_log(disk, index_interval_bytes=100_000), batch(3))
    append(log, batch(3))
    for use in uses:
        disk.kill()
        log = open_log(disk, index_interval_bytes=100_000)
        assert log.log_end_offset == 6
        for call in ("pread", "preadv"):
            disk.fail(call, errno.EIO)
        with pytest.raises(KafkaStorageError, match="read"):
            use(log)
        assert log.offline


def test_a_marker_that_cannot_be_understood_is_refused_before_it_is_written(
    disk: FaultyDisk,
) -> None:
    log = open_log(disk)
    records = [Record(0, NOW_MS, b"?", b"", [])]
    data = bytearray(encode_batch(records, producer_id=1, producer_epoch=0, is_control=True))
    with pytest.raises(InvalidRecord):
        append(log, data)
    with pytest.raises(InvalidRecord):
        log.append_verbatim(data, NOW_MS)
    assert (log.log_end_offset, log.segments) == (0, [])


def test_a_failed_fdatasync_is_never_repeated(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    disk.fail("fdatasync", errno.EIO)
    job = log.flushes.begin()
    job.run()
    with pytest.raises(KafkaStorageError, match="flush"):
        log.flushes.end(job)
    assert log.offline
    assert log.state.recovery_point == 0
    disk.calls.clear()
    log.close()
    assert "fdatasync" not in disk.calls


def test_appends_go_on_during_a_flush_that_covers_what_came_before(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=300)
    append(log, batch())
    job = log.flushes.begin()
    for _ in range(5):
        append(log, batch())
    job.run()
    log.flushes.end(job)
    assert log.state.recovery_point == 1
    assert log.flushes.is_due(NOW_MS)
    flush(log)
    assert log.state.recovery_point == 6
    assert not log.flushes.is_due(NOW_MS)


def test_an_index_that_finds_no_room_is_written_later(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=300)
    for _ in range(4):
        append(log, batch())
    disk.fail("open", errno.ENOSPC, path=".index")
    flush(log)
    assert log.state.recovery_point == 4
    assert log.flushes.is_due(NOW_MS)
    flush(log)
    assert not log.flushes.is_due(NOW_MS)
    assert "00000000000000000000.index" in disk.listdir(str(DIRECTORY))


def test_an_index_that_cannot_be_written_takes_the_log_offline(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=300)
    for _ in range(4):
        append(log, batch())
    disk.fail("pwritev", errno.EIO, path=".index")
    with pytest.raises(KafkaStorageError, match="index"):
        flush(log)


def test_a_checkpoint_that_finds_no_room_is_due_again(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=300, retention_bytes=0, file_delete_delay_ms=0)
    for _ in range(4):
        append(log, batch())
    log.retention(NOW_MS, 2)
    disk.fail("pwritev", errno.ENOSPC, path="state")
    with pytest.raises(KafkaStorageError):
        checkpoint(log)
    assert not log.offline
    assert not log.busy, "or the log could never be cut again"
    assert FIRST.rpartition("/")[2] in disk.listdir(str(DIRECTORY))
    assert checkpoint(log)
    assert FIRST.rpartition("/")[2] not in disk.listdir(str(DIRECTORY))
    disk.kill()
    assert open_log(disk).log_start_offset == 2


def test_producers_that_a_failed_checkpoint_was_to_save_are_saved_by_the_next_one(
    disk: FaultyDisk,
) -> None:
    log = open_log(disk, segment_bytes=300)
    for number in range(4):
        append(log, batch(producer_id=1, sequence=number))
    flush(log)
    disk.fail("pwritev", errno.ENOSPC, path=".producers")
    with pytest.raises(KafkaStorageError):
        checkpoint(log)
    assert not log.offline
    assert checkpoint(log)
    saved = {name for name in disk.listdir(str(DIRECTORY)) if name.endswith(".producers")}
    begun = {name.replace(".log", ".producers") for name in log.segments[1:]}
    assert begun
    assert begun <= saved, "segments before may go"


def test_an_older_checkpoint_does_not_undo_a_newer_one(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch(9))
    log.delete_records_to(3)
    older = log.checkpoints.begin(NOW_MS, 9)
    log.delete_records_to(5)
    newer = log.checkpoints.begin(NOW_MS, 9)
    for job in (newer, older):
        assert job is not None
        job.run()
        log.checkpoints.end(job)
    disk.kill()
    assert open_log(disk).log_start_offset == 5


def test_a_truncation_that_finds_no_room_changes_nothing(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=10_000)
    for _ in range(4):
        append(log, batch(size=4_000))
    disk.capacity = disk.used_bytes + 8 * disk.block
    with pytest.raises(KafkaStorageError):
        log.truncate_to(1, NOW_MS)
    assert not log.offline
    assert (log.log_end_offset, log.segment_count) == (4, 2)
    disk.heal()
    log.truncate_to(1, NOW_MS)
    assert (log.log_end_offset, log.segment_count) == (1, 1)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        *[(call, errno.ENOSPC) for call in ("open", "pwritev", "rename", "unlink", "fsync_dir")],
        *[(call, errno.EMFILE) for call in ("open", "fsync_dir")],
    ],
)
@pytest.mark.parametrize(
    "truncate",
    [lambda log: log.truncate_to(16, NOW_MS), lambda log: log.truncate_fully(50)],
    ids=["in part", "fully"],
)
def test_a_truncation_that_fails_midway_is_never_taken_for_done(
    truncate: Callable[[Log], None], call: str, code: int
) -> None:
    """Nothing has changed, or the log is offline; its next opening sees either log, whole."""
    skip, is_refused, taken = 0, True, set()
    while is_refused:
        disk = FaultyDisk()
        log = open_log(disk, segment_bytes=3_000)
        for number in range(20):
            append(log, batch(2, producer_id=5, sequence=2 * number))
        flush(log)
        checkpoint(log)
        segments, log.state.held = log.segments, 40
        disk.fail(call, code, skip=skip)
        try:
            truncate(log)
        except KafkaStorageError:
            taken.add(log.offline)
            if log.offline:
                log.close()
                log = open_log(disk, segment_bytes=3_000)
            else:
                assert (log.segments, log.log_end_offset) == (segments, 40)
                assert (log.state.recovery_point, log.state.held) == (40, 40)
                truncate(log)
        else:
            is_refused = False
        disk.heal()
        end = log.log_end_offset
        producers = log.producers.describe()
        assert [each.last_sequence for each in producers] == [end - 1] * (0 < end < 50)
        append(log, batch(7))
        flush(log)
        checkpoint(log)
        disk.kill()
        assert open_log(disk, segment_bytes=3_000).log_end_offset == end + 7
        skip += 1
    assert True in taken, "the last calls are after the cut"


def test_a_log_on_a_full_disk_can_be_opened(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=500)
    for sequence in range(9):
        append(log, batch(producer_id=1, sequence=sequence))
    disk.kill()
    disk.capacity = 0
    log = open_log(disk, segment_bytes=500)
    assert log.log_end_offset == 9
    found = log.read(1, 100, 9)
    assert found is not None
    assert len(log.reader.load(found)) == found.length
    disk.heal()
    flush(log)
    assert "00000000000000000000.index" in disk.listdir(str(DIRECTORY))


def test_a_truncation_that_fails_takes_the_log_offline(disk: FaultyDisk) -> None:
    log = open_log(disk)
    for _ in range(4):
        append(log, batch())
    disk.fail("fdatasync", errno.EIO, path=".log")
    with pytest.raises(KafkaStorageError, match="truncation"):
        log.truncate_to(2, NOW_MS)
    assert log.offline
    disk.kill()
    assert open_log(disk).log_end_offset == 4


def test_a_close_that_fails_leaves_a_log_to_be_scanned(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(KafkaStorageError):
        log.close()
    assert disk.open_descriptors == 0
    log = open_log(disk)
    assert not log.report.clean
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("call", "step"),
    [("fsync_dir", lambda log: log.truncate_to(2, NOW_MS)), ("ftruncate", Log.close)],
    ids=["truncation", "close"],
)
def test_failed_flush_is_noted_for_the_next_process(
    disk: FaultyDisk, call: str, step: Callable[[Log], None]
) -> None:
    log = open_log(disk)
    for _ in range(4):
        append(log, batch())
    disk.fail(call, errno.EIO)
    with pytest.raises(KafkaStorageError):
        step(log)
    assert log.state.flush_failed
    assert "unflushed" in disk.listdir(str(DIRECTORY))


def test_flush_settings(disk: FaultyDisk) -> None:
    log = open_log(disk, flush_messages=3, flush_ms=1_000)
    assert not log.flushes.is_due(NOW_MS + 5_000)
    append(log, batch())
    flush(log)
    append(log, batch(4))
    assert not log.flushes.is_due(NOW_MS + 999)
    assert log.flushes.is_due(NOW_MS + 1_000)
    assert log.flushes.is_due(NOW_MS - 1), "the clock was set back: nobody knows how long ago"
    log.reconfigure(replace(log.state.config, flush_ms=NEVER))
    assert not log.flushes.is_due(NOW_MS - 1)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_short_write_that_cannot_be_cut_back_takes_the_log_offline(
    disk: FaultyDisk, code: int
) -> None:
    log = open_log(disk)
    append(log, batch())
    disk.capacity = disk.used_bytes + disk.block
    disk.fail("ftruncate", code)
    with pytest.raises(KafkaStorageError, match="cutting back a short write"):
        append(log, batch(size=3_000))
    assert log.offline


@pytest.mark.parametrize(("code", "is_lost"), [(errno.EMFILE, False), (errno.EIO, True)])
def test_the_last_segment_may_not_open_for_the_first_append(
    disk: FaultyDisk, code: int, is_lost: bool
) -> None:
    append(open_log(disk), batch())
    disk.kill()
    log = open_log(disk)
    disk.fail("open", code, path=".log")
    refuse(log)
    assert log.offline == is_lost
    if not is_lost:
        assert append(log, batch()).base_offset == 1
        assert log.trouble == ""


def test_flush_is_due_only_when_none_runs_and_the_log_is_online(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=300, flush_ms=0)
    append(log, batch())
    assert log.flushes.is_due(NOW_MS)
    job = log.flushes.begin()
    append(log, batch(size=400))
    assert not log.flushes.is_due(NOW_MS)
    job.run()
    log.flushes.end(job, NOW_MS)
    assert log.flushes.is_due(NOW_MS)
    disk.fail("pwritev", errno.EIO)
    with pytest.raises(KafkaStorageError):
        append(log, batch())
    assert log.offline
    assert not log.flushes.is_due(NOW_MS)


# ---- reading beside the log ------------------------------------------------------------------


def read(log: Log, offset: int = 0) -> Slice:
    found = log.read(offset, 10_000, log.log_end_offset)
    assert found is not None
    return found


def test_a_slice_is_loaded_beside_the_log(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=300)
    first, second = batch(), batch(size=400)
    append(log, first)
    append(log, second)
    open_before = disk.open_descriptors
    for found in (read(log), read(log, 1)):
        job = log.reader.begin_load(found)
        job.run()
        assert (
            log.reader.end_load(job)
            == log.reader.load(found)
            == bytes((first, second)[found.first_offset])
        )
    assert disk.open_descriptors == open_before


@pytest.mark.parametrize("call", ["open", "pread"])
def test_a_slice_that_cannot_be_loaded_takes_the_log_offline(disk: FaultyDisk, call: str) -> None:
    log = open_log(disk)
    append(log, batch())
    job = log.reader.begin_load(read(log))
    disk.fail(call, errno.EIO)
    job.run()
    with pytest.raises(KafkaStorageError, match="read"):
        log.reader.end_load(job)
    assert log.offline


def test_slice_load_can_be_retried_after_running_out_of_descriptors(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    found = read(log)
    job = log.reader.begin_load(found)
    disk.fail("open", errno.EMFILE)
    job.run()
    with pytest.raises(KafkaStorageError):
        log.reader.end_load(job)
    assert not log.offline
    job = log.reader.begin_load(found)
    job.run()
    assert len(log.reader.end_load(job)) == found.length


def loaded_beside(log: Log, found: Slice) -> bytes:
    job = log.reader.begin_load(found)
    job.run()
    return log.reader.end_load(job)


@pytest.mark.parametrize("load", [lambda log, found: log.reader.load(found), loaded_beside])
def test_a_file_that_ends_within_a_slice_takes_the_log_offline(
    disk: FaultyDisk, load: Callable[[Log, Slice], bytes]
) -> None:
    log = open_log(disk)
    append(log, batch())
    size = len(disk.contents(FIRST))
    found = read(log)._replace(length=size)
    assert len(load(log, found)) == size
    with pytest.raises(KafkaStorageError, match="ends within"):
        load(log, found._replace(length=size + 1))
    assert log.offline


def test_a_slice_whose_segment_is_gone_is_refused_and_the_log_goes_on(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=300)
    for _ in range(3):
        append(log, batch())
    found = read(log)
    loaded, late = log.reader.begin_load(found), log.reader.begin_load(found)
    loaded.run()
    log.truncate_fully(5)
    late.run()
    assert len(log.reader.end_load(loaded)) == found.length
    with pytest.raises(KafkaStorageError, match="is gone meanwhile"):
        log.reader.end_load(late)
    for use in (log.reader.load, log.reader.begin_load):
        with pytest.raises(OffsetOutOfRange, match="is gone"):
            use(found)
    assert not log.offline
    assert append(log, batch()).base_offset == 5


def unchecked(disk: FaultyDisk) -> Log:
    """A log that nobody has read since it was opened."""
    log = open_log(disk, segment_bytes=300)
    for _ in range(3):
        append(log, batch())
    flush(log)
    checkpoint(log)
    log.close()
    log = open_log(disk, segment_bytes=300)
    assert log.reader.unchecked.touches(read(log))
    return log


@pytest.mark.parametrize(
    ("call", "code", "is_lost"),
    [("open", errno.EMFILE, False), ("open", errno.EIO, True), ("preadv", errno.EIO, True)],
)
def test_a_check_that_cannot_read_leaves_the_slice_unchecked(
    disk: FaultyDisk, call: str, code: int, is_lost: bool
) -> None:
    log = unchecked(disk)
    found = read(log)
    job = log.reader.begin_check(found)
    disk.fail(call, code, path=".log")
    job.run()
    assert job.found is None
    with pytest.raises(KafkaStorageError):
        log.reader.end_check(job)
    assert log.offline == is_lost
    assert log.reader.unchecked.touches(found)


def test_a_check_of_a_segment_that_is_gone_meanwhile_says_nothing(disk: FaultyDisk) -> None:
    log = unchecked(disk)
    job = log.reader.begin_check(read(log))
    log.truncate_fully(5)
    job.run()
    assert job.failure is not None
    log.reader.end_check(job)
    assert not log.offline

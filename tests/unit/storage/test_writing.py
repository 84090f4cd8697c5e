"""The growing end of a log: what a follower may append, flushes, and reports of trouble."""

import errno

import pytest

from raylog.storage.checkpoint import StateFile
from raylog.storage.scan import scan
from raylog.wire.errors import KafkaStorageError, OffsetOutOfRange
from tests.support.batches import raw_batch, raw_record
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    contents,
    flush,
    open_log,
)

# ---- following -------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "is_taken"), [(4, False), (5, False), (6, True)])
def test_an_empty_log_takes_a_batch_that_holds_its_end(
    disk: FaultyDisk, count: int, is_taken: bool
) -> None:
    log = open_log(disk)
    log.truncate_fully(5)
    if is_taken:
        assert log.append_verbatim(batch(count), NOW_MS) == count
        assert log.segments[0].startswith(f"{0:020}")
    else:
        with pytest.raises(OffsetOutOfRange, match="batch at 0 from the leader, the log ends at 5"):
            log.append_verbatim(batch(count), NOW_MS)
        assert (log.log_start_offset, log.log_end_offset, log.segments) == (5, 5, [])


def test_only_the_first_batch_of_an_empty_log_may_begin_before_its_end(disk: FaultyDisk) -> None:
    log = open_log(disk)
    log.truncate_fully(1)
    with pytest.raises(OffsetOutOfRange, match="batch at 1 from the leader, the log ends at 3"):
        log.append_verbatim(batch(3) + batch(9, offset=1), NOW_MS)
    assert log.log_end_offset == 3


def test_a_log_with_records_takes_nothing_that_begins_before_its_end(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch(3))
    with pytest.raises(OffsetOutOfRange):
        log.append_verbatim(batch(9, offset=2), NOW_MS)
    assert log.append_verbatim(batch(1, offset=3), NOW_MS) == 4


# ---- flushes and checkpoints -----------------------------------------------------------------


def test_durable_segments_are_not_flushed_again(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=len(batch()))
    for _ in range(3):
        append(log, batch())
    flush(log)
    disk.calls.clear()
    flush(log)
    assert disk.calls == []
    append(log, batch())
    flush(log)
    assert disk.calls.count("fdatasync") == 2, "of the segment that was closed, and of the new one"


def test_a_log_that_rolled_is_not_marked_as_closed(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_ms=1_000)
    append(log, batch())
    log.close()
    file = StateFile(disk, str(DIRECTORY))
    log = open_log(disk, segment_ms=1_000)
    state = file.read()
    assert state is not None
    assert state.clean_end is not None
    assert log.roll_if_due(NOW_MS + 1_001)
    checkpoint(log)
    state = file.read()
    assert state is not None
    assert state.clean_end is None


# ---- trouble ---------------------------------------------------------------------------------


def test_a_file_that_was_cut_back_is_extended_again(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    name = f"{DIRECTORY}/{log.segments[0]}"
    extended = len(disk.contents(name))
    disk.capacity = disk.used_bytes + disk.block
    with pytest.raises(KafkaStorageError, match="disk full"):
        append(log, batch(size=4_000))
    assert len(disk.contents(name)) == log.size
    disk.heal()
    append(log, batch())
    assert len(disk.contents(name)) >= extended
    assert [offset for offset, _, _ in contents(log)] == [0, 1]


def test_trouble_is_the_newest_refusal_until_a_write_is_taken(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    assert log.trouble == ""
    disk.fail("pwritev", errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        append(log, batch())
    assert "No space" in log.trouble
    append(log, batch())
    assert log.trouble == ""
    for error in (errno.ENOSPC, errno.EIO):
        disk.fail("pwritev", error)
        with pytest.raises(KafkaStorageError):
            append(log, batch())
    assert "is offline" in log.trouble
    with pytest.raises(KafkaStorageError, match="is offline"):
        log.read(0, 1, 1)


# ---- batches that are none -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last_offset_delta", "count", "base_offset", "is_batch"),
    [
        (0, 1, 0, True),
        (-1, 0, 0, True),
        (3, 0, 0, True),
        (-2, 0, 0, False),
        (0, -1, 0, False),
        (0, 2, 0, False),
        (0, 1, -1, False),
        (0, 1, 2**63 - 2**31, False),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_a_header_that_cannot_be_ends_a_walk(
    disk: FaultyDisk,
    last_offset_delta: int,
    count: int,
    base_offset: int,
    is_batch: bool,
    check: bool,
) -> None:
    odd = raw_batch(
        raw_record(), base_offset=base_offset, last_offset_delta=last_offset_delta, count=count
    )
    fd = disk.open("/d/odd", create=True)
    disk.pwritev(fd, (odd,), 0)
    found = [position for position, _, _ in scan(disk, fd, 0, len(odd), check=check)]
    assert found == ([0] if is_batch else [])


def test_a_batch_that_goes_back_ends_a_walk(disk: FaultyDisk) -> None:
    first, second = batch(3), batch(2, offset=2)
    fd = disk.open("/d/odd", create=True)
    disk.pwritev(fd, (first, second), 0)
    end = len(first) + len(second)
    found = [position for position, _, _ in scan(disk, fd, 0, end, check=False)]
    assert found == [0]

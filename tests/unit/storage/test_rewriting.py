"""After a failed flush: pages that count as clean though the disk does not have them."""

import errno
import random
from collections.abc import Sequence

import pytest

from raylog.simulation import volume
from raylog.storage.disk import Writable
from raylog.storage.log import Log, LogConfig
from raylog.wire.errors import KafkaStorageError
from raylog.wire.records import iter_batches
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import DIRECTORY, NOW_MS, append, batch, checkpoint, flush, open_log

FLUSH = {
    "the last segment": ("fdatasync", 0),
    "the names in the directory": ("fsync_dir", 0),
    "the name of the directory": ("fsync_dir", 1),
}
"""What a flush makes durable: the call, and how many of its kind come before."""


@pytest.fixture(autouse=True)
def _evicted_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume, "EVICTED", 0.0)


def failed(disk: FaultyDisk, *, flushed: int = 2, unflushed: int = 3, **settings: int) -> Log:
    """A log whose second flush failed."""
    log = open_log(disk, **settings)
    for _ in range(flushed):
        append(log, batch())
    flush(log)
    checkpoint(log)
    for _ in range(unflushed):
        append(log, batch())
    fail_flush(disk, log)
    return log


def fail_flush(disk: FaultyDisk, log: Log, path: str = ".log") -> None:
    disk.fail("fdatasync", errno.EIO, path=path)
    with pytest.raises(KafkaStorageError, match="flush"):
        flush(log)
    disk.heal()


def offsets(log: Log) -> list[int]:
    """Of all batches, as they are read."""
    found: list[int] = []
    while (slice_ := log.read(len(found), 10_000, log.log_end_offset)) and slice_.length:
        found += [header.base_offset for header, _ in iter_batches(log.reader.load(slice_))]
    return found


@pytest.mark.parametrize("segment_bytes", [10_000, 300])
@pytest.mark.parametrize("in_another_process", [False, True])
def test_rewritten_log_is_on_disk_before_it_counts_as_flushed(
    segment_bytes: int, in_another_process: bool
) -> None:
    disk = FaultyDisk()
    log = failed(disk, segment_bytes=segment_bytes)
    if in_another_process:
        disk.kill()
    else:
        log.close()
    log = open_log(disk, segment_bytes=segment_bytes)
    append(log, batch())
    flush(log)
    assert (log.state.recovery_point, log.state.is_whole) == (6, True)
    disk.evict()
    assert offsets(log) == list(range(6))
    disk.crash(random.Random(1))
    assert offsets(open_log(disk, segment_bytes=segment_bytes)) == list(range(6))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("what", FLUSH)
def test_a_log_that_never_was_durable_is_written_anew(what: str, seed: int) -> None:
    """With its names: the kernel counts a directory as clean that it could not write."""
    disk = FaultyDisk()
    log = open_log(disk)
    append(log, batch())
    call, skip = FLUSH[what]
    disk.fail(call, errno.EIO, skip=skip)
    with pytest.raises(KafkaStorageError, match="flush"):
        flush(log)
    log.close()
    log = open_log(disk)
    flush(log)
    disk.crash(random.Random(seed))
    assert offsets(open_log(disk)) == [0]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("in_another_process", [False, True])
@pytest.mark.parametrize("call", ["fdatasync", "rename", "fsync_dir"])
def test_after_a_checkpoint_that_failed_nothing_counts_as_durable_that_may_not_be(
    call: str, in_another_process: bool, seed: int
) -> None:
    """A state file that is renamed can be read, whether the directory was written or not."""
    disk = FaultyDisk()
    log = open_log(disk)
    for _ in range(3):
        append(log, batch())
    disk.fail(call, errno.EIO)
    with pytest.raises(KafkaStorageError, match="checkpoint"):
        checkpoint(log)
    assert log.offline
    assert log.state.flush_failed
    if in_another_process:
        disk.kill()
    else:
        log.close()
    log = open_log(disk)
    flush(log)
    assert log.state.recovery_point == 3
    disk.crash(random.Random(seed))
    assert offsets(open_log(disk)) == [0, 1, 2]


def test_a_disk_that_is_full_leaves_no_doubt() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    append(log, batch())
    disk.fail("pwritev", errno.ENOSPC)
    with pytest.raises(KafkaStorageError, match="checkpoint"):
        checkpoint(log)
    assert not log.offline
    assert "unflushed" not in disk.listdir(str(DIRECTORY))
    assert checkpoint(log)


def test_records_lost_from_the_page_cache_are_detected() -> None:
    """Everything that the log had at the failure, not only what a checkpoint knew of."""
    disk = FaultyDisk()
    log = failed(disk)
    log.close()
    disk.evict()
    log = open_log(disk)
    assert (log.log_end_offset, log.state.held, log.state.is_whole) == (2, 5, False)
    disk.kill()
    assert not open_log(disk).state.is_whole


def test_segments_that_a_checkpoint_knew_to_be_written_are_scanned() -> None:
    settings = {"segment_bytes": 600, "index_checkpoint_bytes": 1}
    disk = FaultyDisk()
    log = open_log(disk, **settings)
    for _ in range(8):
        append(log, batch())
    checkpoint(log)
    fail_flush(disk, log, path=log.segments[1])
    end = int(log.segments[1].removesuffix(".log"))
    assert 0 < end < 8
    disk.kill()
    disk.evict()
    for _ in range(2):
        log = open_log(disk, **settings)
        assert (log.log_end_offset, log.state.held) == (end, 8)
        disk.kill()


def test_rewriting_skips_durable_data_and_keeps_holes() -> None:
    disk = FaultyDisk()
    log = failed(disk)
    log.close()
    path = f"{DIRECTORY}/{log.segments[0]}"
    used, size = disk.used_bytes, len(disk.contents(path))
    written: list[int] = []
    original = disk.pwritev

    def pwritev(fd: int, buffers: Sequence[Writable], position: int, /) -> int:
        if disk._open[fd][1].endswith(".log"):
            written.append(position)
        return original(fd, buffers, position)

    disk.pwritev = pwritev  # type: ignore[method-assign]  # to see where it writes
    log = open_log(disk)
    durable = log.read(0, 10_000, 2)
    assert durable is not None
    assert written == [durable.length]
    assert (disk.used_bytes, len(disk.contents(path))) == (used, size)


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("open", "unflushed"),
        ("open", ".log"),
        ("pread", ".log"),
        ("ftruncate", ".log"),
        ("pwritev", ".log"),
        ("fdatasync", ".log"),
        ("fsync_dir", ""),
        ("fdatasync", "state"),
        ("rename", "state"),
        ("unlink", "unflushed"),
    ],
)
def test_a_log_stays_closed_until_it_is_written_anew(call: str, path: str) -> None:
    disk = FaultyDisk()
    failed(disk).close()
    for _ in range(2):
        disk.fail(call, errno.EIO, path=path)
        with pytest.raises(OSError, match="Input/output"):
            open_log(disk)
        disk.heal()
        assert disk.open_descriptors == 0
    assert "unflushed" in disk.listdir(str(DIRECTORY))
    log = open_log(disk)
    flush(log)
    assert "unflushed" not in disk.listdir(str(DIRECTORY))
    disk.evict()
    assert offsets(log) == list(range(5))


def test_failed_flush_is_remembered_when_its_note_cannot_be_written() -> None:
    disk = FaultyDisk()
    log = failed(FaultyDisk())
    assert log.state.flush_failed
    log = open_log(disk)
    append(log, batch())
    disk.fail("open", errno.EROFS, times=10, path="unflushed")
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(KafkaStorageError, match="flush"):
        flush(log)
    log.close()
    disk.heal()
    assert log.state.flush_failed
    config = LogConfig(delete=True, compact=False)
    log = Log.open(DIRECTORY, config, disk, now_ms=NOW_MS, flush_failed=True)
    flush(log)
    disk.evict()
    assert offsets(log) == [0]


def test_a_note_that_comes_at_the_close_is_in_time() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    append(log, batch())
    disk.fail("open", errno.EMFILE, path="unflushed")
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(KafkaStorageError, match="flush"):
        flush(log)
    log.close()
    log = open_log(disk)
    flush(log)
    disk.evict()
    assert offsets(log) == [0]


def test_a_close_whose_flush_fails_leaves_a_note() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    append(log, batch())
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(KafkaStorageError):
        log.close()
    log = open_log(disk)
    flush(log)
    disk.evict()
    assert offsets(log) == [0]


def test_a_note_goes_with_the_log() -> None:
    disk = FaultyDisk()
    failed(disk).delete()
    assert disk.listdir(str(DIRECTORY)) == []


def test_a_log_without_a_state_file_is_written_anew_as_a_whole() -> None:
    disk = FaultyDisk()
    failed(disk).close()
    disk.unlink(f"{DIRECTORY}/state")
    log = open_log(disk)
    flush(log)
    disk.evict()
    assert offsets(log) == list(range(5))

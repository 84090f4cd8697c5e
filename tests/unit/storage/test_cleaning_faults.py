"""A cleaning that ends at any call to the disk loses nothing that must be kept."""

import contextlib
import errno
import random
from collections.abc import Callable

import pytest

from raylog.storage.log import Log
from raylog.wire.errors import KafkaStorageError
from tests.worlds.storage.disk import FaultyDisk, Killed
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    checkpoint,
    clean,
    contents,
    flush,
    keyed,
    open_log,
)

Contents = list[tuple[int, bytes | None, bytes | None]]
SETTINGS = {"segment_bytes": 400, "min_cleanable_dirty_ratio": 0, "file_delete_delay_ms": 0}
CALLS_MIN = 50
"""Calls to the disk that the cleaning of `filled` takes at least."""


def filled(disk: FaultyDisk) -> Log:
    """Segments of two kinds: some cleaned before, some not."""
    log = open_log(disk, **SETTINGS)
    number = 0
    for count in (14, 17):
        for _ in range(count):
            value = b"%d" % number if number % 5 else None
            append(log, keyed([(b"k%d" % (number % 11), value), (b"j%d" % (number % 17), b"v")]))
            number += 1
        if count == 14:
            clean(log)
    flush(log)
    checkpoint(log)
    return log


def latest(found: Contents) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, key, value in found}


def end(disk: FaultyDisk, log: Log, seed: int) -> None:
    if seed % 2:
        disk.crash(random.Random(seed))
    else:
        disk.kill()


@pytest.mark.long
def test_a_death_at_any_call_leaves_a_log_with_all_latest_records() -> None:
    calls = 0
    finished = False
    while not finished:
        for seed in (2 * calls, 2 * calls + 1):
            disk = FaultyDisk()
            log = filled(disk)
            before = contents(log)
            disk.left = calls
            try:
                clean(log, upkeep=False)
                checkpoint(log)
                finished = True
            except Killed:
                disk.left = -1
            disk.left = -1
            end(disk, log, seed)
            check_found(disk, before)
        calls += 1
    assert calls > CALLS_MIN


def check_found(disk: FaultyDisk, before: Contents) -> None:
    log = open_log(disk, **SETTINGS)
    after = contents(log)
    assert latest(after) == latest(before)
    assert set(after) <= set(before)
    assert log.log_end_offset == before[-1][0] + 1
    clean(log, NOW_MS)
    assert latest(contents(log)) == latest(before)
    log.close()
    left = [name for name in disk.listdir(str(DIRECTORY)) if name.endswith((".tmp", ".log"))]
    assert sorted(left) == log.segments


@pytest.mark.parametrize("lost", ["cleaner", ".index", ".producers", "state"])
def test_files_that_can_be_made_again_are_not_missed(lost: str) -> None:
    for calls in range(0, CALLS_MIN, 3):
        disk = FaultyDisk()
        log = filled(disk)
        before = contents(log)
        disk.left = calls
        with contextlib.suppress(Killed):
            clean(log, upkeep=False)
        disk.left = -1
        disk.kill()
        for name in disk.listdir(str(DIRECTORY)):
            if name.endswith(lost):
                disk.unlink(f"{DIRECTORY}/{name}")
        assert latest(contents(open_log(disk, **SETTINGS))) == latest(before)


@pytest.mark.parametrize("room", range(7))
def test_a_full_disk_leaves_the_old_segments(room: int) -> None:
    disk = FaultyDisk()
    log = filled(disk)
    before, names = contents(log), log.segments
    disk.capacity = disk.used_bytes + room * disk.block
    with pytest.raises(KafkaStorageError):
        clean(log, upkeep=False)
    assert not log.offline
    assert not log.busy
    assert disk.open_descriptors <= 1
    if room == 0:
        assert log.segments == names
        assert contents(log) == before
    assert latest(contents(log)) == latest(before)
    disk.heal()
    clean(log)
    assert latest(contents(log)) == latest(before)
    assert len(contents(log)) < len(before)


STEPS_INTO_PLACE = ["modified_ms", "set_modified_ms", "rename", "pwritev", "fsync_dir"]


def clean_again_and_again(log: Log) -> None:
    for _ in range(5):
        clean(log, upkeep=False)
        append(log, keyed([(b"a", b"b")] * 9))
        flush(log)
        checkpoint(log)


@pytest.mark.parametrize("call", STEPS_INTO_PLACE)
@pytest.mark.parametrize("skip", range(4))
def test_a_segment_that_finds_no_place_leaves_no_files(call: str, skip: int) -> None:
    disk = FaultyDisk()
    log = filled(disk)
    checkpoint(log, NOW_MS + 1)  # removes what was cleaned before
    before = contents(log)
    disk.fail(call, errno.ENOSPC, skip=skip)
    with pytest.raises(KafkaStorageError):
        clean_again_and_again(log)
    assert not log.offline
    disk.heal()
    checkpoint(log, NOW_MS + 1)
    found = disk.listdir(str(DIRECTORY))
    assert [name for name in found if ".t." in name] == []
    assert sorted(name for name in found if name.endswith(".log")) == log.segments
    indexed = {name.removesuffix(".index") for name in found if name.endswith(".index")}
    assert indexed <= {name.removesuffix(".log") for name in log.segments}
    assert set(latest(before)) <= set(latest(contents(log)))


@pytest.mark.parametrize("call", ["open", "pwritev", "fdatasync", "rename", "fsync_dir", "pread"])
@pytest.mark.parametrize("skip", range(4))
def test_a_disk_that_fails_takes_the_log_offline(call: str, skip: int) -> None:
    disk = FaultyDisk()
    log = filled(disk)
    before = contents(log)
    disk.fail(call, errno.EIO, skip=skip)
    with pytest.raises(KafkaStorageError):
        clean_until_refused(log)
    assert log.offline
    assert not log.busy
    disk.kill()
    assert latest(contents(open_log(disk, **SETTINGS))) == latest(before)


def clean_until_refused(log: Log) -> None:
    clean(log, upkeep=False)
    contents(log)  # "pread" is a reader's


@pytest.mark.parametrize("ended", [FaultyDisk.kill, lambda disk: disk.crash(random.Random(3))])
def test_replaced_segment_stays_readable_for_the_delete_delay(
    ended: Callable[[FaultyDisk], None],
) -> None:
    disk = FaultyDisk()
    log = open_log(disk, **SETTINGS | {"file_delete_delay_ms": 60_000})
    for number in range(20):
        append(log, keyed([(b"a", b"%d" % number)]))
    found = log.read(0, 10_000, 20)
    assert found is not None
    path = f"{DIRECTORY}/{found.segment_id}"
    data = disk.contents(path)[: found.length]
    clean(log)
    checkpoint(log)
    assert disk.contents(path)[: found.length] == data
    ended(disk)
    reopened = open_log(disk, **SETTINGS)
    assert found.segment_id not in disk.listdir(str(DIRECTORY))
    assert [value for _, _, value in contents(reopened)][-1] == b"19"

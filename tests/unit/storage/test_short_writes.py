"""A disk may write less than asked: all code that writes files continues with the rest."""

import errno
from collections.abc import Callable, Sequence

import pytest

from raylog.storage.config import NEVER
from raylog.storage.disk import Writable
from raylog.storage.log import Log
from raylog.wire.errors import KafkaStorageError
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    clean,
    contents,
    flush,
    keyed,
    open_log,
)

SETTINGS = {"segment_bytes": 1_000, "min_cleanable_dirty_ratio": 0, "file_delete_delay_ms": 0}


class ShortDisk(FaultyDisk):
    """Writes only a few bytes at a time, once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_at_once = NEVER
        self.short_writes = 0

    def pwritev(self, fd: int, buffers: Sequence[Writable], position: int, /) -> int:
        data = b"".join(buffers)
        self.short_writes += len(data) > self.bytes_at_once
        return super().pwritev(fd, [data[: self.bytes_at_once]], position)


def cleaned(log: Log, disk: ShortDisk) -> None:
    clean(log)
    checkpoint(log)


def shortened(log: Log, disk: ShortDisk) -> None:
    log.truncate_to(14, NOW_MS)


def checkpointed(log: Log, disk: ShortDisk) -> None:
    flush(log)
    checkpoint(log)


def closed(log: Log, disk: ShortDisk) -> None:
    log.close(5)


def written_anew(log: Log, disk: ShortDisk) -> None:
    disk.fail("fdatasync", errno.EIO, path=".log")
    with pytest.raises(KafkaStorageError, match="flush"):
        flush(log)
    disk.kill()
    open_log(disk, **SETTINGS)


@pytest.mark.parametrize("step", [cleaned, shortened, checkpointed, closed, written_anew])
@pytest.mark.parametrize("bytes_at_once", [1, 7])
def test_short_writes_do_not_change_the_outcome_of_a_step(
    step: Callable[[Log, ShortDisk], None], bytes_at_once: int
) -> None:
    left = []
    for limit in (NEVER, bytes_at_once):
        disk = ShortDisk()
        log = open_log(disk, **SETTINGS)
        for number in range(17):
            append(log, keyed([(b"k%d" % (number % 5), b"%d" % number)] * 2, producer_id=1))
        disk.bytes_at_once = limit
        step(log, disk)
        assert (disk.short_writes > 0) == (limit < NEVER)
        names = sorted(disk.listdir(str(DIRECTORY)))
        files = {name: disk.contents(f"{DIRECTORY}/{name}") for name in names}
        disk.bytes_at_once = NEVER
        disk.kill()
        left.append((files, contents(open_log(disk, **SETTINGS))))
    assert left[0] == left[1]


def test_an_append_is_one_write_or_none() -> None:
    disk = ShortDisk()
    log = open_log(disk, **SETTINGS)
    append(log, batch())
    disk.bytes_at_once = 7
    with pytest.raises(KafkaStorageError, match=f"7 of {len(batch())} bytes written: disk full"):
        append(log, batch())
    disk.bytes_at_once = NEVER
    assert append(log, batch()).base_offset == 1
    assert not log.trouble

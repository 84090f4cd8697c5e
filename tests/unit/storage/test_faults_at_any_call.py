"""A fault at any call to the disk, in whatever a log does: what is there afterwards?

Each case is a log with a history by chance (`log_life.py`) and one more step, at one call of which
the process dies, the machine dies, or the disk fails. What is found then must be the log before the
step, after it, or one in between, and must go on from there.
"""

import errno
import random
from contextlib import suppress

import pytest

from raylog.storage.layout import is_log_file
from raylog.wire.errors import KafkaStorageError
from tests.support.dying_disk import Killed, TroubledDisk
from tests.support.log_book import LogBook, settle
from tests.support.log_life import STEPS, LogLife, Step

LIVES = 2
CALLS_OF_EACH = 2
HISTORY = 24
ROOM = frozenset({"pwritev"})
"""Calls that take room on the disk."""
ENDS = {LogLife.close_and_open, LogLife.kill_and_open}
"""Steps after which the log is another one."""


def lived(seed: int) -> LogLife:
    life = LogLife(seed, TroubledDisk())
    life.live(HISTORY)
    life.append()
    return life


def disk_of(life: LogLife) -> TroubledDisk:
    assert isinstance(life.disk, TroubledDisk)
    return life.disk


def done(seed: int, step: Step, counted: frozenset[str] | None = None) -> tuple[LogLife, int]:
    """A log after the step, and how many calls that took."""
    life = lived(seed)
    disk = disk_of(life)
    disk.counted, disk.count = counted, 0
    step(life)
    count = disk.count
    disk.counted = None
    return life, count


def cases(
    step: Step, kind: int, counted: frozenset[str] | None = None
) -> list[tuple[int, int, LogBook]]:
    """Seed, number of the call, and the book after the step; another `kind` has other lives."""
    found = []
    for life_number in range(LIVES):
        seed = (kind * 100 + STEPS.index(step)) * 100 + life_number
        after, count = done(seed, step, counted)
        calls = random.Random(seed).sample(range(count), min(count, CALLS_OF_EACH))
        found += [(seed, call, after.book) for call in calls]
    return found


def go_on(life: LogLife) -> None:
    """Write more, lose power, and find everything; then let go of everything, files too."""
    life.epoch += 1
    for _ in range(3):
        life.append()
    life.flush_and_checkpoint()
    life.book.check(life.log, life.disk)
    life.disk.crash(life.rng)
    life.log = life.opened()
    life.book.served.clear()
    life.book.check(life.log, life.disk)
    assert life.log.is_whole
    life.close()
    life.log = life.opened()
    assert life.log.high_watermark_saved == life.book.high_watermark
    life.book.check(life.log, life.disk)
    life.append()
    life.book.start = life.book.end
    life.log.delete_records_to(life.book.end)
    life.retention()
    life.append()
    life.flush_and_checkpoint()
    life.now_ms += 1_000
    life.checkpoint()
    life.book.check(life.log, life.disk)
    check_files(life)


def check_files(life: LogLife) -> None:
    """No file is left that nobody needs."""
    names = life.disk.listdir(life.log.directory)
    assert all(map(is_log_file, names))
    assert sorted(name for name in names if name.endswith(".log")) == life.log.segments
    indexes = {name.replace(".log", ".index") for name in life.log.segments}
    assert {name for name in names if name.endswith(".index")} <= indexes
    assert not [name for name in names if name.endswith((".tmp", ".aside")) or name == "unflushed"]
    assert len([name for name in names if name.endswith(".producers")]) <= 3
    assert life.disk.open_descriptors <= 2


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_step_does_what_it_says(step: Step) -> None:
    for life_number in range(LIVES):
        life, _ = done(STEPS.index(step) * 100 + life_number, step)
        life.book.check(life.log, life.disk)
        go_on(life)


@pytest.mark.parametrize("power", [False, True], ids=["the process", "the machine"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_death_at_any_call(step: Step, power: bool) -> None:
    for seed, call, after in cases(step, 1 + power):
        life = lived(seed)
        before = life.book.copy()
        disk = disk_of(life)
        disk.left = call
        with pytest.raises(Killed):
            step(life)
        disk.left = -1
        lowest_end = min(before.end, after.end)
        if power:
            disk.crash(life.rng)
            lowest_end = min(before.synced, after.end)
        else:
            disk.kill()
        life.log = life.opened()
        life.book = settle(life.log, before, after, lowest_end)
        if power:
            life.book.served.clear()
        else:
            check_high_watermark(life, before, after)
        life.book.check(life.log, disk)
        assert life.log.is_whole or life.log.log_end_offset < after.asked, "nothing was damaged"
        go_on(life)


def check_high_watermark(life: LogLife, before: LogBook, after: LogBook) -> None:
    """It is at hand though the process died, and went down before any record did."""
    found, end = life.log.high_watermark_saved, life.log.log_end_offset
    lowest, highest = sorted((before.high_watermark, after.high_watermark))
    if end < before.end:
        highest = after.high_watermark
    assert min(lowest, end) <= found <= min(highest, end)


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_disk_that_fails_at_any_call(step: Step, closed: bool) -> None:
    for seed, call, after in cases(step, 3 + closed):
        life = lived(seed)
        before = life.book.copy()
        disk = disk_of(life)
        disk.left, disk.error = call, errno.EIO
        with suppress(KafkaStorageError, OSError):
            step(life)
        disk.left, disk.error = -1, None
        if closed and step not in ENDS:
            life.log.close()
        disk.kill()
        life.book.served.clear()
        life.log = life.opened()
        lowest_end = min(before.end, after.end)
        if not life.log.is_whole:
            lowest_end = min(before.synced, after.end)
        life.book = settle(life.log, before, after, lowest_end)
        life.book.check(life.log, disk)
        if not closed:
            disk.kill()
            life.log = life.opened()
            life.book.check(life.log, disk)
        if life.log.is_whole:
            go_on(life)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_disk_that_is_full_at_any_call(step: Step) -> None:
    for seed, call, after in cases(step, 5, ROOM):
        life = lived(seed)
        before = life.book.copy()
        disk = disk_of(life)
        disk.left, disk.error, disk.counted = call, errno.ENOSPC, ROOM
        with suppress(KafkaStorageError, OSError):
            step(life)
        disk.left, disk.error, disk.counted = -1, None, None
        if step in ENDS:
            disk.kill()
            life.log = life.opened()
        assert not life.log.offline
        assert not life.log.busy
        life.book = settle(life.log, before, after, min(before.end, after.end))
        life.book.check(life.log, disk)
        assert life.log.is_whole
        go_on(life)

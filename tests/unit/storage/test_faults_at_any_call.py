"""A fault at any call to the disk, during any operation of a log.

Each case is a log with a random history (`random_history.py`) and one more step, at one call of
which the process dies, the machine dies, or the disk fails. The log found afterwards must be that
before the step, after it, or in between, and it must continue from there.
"""

import errno
import random
from contextlib import suppress

import pytest

from raylog.storage.layout import is_log_file
from raylog.wire.errors import KafkaStorageError
from tests.worlds.storage.disk import FaultyDisk, Killed
from tests.worlds.storage.log_model import LogModel, settle
from tests.worlds.storage.random_history import STEPS, RandomHistory, Step

LIVES = 2
CALLS_OF_EACH = 2
HISTORY = 24
SCARCE = {
    "room": (errno.ENOSPC, frozenset({"pwritev"})),
    "room for names": (errno.ENOSPC, frozenset({"open", "rename", "fsync_dir"})),
    "descriptors": (errno.EMFILE, frozenset({"open", "duplicate", "fsync_dir"})),
}
"""What may be used up: the error, and the calls that need it."""
ENDS = {RandomHistory.close_and_open, RandomHistory.kill_and_open}
"""Steps after which the log is another one."""
CUTS = {
    RandomHistory.cut_anywhere,
    RandomHistory.cut_at_a_segment,
    RandomHistory.cut_at_the_start,
    RandomHistory.cut_the_last_batch,
    RandomHistory.begin_anew,
    RandomHistory.begin_anew_before,
}


def lived(seed: int) -> RandomHistory:
    history = RandomHistory(seed, FaultyDisk())
    history.live(HISTORY)
    history.append()
    return history


def disk_of(history: RandomHistory) -> FaultyDisk:
    assert isinstance(history.disk, FaultyDisk)
    return history.disk


def done(seed: int, step: Step, counted: frozenset[str] | None = None) -> tuple[RandomHistory, int]:
    """A log after the step, and how many calls that took."""
    history = lived(seed)
    disk = disk_of(history)
    disk.counted, disk.count = counted, 0
    step(history)
    count = disk.count
    disk.counted = None
    return history, count


def cases(
    step: Step, kind: int, counted: frozenset[str] | None = None
) -> list[tuple[int, int, LogModel]]:
    """Seed, number of the call, and the model after the step; another `kind` has other lives."""
    found = []
    for life_number in range(LIVES):
        seed = (kind * 100 + STEPS.index(step)) * 100 + life_number
        after, count = done(seed, step, counted)
        calls = random.Random(seed).sample(range(count), min(count, CALLS_OF_EACH))
        found += [(seed, call, after.model) for call in calls]
    return found


def go_on(history: RandomHistory) -> None:
    """Write more, lose power, check the log; then delete all records, check which files remain."""
    history.epoch += 1
    for _ in range(3):
        history.append()
    history.flush_and_checkpoint()
    history.model.check(history.log, history.disk)
    history.disk.crash(history.rng)
    history.log = history.opened()
    history.model.served.clear()
    history.model.check(history.log, history.disk)
    assert history.log.state.is_whole
    history.close()
    history.log = history.opened()
    assert history.log.checkpoints.high_watermark_saved == history.model.high_watermark
    history.model.check(history.log, history.disk)
    history.append()
    history.model.start = history.model.end
    history.log.delete_records_to(history.model.end)
    history.retention()
    history.append()
    history.flush_and_checkpoint()
    history.now_ms -= 3_600_000  # the clock is set back
    history.checkpoint()
    history.now_ms += 1_000
    history.checkpoint()
    history.model.check(history.log, history.disk)
    check_files(history)


def check_files(history: RandomHistory) -> None:
    """Check that the directory has no file that the log does not need."""
    names = history.disk.listdir(history.log.directory)
    assert all(map(is_log_file, names))
    assert sorted(name for name in names if name.endswith(".log")) == history.log.segments
    indexes = {name.replace(".log", ".index") for name in history.log.segments}
    assert {name for name in names if name.endswith(".index")} <= indexes
    assert not [name for name in names if name.endswith((".tmp", ".aside")) or name == "unflushed"]
    assert len([name for name in names if name.endswith(".producers")]) <= 3
    assert history.disk.open_descriptors <= 2


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_each_step_without_faults_matches_the_model(step: Step) -> None:
    for life_number in range(LIVES):
        history, _ = done(STEPS.index(step) * 100 + life_number, step)
        history.model.check(history.log, history.disk)
        go_on(history)


@pytest.mark.parametrize("power", [False, True], ids=["the process", "the machine"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_death_at_any_call(step: Step, power: bool) -> None:
    for seed, call, after in cases(step, 1 + power):
        history = lived(seed)
        before = history.model.copy()
        disk = disk_of(history)
        disk.left = call
        with pytest.raises(Killed):
            step(history)
        disk.left = -1
        lowest_end = min(before.end, after.end)
        if power:
            disk.crash(history.rng)
            lowest_end = min(before.synced, after.end)
        else:
            disk.kill()
        history.log = history.opened()
        history.model = settle(history.log, before, after, lowest_end)
        if power:
            history.model.served.clear()
        else:
            check_high_watermark(history, before, after)
        history.model.check(history.log, disk)
        assert history.log.state.is_whole or history.log.log_end_offset < after.asked, (
            "nothing was damaged"
        )
        go_on(history)


def check_high_watermark(history: RandomHistory, before: LogModel, after: LogModel) -> None:
    """It is at hand though the process died, and went down before any record did."""
    found, end = history.log.checkpoints.high_watermark_saved, history.log.log_end_offset
    lowest, highest = sorted((before.high_watermark, after.high_watermark))
    if end < before.end:
        highest = after.high_watermark
    assert min(lowest, end) <= found <= min(highest, end)


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_disk_that_fails_at_any_call(step: Step, closed: bool) -> None:
    for seed, call, after in cases(step, 3 + closed):
        history = lived(seed)
        before = history.model.copy()
        disk = disk_of(history)
        disk.left, disk.error = call, errno.EIO
        with suppress(KafkaStorageError, OSError):
            step(history)
        disk.left, disk.error = -1, None
        if closed and step not in ENDS:
            history.log.close()
        disk.kill()
        history.model.served.clear()
        history.log = history.opened()
        lowest_end = min(before.end, after.end)
        if not history.log.state.is_whole:
            lowest_end = min(before.synced, after.end)
        history.model = settle(history.log, before, after, lowest_end)
        history.model.check(history.log, disk)
        if not closed:
            disk.kill()
            history.log = history.opened()
            history.model.check(history.log, disk)
        if history.log.state.is_whole:
            go_on(history)


@pytest.mark.parametrize("scarce", SCARCE)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_nothing_is_left_of_what_a_call_needs(step: Step, scarce: str) -> None:
    """The log goes on where it was, or is opened again. A follower then cuts it once more."""
    kind, (code, counted) = 5 + list(SCARCE).index(scarce), SCARCE[scarce]
    for seed, call, after in cases(step, kind, counted):
        history = lived(seed)
        before, drawn = history.model.copy(), history.rng.getstate()
        disk = disk_of(history)
        disk.left, disk.error, disk.counted = call, code, counted
        try:
            step(history)
        except (KafkaStorageError, OSError):
            is_unchanged = step in CUTS and not history.log.offline
        else:
            is_unchanged = False
        disk.left, disk.error, disk.counted = -1, None, None
        if step in ENDS or history.log.offline:
            if step not in ENDS:
                assert scarce != "room" or step in CUTS
                history.log.close()
            disk.kill()
            history.log = history.opened()
        assert not history.log.busy
        if is_unchanged:
            before.high_watermark = history.log.checkpoints.high_watermark_saved
            history.model = before
            if call % 2:
                history.rng.setstate(drawn)
                step(history)
        else:
            history.model = settle(history.log, before, after, min(before.end, after.end))
        history.model.check(history.log, disk)
        assert history.log.state.is_whole or history.log.log_end_offset < after.asked
        go_on(history)

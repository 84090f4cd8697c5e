"""What opening a log trusts, keeps and removes, file by file."""

from dataclasses import replace

import pytest

from raylog.storage.checkpoint import CleanEnd, LogState, StateFile
from raylog.storage.epochs import EpochStart
from raylog.storage.log import Log, LogConfig
from raylog.storage.producers import ProducerStates
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    contents,
    flush,
    marker,
    names,
    open_log,
    path,
    put,
)

BATCHES = 12
SIZE = len(batch(producer_id=1))


def filled(disk: FaultyDisk, *, durable: bool = True, epochs: int = 0) -> Log:
    """A log with two batches in each segment; a new epoch after each `epochs` batches."""
    log = open_log(disk, segment_bytes=2 * SIZE)
    for number in range(BATCHES):
        epoch = number // epochs if epochs else 0
        append(log, batch(producer_id=1, sequence=number), epoch=epoch)
    if durable:
        flush(log)
        checkpoint(log)
    return log


def reopened(disk: FaultyDisk) -> Log:
    disk.kill()
    return open_log(disk, segment_bytes=2 * SIZE)


def offsets(log: Log) -> list[int]:
    return [offset for offset, _, _ in contents(log)]


def state_of(disk: FaultyDisk) -> LogState:
    state = StateFile(disk, str(DIRECTORY)).read()
    assert state is not None
    return state


def change_state(disk: FaultyDisk, state: LogState) -> None:
    StateFile(disk, str(DIRECTORY)).write(state, 1)


# ---- the state -------------------------------------------------------------------------------


def test_a_log_that_has_all_it_held_misses_nothing(disk: FaultyDisk) -> None:
    filled(disk)
    log = reopened(disk)
    assert (log.state.held, log.state.recovery_point, log.state.is_whole) == (0, BATCHES, True)


def test_a_log_that_lost_its_end_is_durable_to_where_it_ends(disk: FaultyDisk) -> None:
    log = filled(disk)
    log.close()
    assert f"{BATCHES:020}.producers" in names(disk, ".producers")
    disk.unlink(path(log.segments[-1]))
    log = reopened(disk)
    assert (log.log_end_offset, log.state.recovery_point, log.state.held) == (10, 10, BATCHES)
    assert max(int(name[:20]) for name in names(disk, ".producers")) <= 10
    append(log, batch(producer_id=1, sequence=10))
    append(log, batch(producer_id=1, sequence=11))
    assert log.producers.describe()[0].last_sequence == 11


def test_names_that_opening_removed_do_not_come_back(disk: FaultyDisk) -> None:
    log = filled(disk, durable=False)
    disk.unlink(path(log.segments[2]))
    disk.kill()
    disk.calls.clear()
    assert open_log(disk, segment_bytes=2 * SIZE).log_end_offset == 4
    unlinked = max(at for at, call in enumerate(disk.calls) if call in {"unlink", "rename"})
    assert "fsync_dir" in disk.calls[unlinked:]


def test_a_log_that_was_scanned_is_not_marked_as_closed(disk: FaultyDisk) -> None:
    filled(disk).close()
    assert state_of(disk).clean_end is not None
    config = LogConfig(segment_bytes=2 * SIZE)
    log = Log.open(DIRECTORY, config, disk, now_ms=NOW_MS, clean=False)
    log.delete_records_to(1)
    checkpoint(log)
    assert state_of(disk).clean_end is None


@pytest.mark.parametrize(
    "lie",
    [
        CleanEnd(f"{8:020}.log", 2 * SIZE, BATCHES),
        CleanEnd(f"{10:020}.log", 2 * SIZE - 1, BATCHES),
        CleanEnd(f"{10:020}.log", 2 * SIZE + 1, BATCHES),
        CleanEnd(f"{10:020}.log", 2 * SIZE, BATCHES - 1),
        CleanEnd(f"{10:020}.log", 2 * SIZE, BATCHES + 1),
    ],
)
def test_a_mark_of_a_clean_close_must_agree_with_the_last_segment(
    disk: FaultyDisk, lie: CleanEnd
) -> None:
    filled(disk).close()
    state = state_of(disk)
    assert state.clean_end == CleanEnd(f"{10:020}.log", 2 * SIZE, BATCHES)
    change_state(disk, replace(state, clean_end=lie))
    log = reopened(disk)
    assert not log.report.clean
    assert offsets(log) == list(range(BATCHES))
    log.close()
    assert reopened(disk).report.clean


def test_epochs_of_what_is_scanned_are_those_of_its_batches(disk: FaultyDisk) -> None:
    filled(disk)
    change_state(disk, replace(state_of(disk), epochs=[EpochStart(0, 0), EpochStart(7, 11)]))
    assert reopened(disk).epochs.entries() == [(0, 0)]


def test_an_epoch_that_goes_back_from_one_segment_to_the_next_is_damage(disk: FaultyDisk) -> None:
    log = filled(disk, durable=False, epochs=4)
    assert log.segments[3] == f"{6:020}.log"
    disk.corrupt(path(log.segments[3]), 12, (0).to_bytes(4))
    assert reopened(disk).log_end_offset == 6


# ---- names of segments -----------------------------------------------------------------------


def test_without_a_state_names_are_not_used_twice(disk: FaultyDisk) -> None:
    log = filled(disk)
    log.truncate_to(3, NOW_MS)
    assert log.segments[-1] == f"{2:020}-1.log"
    disk.unlink(path("state"))
    log = reopened(disk)
    append(log, batch(producer_id=1, sequence=3))
    log.truncate_to(3, NOW_MS)
    assert log.segments[-1] not in {f"{2:020}.log", f"{2:020}-1.log"}


def test_a_truncation_that_ended_halfway_leaves_the_newer_one_of_two_segments(
    disk: FaultyDisk,
) -> None:
    log = filled(disk)
    old = log.segments[-1]
    data = disk.contents(path(old))[:SIZE]
    put(disk, f"{10:020}-3.log", data)
    log = reopened(disk)
    assert log.segments[-1] == f"{10:020}-3.log"
    assert (log.log_end_offset, log.report.removed_segments) == (11, [old])
    assert old not in disk.listdir(str(DIRECTORY))
    assert old.replace(".log", ".index") not in disk.listdir(str(DIRECTORY))


# ---- the log start ---------------------------------------------------------------------------


def test_segments_before_the_log_start_go(disk: FaultyDisk) -> None:
    log = filled(disk)
    log.delete_records_to(4)
    checkpoint(log)
    log = reopened(disk)
    assert log.segments[0] == f"{4:020}.log"
    assert log.log_start_offset == 4
    assert set(log.report.removed_segments) == {f"{0:020}.log", f"{2:020}.log"}
    assert offsets(log) == list(range(4, BATCHES))


def test_a_log_without_the_segment_in_which_it_starts_has_lost_records(disk: FaultyDisk) -> None:
    log = filled(disk, durable=False)
    log.delete_records_to(8)
    checkpoint(log)
    disk.boots += 1
    for name in log.segments[:-1]:
        disk.unlink(path(name))
    log = reopened(disk)
    assert (log.log_start_offset, log.log_end_offset) == (8, 8)
    assert (log.state.held, log.state.is_whole) == (9, False)


def test_records_that_were_all_deleted_keep_their_segment_and_their_producers(
    disk: FaultyDisk,
) -> None:
    log = filled(disk)
    log.delete_records_to(BATCHES)
    checkpoint(log)
    log = reopened(disk)
    assert (log.log_start_offset, log.log_end_offset) == (BATCHES, BATCHES)
    assert log.segments == [f"{10:020}.log"]
    assert log.producers.describe()[0].last_sequence == 11


def test_producers_of_records_below_the_log_start_are_forgotten(disk: FaultyDisk) -> None:
    filled(disk).close()
    assert names(disk, ".producers")
    change_state(disk, replace(state_of(disk), log_start_offset=BATCHES + 1))
    log = reopened(disk)
    assert (log.log_start_offset, log.log_end_offset) == (BATCHES + 1, BATCHES + 1)
    assert log.producers.describe() == []
    assert (log.segments, names(disk, ".producers")) == ([], [])


# ---- behind the data -------------------------------------------------------------------------


def test_data_far_behind_a_gap_is_found(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.storage.recovery._CHUNK", 100)
    log = open_log(disk)
    append(log, batch())
    name = path(log.segments[0])
    disk.kill()
    disk.corrupt(name, len(disk.contents(name)) - 1, b"?")
    log = open_log(disk)
    assert 0 < log.report.rejected_bytes <= 100
    info = append(log, batch())
    assert (info.base_offset, info.position, info.segment_id) == (1, 0, f"{1:020}-1.log")


def test_nothing_is_written_behind_a_segment_that_was_not_looked_at(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=3 * SIZE)
    for number in range(2):
        append(log, batch(producer_id=1, sequence=number))
    append(log, batch(size=300))
    first = log.segments[0]
    assert log.segment_count == 2
    flush(log)
    checkpoint(log)
    disk.kill()
    disk.corrupt(path(first), len(disk.contents(path(first))) - 1, b"?")
    log = open_log(disk, segment_bytes=3 * SIZE)
    assert log.report.scanned_segments == 1
    log.truncate_to(2, NOW_MS)
    assert log.segments == [first]
    assert append(log, batch(size=10)).segment_id != first


# ---- producers -------------------------------------------------------------------------------


def test_a_scan_saves_the_producers_as_of_each_segment(disk: FaultyDisk) -> None:
    filled(disk, durable=False)
    assert names(disk, ".producers") == []
    log = reopened(disk)
    assert names(disk, ".producers") == [f"{int(n[:20]):020}.producers" for n in log.segments[1:]]
    for name in names(disk, ".producers"):
        states = ProducerStates.restore(disk.contents(path(name)))
        assert states is not None
        assert states.describe()[0].last_sequence == int(name[:20]) - 1


def test_producer_state_is_rebuilt_in_batch_order(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch(producer_id=1, sequence=0))
    append(log, batch(producer_id=1, sequence=1, transactional=True))
    append(log, marker(1, commit=True))
    before = log.producers.describe()
    disk.kill()
    log = open_log(disk)
    assert log.producers.describe() == before
    assert log.reader.last_stable_offset(3) == 3
    append(log, batch(producer_id=1, sequence=2))
    append(log, batch(producer_id=2, sequence=0))
    before = log.producers.describe()
    disk.kill()
    assert open_log(disk).producers.describe() == before


def test_an_index_that_is_newer_than_the_state_is_not_resumed_at(disk: FaultyDisk) -> None:
    """A process may end between writing the one and the other."""
    log = open_log(disk, index_checkpoint_bytes=500)
    for number in range(5):
        append(log, batch(producer_id=1, sequence=number))
    checkpoint(log)
    old = {name: disk.contents(path(name)) for name in ["state", *names(disk, ".producers")]}
    for number in range(5, 10):
        append(log, batch(producer_id=1, sequence=number), epoch=2)
    checkpoint(log)
    disk.kill()
    for name in names(disk, ".producers"):
        disk.unlink(path(name))
    for name, data in old.items():
        put(disk, name, data)
    log = open_log(disk, index_checkpoint_bytes=500)
    assert log.log_end_offset == 10
    assert log.epochs.entries() == [(0, 0), (2, 5)]
    assert log.producers.describe()[0].last_sequence == 9


@pytest.mark.parametrize("more", [0, 3])
def test_a_damaged_snapshot_is_removed_and_nothing_is_resumed_at_it(
    disk: FaultyDisk, more: int
) -> None:
    log = open_log(disk, index_checkpoint_bytes=500)
    for number in range(5):
        append(log, batch(producer_id=1, sequence=number))
    checkpoint(log)
    for number in range(5, 5 + more):
        append(log, batch(producer_id=2, sequence=number))
    disk.kill()
    [name] = names(disk, ".producers")
    disk.corrupt(path(name), 20, b"\xff\xff")
    log = open_log(disk, index_checkpoint_bytes=500)
    assert [one.producer_id for one in log.producers.describe()] == [1, 2][: 1 + bool(more)]
    assert names(disk, ".producers") == []

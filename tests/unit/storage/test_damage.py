"""Damage to data that was certainly written: detected, set aside and not served."""

import errno
import random
from array import array
from collections.abc import Callable

import pytest

from raylog.storage.checkpoint import (
    HIGH_WATERMARK_KIND,
    STATE_KIND,
    HighWatermarkFile,
    LogState,
    Reached,
    StateFile,
    WrittenPoint,
    decode,
    encode,
)
from raylog.storage.index import SparseIndex, decode_body, decode_head, encode_index
from raylog.storage.log import Log, LogConfig
from raylog.storage.scan import Surroundings, scan
from raylog.wire.errors import KafkaStorageError
from raylog.wire.records import read_header
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
SEGMENT = 500  # bytes: two batches
OFFSETS = list(range(BATCHES))


def filled(disk: FaultyDisk, epochs: Callable[[int], int] = lambda _: 0) -> Log:
    """A log of some segments, durable and checkpointed."""
    log = open_log(disk, segment_bytes=SEGMENT)
    for number in range(BATCHES):
        append(log, batch(producer_id=1, sequence=number), epoch=epochs(number))
    flush(log)
    checkpoint(log)
    return log


def reopened(disk: FaultyDisk) -> Log:
    return open_log(disk, segment_bytes=SEGMENT)


def served(log: Log) -> list[int]:
    """Offsets that readers get, who check what nobody has read before."""
    offset, found = log.log_start_offset, []
    while (piece := log.read(offset, 300, log.log_end_offset)) is not None:
        if log.reader.unchecked.touches(piece):
            job = log.reader.begin_check(piece)
            job.run()
            log.reader.end_check(job)
            assert not log.reader.unchecked.touches(piece)
        found += list(range(offset, piece.next_offset))
        offset = piece.next_offset
    return found


def rewritten(disk: FaultyDisk, name: str, kind: int, version: int, **changes: object) -> None:
    known = decode(kind, version, disk.contents(path(name)), name)
    assert known is not None
    put(disk, name, encode(kind, known.version, known.value | changes))


# ---- records that are missing ----------------------------------------------------------------


@pytest.mark.parametrize("gone", range(6))
def test_a_missing_segment_leaves_the_log_that_is_before_it(disk: FaultyDisk, gone: int) -> None:
    log = filled(disk)
    name = log.segments[gone]
    disk.kill()
    disk.unlink(path(name))
    log = reopened(disk)
    assert log.log_end_offset == 2 * gone
    assert (log.state.held, log.state.is_whole) == (BATCHES, False)
    assert served(log) == OFFSETS[: 2 * gone]
    assert len(names(disk, ".aside")) == 5 - gone


def test_damage_that_a_reader_found_is_missed_after_a_restart_of_the_machine(
    disk: FaultyDisk,
) -> None:
    """The state alone says so: what it says of the machine counts no more."""
    log = filled(disk)
    name = log.segments[3]
    disk.kill()
    disk.corrupt(path(name), 30, b"\xff")
    log = reopened(disk)
    with pytest.raises(KafkaStorageError, match="damaged"):
        served(log)
    log.close()
    disk.crash(random.Random(0))
    log = reopened(disk)
    assert (log.log_end_offset, log.state.held, log.state.is_whole) == (6, BATCHES, False)


def test_a_log_that_lacks_records_says_so_until_it_has_them_again(disk: FaultyDisk) -> None:
    log = filled(disk)
    whole = contents(log)
    name = log.segments[3]
    disk.kill()
    disk.unlink(path(name))
    for _ in range(3):
        log = reopened(disk)
        assert not log.state.is_whole
        checkpoint(log)
        log.close()
    log = reopened(disk)
    assert len(names(disk, ".aside")) == 2
    for number in range(6, BATCHES):
        data = batch(offset=number, producer_id=1, sequence=number)
        assert log.state.is_whole is False
        log.append_verbatim(memoryview(data), NOW_MS)
    assert log.state.is_whole
    assert contents(log) == whole
    checkpoint(log)
    assert names(disk, ".aside") == []
    log.close()
    assert reopened(disk).state.is_whole


def test_a_cut_by_the_leader_is_no_loss(disk: FaultyDisk) -> None:
    log = filled(disk)
    log.truncate_to(5, NOW_MS)
    disk.kill()
    log = reopened(disk)
    assert (log.log_end_offset, log.state.is_whole) == (5, True)
    log.truncate_fully(70)
    disk.kill()
    log = reopened(disk)
    assert (log.log_start_offset, log.log_end_offset, log.state.is_whole) == (70, 70, True)


def test_a_damaged_log_that_is_cut_misses_no_more_than_the_leader_has(disk: FaultyDisk) -> None:
    log = filled(disk)
    name = log.segments[-1]
    disk.kill()
    disk.unlink(path(name))
    log = reopened(disk)
    assert not log.state.is_whole
    log.truncate_to(4, NOW_MS)
    assert log.state.is_whole


def test_while_the_machine_runs_all_that_was_written_is_missed(disk: FaultyDisk) -> None:
    log = open_log(disk)
    for number in range(BATCHES):
        append(log, batch(producer_id=1, sequence=number))
    checkpoint(log)  # nothing of it is durable
    assert log.state.recovery_point == 0
    disk.kill()
    whole = disk.contents(path(log.segments[0]))
    put(disk, log.segments[0], whole[: len(whole) // 80])
    log = open_log(disk)
    assert (log.state.held, log.state.is_whole) == (BATCHES, False)
    disk.boots += 1  # but after a power cut that is no surprise
    assert open_log(disk).state.is_whole


@pytest.mark.parametrize("restarted", [False, True])
def test_missing_durable_segment_is_detected_after_a_machine_restart(
    disk: FaultyDisk, restarted: bool
) -> None:
    log = filled(disk)
    name = log.segments[3]
    disk.kill()
    disk.unlink(path(name))
    disk.boots += restarted
    log = reopened(disk)
    assert (log.log_end_offset, log.state.held, log.state.is_whole) == (6, BATCHES, False)


@pytest.mark.parametrize("durable", [7, 8, 9])
def test_only_segments_with_what_was_durable_are_set_aside(disk: FaultyDisk, durable: int) -> None:
    """Segments begin at even offsets."""
    log = open_log(disk, segment_bytes=SEGMENT)
    for number in range(BATCHES):
        append(log, batch(producer_id=1, sequence=number))
        if number + 1 == durable:
            flush(log)
            checkpoint(log)
    segments = log.segments
    disk.kill()
    disk.boots += 1
    disk.unlink(path(segments[2]))
    log = reopened(disk)
    assert (log.log_end_offset, log.state.held) == (4, durable)
    kept = [one for one in segments[3:] if int(one[:20]) < durable]
    assert names(disk, ".aside") == [f"{one}.aside" for one in kept]
    assert log.report.removed_segments == segments[:2:-1]


MANY, FEW = 50, 20
NO_BOOT_ID = ""


@pytest.mark.parametrize(
    ("recovery_point", "held", "reached", "written", "expected"),
    [
        (MANY, FEW, (FEW, "now"), (FEW, "now"), MANY),  # it was durable
        (FEW, MANY, (FEW, "now"), (FEW, "now"), MANY),  # it was missed before
        (FEW, FEW, (MANY, "now"), (FEW, "now"), MANY),
        (FEW, FEW, (FEW, "now"), (MANY, "now"), MANY),
        (FEW, FEW, (MANY, "before"), (FEW, "now"), FEW),  # a power cut may have taken it
        (FEW, FEW, (FEW, "now"), (MANY, "before"), FEW),
        (FEW, FEW, (MANY, NO_BOOT_ID), (MANY, NO_BOOT_ID), FEW),
        (FEW, FEW, (MANY, "now"), None, MANY),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_held_offset_is_the_highest_recorded_since_the_machine_booted(
    disk: FaultyDisk,
    monkeypatch: pytest.MonkeyPatch,
    recovery_point: int,
    held: int,
    reached: tuple[int, str],
    written: tuple[int, str] | None,
    expected: int,
    known: bool,
) -> None:
    """Files of a log that has lost all its segments, on a machine that may have no boot id."""
    disk.mkdir(str(DIRECTORY))
    now = "now" if known else NO_BOOT_ID
    monkeypatch.setattr(disk, "boot_id", lambda: now)
    point = written and WrittenPoint(*written)
    state = LogState(recovery_point=recovery_point, held=held, written=point)
    StateFile(disk, str(DIRECTORY)).write(state, 1)
    HighWatermarkFile(disk, str(DIRECTORY)).write(Reached(FEW, *reached))
    durable = max(recovery_point, held)
    assert open_log(disk).state.held == (expected if known else durable)


def test_an_index_read_beside_the_log_is_kept(disk: FaultyDisk) -> None:
    log = filled(disk)
    log.retention(NOW_MS, BATCHES)
    assert not log.reader.is_indexed(2)
    for job in [log.reader.begin_index(2), log.reader.begin_index(2)]:
        job.run()
        log.reader.end_index(job)
        assert log.reader.is_indexed(2)
    disk.fail("open", errno.EIO, path=".index")
    assert log.read(3, 1, BATCHES) is not None


@pytest.mark.parametrize(("error", "is_passing"), [(errno.EIO, False), (errno.EMFILE, True)])
def test_an_index_that_cannot_be_read_is_refused(
    disk: FaultyDisk, error: int, is_passing: bool
) -> None:
    log = filled(disk)
    log.retention(NOW_MS, BATCHES)
    job = log.reader.begin_index(2)
    disk.fail("open", error)
    job.run()
    with pytest.raises(KafkaStorageError, match="read"):
        log.reader.end_index(job)
    assert (log.offline, log.reader.is_indexed(2)) == (not is_passing, False)


def test_an_index_of_a_segment_that_is_gone_meanwhile_is_of_no_use(disk: FaultyDisk) -> None:
    log = filled(disk)
    log.retention(NOW_MS, BATCHES)
    job = log.reader.begin_index(2)
    log.truncate_to(2, NOW_MS)
    job.run()
    assert job.failure is not None
    log.reader.end_index(job)
    assert not log.offline


# ---- bytes that changed ----------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 5, 9, 13, 16, 18, 30, 60, 100])
@pytest.mark.parametrize("segment", [0, 2, 4])
def test_a_flipped_bit_is_found_by_who_reads_and_ends_the_log_there(
    disk: FaultyDisk, segment: int, position: int
) -> None:
    log = filled(disk)
    name = log.segments[segment]
    log.close()
    size = len(batch(producer_id=1))
    old = disk.contents(path(name))[size + position]
    disk.corrupt(path(name), size + position, bytes([old ^ 0x40]))
    log = reopened(disk)
    assert (log.log_end_offset, log.state.is_whole) == (BATCHES, True)
    with pytest.raises(KafkaStorageError, match="is damaged"):
        served(log)
    assert log.offline
    log.close()
    log = reopened(disk)
    damaged = 2 * segment + 1
    assert log.log_end_offset in (damaged - 1, damaged)
    assert not log.state.is_whole
    assert served(log) == OFFSETS[: log.log_end_offset]


def test_epochs_that_lie_are_made_again(disk: FaultyDisk) -> None:
    log = filled(disk, lambda number: number // 4)
    entries = log.epochs.entries()
    log.close()
    rewritten(disk, "state", STATE_KIND, 2, epochs=[[0, 0], [7, 2]])
    log = reopened(disk)
    for _ in range(3):
        if not log.offline:
            try:
                assert served(log) == OFFSETS
            except KafkaStorageError:
                log.close()
                log = reopened(disk)
    assert log.epochs.entries() == entries
    assert log.state.is_whole


@pytest.mark.parametrize(
    ("offsets", "noted", "end"),
    [((0, 3, 7), False, 8), ((0, 1, 7), False, 2), ((0, 1, 7), True, 8), ((7,), True, 8)],
)
def test_a_hole_before_the_last_batch_is_believed_where_holes_are_known(
    disk: FaultyDisk, offsets: tuple[int, ...], noted: bool, end: int
) -> None:
    """By a note that the log itself leaves, or by holes before."""
    log = open_log(disk)
    for offset in offsets:
        log.append_verbatim(memoryview(batch(offset=offset)), NOW_MS)
    disk.kill()
    if not noted:
        disk.unlink(path("holes"))
    assert open_log(disk).log_end_offset == end


def test_the_note_of_holes_is_left_once_and_goes_with_the_log(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    assert "holes" not in disk.listdir(str(DIRECTORY))
    for offset in (2, 4):
        disk.calls.clear()
        log.append_verbatim(memoryview(batch(offset=offset)), NOW_MS)
        assert disk.calls.count("open") == (offset == 2)
    log.close()
    open_log(disk).delete()
    assert disk.listdir(str(DIRECTORY)) == []


def test_a_full_disk_has_no_room_for_the_note(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    disk.fail("open", errno.ENOSPC, path="holes")
    with pytest.raises(KafkaStorageError):
        log.append_verbatim(memoryview(batch(offset=2)), NOW_MS)
    assert (log.log_end_offset, log.offline) == (1, False)
    assert log.append_verbatim(memoryview(batch(offset=2)), NOW_MS) == 3


@pytest.mark.parametrize("end", ["kill", "crash", "distrust"])
def test_a_hole_before_the_last_batch_is_believed_where_the_log_had_reached_as_far(
    disk: FaultyDisk, end: str
) -> None:
    """A copy of a log that was compacted once, and is `delete` now."""
    log = open_log(disk)
    log.append_verbatim(b"".join([batch(offset=0), batch(offset=5)]), NOW_MS)
    flush(log)
    checkpoint(log)
    match end:
        case "kill":
            disk.kill()
        case "crash":
            disk.crash(random.Random(1))
        case _:
            log.close()
    config = LogConfig(compact=False)
    log = Log.open(DIRECTORY, config, disk, now_ms=NOW_MS, clean=end != "distrust")
    assert (log.log_end_offset, log.state.is_whole) == (6, True)


def test_a_last_batch_behind_what_the_log_had_reached_is_not_believed(disk: FaultyDisk) -> None:
    log = open_log(disk)
    for _ in range(3):
        append(log, batch())
    flush(log)
    checkpoint(log)
    name = log.segments[-1]
    disk.kill()
    disk.corrupt(path(name), 2 * len(batch()) + 6, b"\x01")
    log = open_log(disk)
    assert (log.log_end_offset, log.state.is_whole) == (2, False)


def test_a_leap_that_the_next_batch_takes_back_is_damage(disk: FaultyDisk) -> None:
    log = filled(disk)
    name = log.segments[-1]
    disk.kill()
    disk.corrupt(path(name), 6, b"\x01")  # of the batch before the last one
    log = reopened(disk)
    assert log.log_end_offset == BATCHES - 2


# ---- small files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": "x"},
        {"epochs": [[3, 0], [2, 5]]},
        {"epochs": [[3, 0], [3, 5]]},
        {"epochs": [[3, 0], [4, 0]]},
        {"epochs": [1]},
        {"recovery_point": -1},
        {"log_start_offset": "0"},
        {"clean_end": 3},
        {"written": []},
        {"held": None},
    ],
)
def test_a_state_of_another_shape_counts_as_lost(
    disk: FaultyDisk, changes: dict[str, object]
) -> None:
    filled(disk).close()
    rewritten(disk, "state", STATE_KIND, 2, **changes)
    log = reopened(disk)
    assert served(log) == OFFSETS
    assert log.epochs.entries() == [(0, 0)]
    assert not log.report.clean


@pytest.mark.parametrize("lie", ["far", [1], [9, 3, "b"], [-1, 3, "b"], {"a": 1}, None])
def test_a_high_watermark_that_cannot_be_counts_as_lost(disk: FaultyDisk, lie: object) -> None:
    filled(disk).close()
    put(disk, "high-watermark", encode(HIGH_WATERMARK_KIND, 2, lie))
    log = reopened(disk)
    assert log.checkpoints.high_watermark_saved == 0
    assert served(log) == OFFSETS


def test_segments_from_before_the_log_start_may_be_there_in_part(disk: FaultyDisk) -> None:
    log = filled(disk)
    log.delete_records_to(8)
    checkpoint(log)
    name = log.segments[1]
    disk.kill()
    disk.unlink(path(name))
    log = reopened(disk)
    assert (log.log_start_offset, log.log_end_offset, log.state.is_whole) == (8, BATCHES, True)
    assert served(log) == OFFSETS[8:]


def test_a_copy_of_old_data_is_still_unchecked(disk: FaultyDisk) -> None:
    log = filled(disk)
    log.close()
    log = reopened(disk)
    log.truncate_to(5, NOW_MS)
    piece = log.read(4, 1 << 20, 5)
    assert piece is not None
    assert log.reader.unchecked.touches(piece)
    append(log, batch())
    fresh = log.read(5, 1 << 20, 6)
    assert fresh is not None
    assert not log.reader.unchecked.touches(fresh)
    assert read_header(log.reader.load(fresh)).base_offset == 5


# ---- indexes that lie ------------------------------------------------------------------------


def lie_in_index(disk: FaultyDisk, name: str, lie: Callable[[SparseIndex], None]) -> None:
    """Change the entries of an index file and make its checksums right again."""
    data = disk.contents(path(name))
    head = decode_head(data)
    assert head is not None
    index = decode_body(head, data[head.body_position :])
    assert index is not None
    lie(index)
    put(disk, name, encode_index(head.summary, index, head.aborted))


def beyond_the_end(index: SparseIndex) -> None:
    index.positions = array("I", [each + (1 << 20) for each in index.positions])


def at_the_end(index: SparseIndex) -> None:
    last = index.positions[-1] + index.positions[0]
    index.positions = array("I", [last for _ in index.positions])


def within_batches(index: SparseIndex) -> None:
    index.positions = array("I", [each - 7 for each in index.positions])


def offsets_too_low(index: SparseIndex) -> None:
    index.offsets = array("I", [each - 1 for each in index.offsets])


def offsets_too_high(index: SparseIndex) -> None:
    index.offsets = array("I", [each + 1 for each in index.offsets])


def one_batch_further(index: SparseIndex) -> None:
    index.positions = array("I", [each + index.positions[0] for each in index.positions])


def none_at_all(index: SparseIndex) -> None:
    del index.offsets[:], index.positions[:], index.timestamps[:]


LIES = (
    beyond_the_end,
    at_the_end,
    within_batches,
    offsets_too_low,
    offsets_too_high,
    one_batch_further,
    none_at_all,
)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("max_bytes", [1, 500, 700, 1_000_000])
def test_an_index_that_lies_is_found_out_by_who_reads(
    disk: FaultyDisk, lie: Callable[[SparseIndex], None], max_bytes: int
) -> None:
    settings = {"segment_bytes": 2_000, "index_interval_bytes": 1}
    log = open_log(disk, **settings)
    for _ in range(BATCHES):
        append(log, batch(2))
    assert log.segment_count > 1
    log.close()
    asked = range(2 * BATCHES)
    log = open_log(disk, **settings)
    expected = [log.read(offset, max_bytes, 2 * BATCHES) for offset in asked]
    log.close()
    lie_in_index(disk, f"{0:020}.index", lie)
    for order in (list(asked), list(reversed(asked))):
        log = open_log(disk, **settings)
        found = {offset: log.read(offset, max_bytes, 2 * BATCHES) for offset in order}
        assert [found[offset] for offset in asked] == expected
        assert not log.offline
        log.close()


def test_an_offset_whose_batch_is_nowhere_takes_the_log_offline(disk: FaultyDisk) -> None:
    log = filled(disk)
    log.close()
    size = len(batch(producer_id=1))
    disk.corrupt(path(f"{2:020}.log"), size + 16, b"\xff")
    log = reopened(disk)
    with pytest.raises(KafkaStorageError, match=f"{2:020}.log has no batch with offset 3"):
        log.read(3, size, BATCHES)
    assert log.offline
    log.close()
    assert reopened(disk).log_end_offset == 3


@pytest.mark.parametrize(("magic_of", "offset"), [(7, 8), (7, 11), (5, 11)])
def test_damage_that_a_truncation_meets_is_found_at_the_next_opening(
    disk: FaultyDisk, magic_of: int, offset: int
) -> None:
    """It is at the cut, or before it in the segment; the index leads beyond it."""
    log = open_log(disk, index_interval_bytes=1)
    for _ in range(BATCHES):
        append(log, batch())
    log.close(7)
    size = len(batch())
    disk.corrupt(path(f"{0:020}.log"), magic_of * size + 16, b"\xff")
    log = open_log(disk, index_interval_bytes=1)
    with pytest.raises(KafkaStorageError, match="is damaged"):
        log.truncate_to(offset, NOW_MS)
    assert log.offline
    log.close()
    log = open_log(disk)
    assert (log.log_end_offset, log.state.held) == (magic_of, offset), "the leader has others"


def test_a_damaged_marker_that_a_truncation_reads_is_found_at_the_next_opening(
    disk: FaultyDisk,
) -> None:
    log = open_log(disk)
    append(log, batch(producer_id=1, transactional=True))
    append(log, marker(1, commit=True))
    for _ in range(3):
        append(log, batch())
    log.close()
    disk.corrupt(path(f"{0:020}.log"), len(batch(producer_id=1)) + 70, b"\xff")
    log = open_log(disk)
    with pytest.raises(KafkaStorageError, match="is damaged"):
        log.truncate_to(4, NOW_MS)
    log.close()
    log = open_log(disk)
    assert (log.log_end_offset, log.state.held) == (1, 4)


# ---- checks of slices ------------------------------------------------------------------------


@pytest.mark.parametrize("is_right", [True, False])
def test_a_checked_slice_begins_with_the_batch_that_was_asked_for(
    disk: FaultyDisk, is_right: bool
) -> None:
    log = filled(disk)
    log.close()
    log = reopened(disk)
    found = log.read(0, 300, 1)
    assert found is not None
    job = log.reader.begin_check(found if is_right else found._replace(first_offset=1))
    job.run()
    assert job.found is not None
    assert (job.found.damage is None) == is_right
    assert (job.found.end >= found.length) == is_right


def test_a_check_finds_a_last_batch_that_claims_offsets_of_the_next_segment(
    disk: FaultyDisk,
) -> None:
    log = filled(disk)
    log.close()
    size = len(batch(producer_id=1))
    disk.corrupt(path(f"{2:020}.log"), size, (4).to_bytes(8))
    log = reopened(disk)
    found = log.read(2, 10_000, 4)
    assert found is not None
    assert found.length == 2 * size
    job = log.reader.begin_check(found)
    job.run()
    assert job.found == (0, size, f"no batch is whole and right at byte {size}")


# ---- files that end before they were said to ---------------------------------------------------


def cut(disk: FaultyDisk, name: str, size: int) -> None:
    fd = disk.open(path(name))
    disk.ftruncate(fd, size)
    disk.close(fd)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(("kept", "count"), [(0, 0), (30, 0), (61, 0), (-1, 0), (0, 1), (61, 1)])
def test_a_walk_ends_where_the_file_does(
    disk: FaultyDisk, check: bool, kept: int, count: int
) -> None:
    log = open_log(disk)
    sizes = [append(log, marker(1, commit=True)).length for _ in range(2)]
    end = sum(sizes)
    cut(disk, f"{0:020}.log", sum(sizes[:count]) + (sizes[count] - 1 if kept < 0 else kept))
    fd = disk.open(path(f"{0:020}.log"))
    found = [position for position, _, _ in scan(disk, fd, 0, end, check=check)]
    assert found == [0][:count]


@pytest.mark.parametrize("check", [False, True])
def test_a_walk_may_cross_windows_and_need_larger_ones(
    disk: FaultyDisk, check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raylog.storage.scan._CHECKED_WINDOW", 150)
    monkeypatch.setattr("raylog.storage.scan._SKIPPING_WINDOW", 100)
    log = open_log(disk)
    stored = []
    for number in range(9):
        one = batch(size=50 * number) if number % 3 else marker(number, commit=True)
        append(log, one)
        stored.append(bytes(one))
    fd = disk.open(path(f"{0:020}.log"))
    found: list[int] = []
    for position, header, data in scan(disk, fd, 0, log.size, check=check):
        assert position == sum(len(one) for one in stored[: len(found)])
        assert header.size == len(stored[len(found)])
        if check or header.is_control:
            assert bytes(data) == stored[len(found)]
        found.append(header.base_offset)
    assert found == list(range(9))


def test_a_batch_behind_that_is_cut_contradicts_nothing(disk: FaultyDisk) -> None:
    """The first claims more offsets than it has, which the one behind would deny."""
    log = open_log(disk)
    sizes = [append(log, batch()).length for _ in range(2)]
    name, end = f"{0:020}.log", sum(sizes)
    disk.corrupt(path(name), 0, (5).to_bytes(8))
    around = Surroundings(held=6)
    fd = disk.open(path(name))
    assert not list(scan(disk, fd, 0, end, around=around, check=True))
    found = scan(disk, fd, 0, end - 1, around=around, check=True)
    assert [position for position, _, _ in found] == [0]
    assert not list(scan(disk, fd, 0, end - 1, around=Surroundings(held=5), check=True))

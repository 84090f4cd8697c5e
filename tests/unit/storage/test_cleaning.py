"""Compaction of a log: what is kept, in which files, and when it is due."""

import errno
import random

import pytest
from crc32c import crc32c

from raylog.storage.cleaned_transactions import CleanedTransactions
from raylog.storage.index import AbortedTransaction
from raylog.storage.log import Log, LogConfig, Slice
from raylog.storage.segment_work import KeysRead
from raylog.wire.compression import Codec
from raylog.wire.errors import InvalidRecord, KafkaStorageError
from raylog.wire.records import (
    BatchHeader,
    Record,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
)
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    begin_clean,
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


def segmented(disk: FaultyDisk, *batches: bytearray, **settings: int) -> Log:
    """A log with each batch in a segment of its own, and one more that is not cleaned."""
    log = open_log(disk, **{"segment_bytes": 10, "min_cleanable_dirty_ratio": 0} | settings)
    for each in batches:
        append(log, each)
    append(log, keyed([(b"last", b"")]))
    assert log.segment_count == len(batches) + 1
    return log


def segmented_again(disk: FaultyDisk) -> Log:
    """The same log, opened by another process."""
    return open_log(disk, segment_bytes=10, min_cleanable_dirty_ratio=0)


def merge_from_now_on(log: Log) -> None:
    config = log.state.config
    log.reconfigure(type(config)(segment_bytes=10_000, min_cleanable_dirty_ratio=0))


def headers(log: Log) -> list[BatchHeader]:
    found = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 10_000, log.log_end_offset)) is not None:
        found += [header for header, _ in iter_batches(log.reader.load(piece))]
        offset = piece.next_offset
    return found


# -- records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_the_latest_record_of_a_key_stays_at_its_offset(disk: FaultyDisk, codec: Codec) -> None:
    log = segmented(
        disk,
        keyed([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], codec=codec),
        keyed([(b"c", b"1"), (b"b", b"2")], codec=codec),
        keyed([(b"a", b"3")], codec=codec),
    )
    assert clean(log)
    assert contents(log) == [(3, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3"), (6, b"last", b"")]
    assert log.log_end_offset == 7
    assert log.cleaner.first_dirty_offset == 6
    assert not clean(log)


def test_a_batch_keeps_its_offsets_and_its_newest_time(disk: FaultyDisk) -> None:
    log = segmented(disk, keyed([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]), keyed([(b"c", b"2")]))
    before = headers(log)[0]
    clean(log)
    after = headers(log)[0]
    assert (after.base_offset, after.last_offset) == (0, 2)
    assert after.record_count == 2
    assert after.max_timestamp == before.max_timestamp - 1
    found = looked_up(log, None)
    assert found is not None
    assert (found.offset, found.timestamp) == (1, NOW_MS + 1)


def test_the_growing_segment_is_left_alone(disk: FaultyDisk) -> None:
    log = open_log(disk, min_cleanable_dirty_ratio=0)
    append(log, keyed([(b"a", b"1")]))
    append(log, keyed([(b"a", b"2")]))
    assert not clean(log)


def test_long_keys_are_distinguished(disk: FaultyDisk) -> None:
    long = b"x" * 64
    pairs: list[tuple[bytes, bytes | None]] = [
        (long, b"0"),
        (long + b"y", b"1"),
        (long + b"z", b"2"),
        (long + b"y", b"3"),
    ]
    log = segmented(disk, keyed(pairs))
    clean(log)
    assert [(key, value) for _, key, value in contents(log)][:-1] == [pairs[0], pairs[2], pairs[3]]


def test_readers_in_a_gap_go_on_at_the_next_record(disk: FaultyDisk) -> None:
    log = segmented(disk, *[keyed([(b"a", b"%d" % i)]) for i in range(5)], keyed([(b"b", b"")]))
    merge_from_now_on(log)
    clean(log)
    for offset in range(5):
        found = log.read(offset, 1, 7)
        assert found is not None
        first = next(iter_batches(log.reader.load(found)))[0]
        assert first.base_offset == 4
    assert contents(log) == [(4, b"a", b"4"), (5, b"b", b""), (6, b"last", b"")]


# -- tombstones ------------------------------------------------------------------------------------


def test_a_tombstone_goes_when_readers_had_time_to_see_it(disk: FaultyDisk) -> None:
    log = segmented(disk, keyed([(b"a", b"1"), (b"b", b"1")]), keyed([(b"a", None)]))
    clean(log)
    kept = [(1, b"b", b"1"), (2, b"a", None), (3, b"last", b"")]
    assert contents(log) == kept
    marked = headers(log)[1]
    assert marked.attributes & 0x40
    assert marked.base_timestamp == NOW_MS + DAY_MS
    assert decode_batch(bytes(log.reader.load(read_one(log, 2))))[0].timestamp == NOW_MS

    append(log, keyed([(b"c", b"")]))
    clean(log, NOW_MS + DAY_MS - 1)
    assert contents(log) == [*kept, (4, b"c", b"")]
    append(log, keyed([(b"d", b"")]))
    clean(log, NOW_MS + DAY_MS)
    assert contents(log) == [kept[0], *kept[2:], (4, b"c", b""), (5, b"d", b"")]


def read_one(log: Log, offset: int) -> Slice:
    found = log.read(offset, 1, log.log_end_offset)
    assert found is not None
    return found


def test_the_longest_retention_of_tombstones_is_a_time(disk: FaultyDisk) -> None:
    log = segmented(disk, keyed([(b"a", None)]), delete_retention_ms=2**63 - 1)
    clean(log)
    assert contents(log)[0] == (0, b"a", None)
    assert headers(log)[0].base_timestamp == 2**63 - 1


@pytest.mark.parametrize("delete_retention_ms", [DAY_MS, 2**63 - 1])
@pytest.mark.parametrize("timestamp", [-(2**63), NOW_MS - (2**63 - 1), -5])
def test_a_tombstone_of_any_time_stays_readable(
    disk: FaultyDisk, timestamp: int, delete_retention_ms: int
) -> None:
    batch = keyed([(b"a", None)], timestamp=timestamp)
    log = segmented(disk, batch, delete_retention_ms=delete_retention_ms)
    clean(log)
    assert contents(log)[0] == (0, b"a", None)
    (record,) = decode_batch(bytes(log.reader.load(read_one(log, 0))))
    assert record.timestamp == timestamp
    latest_ms = min(NOW_MS + delete_retention_ms, 2**63 - 1)
    assert headers(log)[0].base_timestamp == min(latest_ms, timestamp + 2**63)


# -- files -----------------------------------------------------------------------------------------


def test_small_segments_become_one_under_a_new_name(disk: FaultyDisk) -> None:
    log = segmented(disk, *[keyed([(b"k%d" % (i % 3), b"")]) for i in range(6)])
    merge_from_now_on(log)
    clean(log)
    assert log.segments == [f"{0:020}-1.log", f"{6:020}.log"]
    assert f"{0:020}.log" in disk.listdir(str(DIRECTORY))  # readers may have been told of it
    checkpoint(log, NOW_MS + 60_000)
    names = disk.listdir(str(DIRECTORY))
    assert sorted(name for name in names if name.endswith(".log")) == log.segments
    log.close()
    reopened = open_log(disk)
    assert reopened.report.clean
    assert [offset for offset, _, _ in contents(reopened)] == [3, 4, 5, 6]
    assert reopened.cleaner.first_dirty_offset == 6


def test_segments_stay_within_their_size(disk: FaultyDisk) -> None:
    log = segmented(disk, *[keyed([(b"%d" % i, b"v" * 100)]) for i in range(10)])
    size = log.size // 11
    log.reconfigure(type(log.state.config)(segment_bytes=3 * size, min_cleanable_dirty_ratio=0))
    clean(log)
    assert log.segment_count == 6
    assert [offset for offset, _, _ in contents(log)] == list(range(11))


def test_a_segment_ends_where_its_last_batch_did(disk: FaultyDisk) -> None:
    log = segmented(disk, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]), keyed([(b"a", b"3")]))
    clean(log)
    assert [(h.base_offset, h.record_count) for h in headers(log)] == [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 1),
    ]
    disk.kill()
    reopened = open_log(disk, segment_bytes=10, min_cleanable_dirty_ratio=0)
    assert contents(reopened) == [(2, b"a", b"3"), (3, b"last", b"")]
    reopened.close()
    for name in disk.listdir(str(DIRECTORY)):
        if not name.endswith(".log"):
            disk.unlink(f"{DIRECTORY}/{name}")
    assert contents(open_log(disk)) == [(2, b"a", b"3"), (3, b"last", b"")]


def test_segment_without_removable_records_keeps_its_file(disk: FaultyDisk) -> None:
    log = segmented(disk, keyed([(b"a", b"1")]), keyed([(b"b", b"2")]))
    names = log.segments
    assert clean(log)
    assert log.segments == names
    assert log.cleaner.first_dirty_offset == 2
    assert not any(name.endswith(".tmp") for name in disk.listdir(str(DIRECTORY)))


def test_names_are_not_used_twice(disk: FaultyDisk) -> None:
    log = segmented(disk, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    seen = set(log.segments)
    for number in range(3):
        append(log, keyed([(b"a", b"%d" % number)]))
        append(log, keyed([(b"last", b"")]))
        before = set(log.segments)
        clean(log)
        assert not (set(log.segments) - before) & seen
        seen |= set(log.segments)


def test_memory_bounds_how_far_a_cleaning_comes(disk: FaultyDisk) -> None:
    log = segmented(disk, *[keyed([(b"%d" % (i % 7), b"%d" % i)]) for i in range(20)])
    rounds = 0
    while clean(log, memory_bytes=1_000):
        rounds += 1
    assert rounds >= 3
    assert [offset for offset, _, _ in contents(log)] == [*range(13, 21)]


def test_memory_bounds_how_much_of_one_segment_is_noted(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=10_000, min_cleanable_dirty_ratio=0)
    for number in range(20):
        append(log, keyed([(b"%d" % number, b"")]))
    log.reconfigure(type(log.state.config)(segment_bytes=10, min_cleanable_dirty_ratio=0))
    append(log, keyed([(b"last", b"")]))
    flush(log)
    checkpoint(log)
    job = begin_clean(log, memory_bytes=1_000)
    assert job is not None
    assert job.work.step() == KeysRead(5, 5), "200 bytes for each key"


# -- when ------------------------------------------------------------------------------------------


def test_a_log_is_cleaned_when_enough_of_it_is_dirty(disk: FaultyDisk) -> None:
    log = segmented(disk, *[keyed([(b"%d" % i, b"")]) for i in range(4)])
    clean(log)
    log.reconfigure(type(log.state.config)(segment_bytes=10, min_cleanable_dirty_ratio=0.5))
    for number in range(3):
        append(log, keyed([(b"x%d" % number, b"")]))
        assert not clean(log)
    append(log, keyed([(b"y", b"")]))
    append(log, keyed([(b"z", b"")]))
    assert clean(log)


def test_young_records_wait(disk: FaultyDisk) -> None:
    log = segmented(
        disk,
        keyed([(b"a", b"1")], timestamp=NOW_MS - 2_000),
        keyed([(b"a", b"2")], timestamp=NOW_MS - 1_500),
        keyed([(b"a", b"3")], timestamp=NOW_MS - 500),
        min_compaction_lag_ms=1_000,
    )
    clean(log)
    assert [offset for offset, _, _ in contents(log)] == [1, 2, 3]
    assert log.cleaner.first_dirty_offset == 2


def test_records_without_times_are_as_young_as_their_file(disk: FaultyDisk) -> None:
    timeless = [keyed([(b"k", b"v")], timestamp=-1) for _ in range(3)]
    log = segmented(disk, *timeless, min_compaction_lag_ms=1_000)
    assert not clean(log, NOW_MS + 999)
    assert clean(log, NOW_MS + 1_000)
    assert [offset for offset, _, _ in contents(log)] == [2, 3]


def test_cleaned_segment_gets_the_latest_modification_time_of_its_sources(disk: FaultyDisk) -> None:
    log = segmented(disk, *[keyed([(b"k", b"v")]) for _ in range(3)])
    for number, name in enumerate(log.segments):
        disk.set_modified_ms(f"{DIRECTORY}/{name}", number)
    merge_from_now_on(log)
    disk.now_ms += 5_000
    assert clean(log)
    assert [disk.modified_ms(f"{DIRECTORY}/{name}") for name in log.segments] == [2, 3]


def test_old_records_do_not_wait_for_the_ratio(disk: FaultyDisk) -> None:
    log = segmented(disk, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]), max_compaction_lag_ms=1_000)
    config = type(log.state.config)(
        segment_bytes=10, min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1_000
    )
    log.reconfigure(config)
    assert not clean(log, NOW_MS + 1_000)
    assert clean(log, NOW_MS + 1_001)


def test_nothing_above_the_high_watermark_is_cleaned(disk: FaultyDisk) -> None:
    log = segmented(disk, *[keyed([(b"a", b"%d" % i)]) for i in range(4)])
    flush(log)
    checkpoint(log)
    job = begin_clean(log, high_watermark=2)
    assert job is not None
    while clean_step(log, job):
        pass
    assert [offset for offset, _, _ in contents(log)] == [1, 2, 3, 4]


def test_unflushed_segments_are_not_cleaned(disk: FaultyDisk) -> None:
    log = segmented(disk, *[keyed([(b"a", b"%d" % i)]) for i in range(4)])
    assert not clean(log, upkeep=False)
    flush(log)
    assert not clean(log, upkeep=False)
    assert clean(log)


def test_retention_and_truncation_wait(disk: FaultyDisk) -> None:
    log = segmented(disk, *[keyed([(b"a", b"%d" % i)]) for i in range(4)], retention_bytes=0)
    flush(log)
    checkpoint(log)
    job = begin_clean(log)
    assert job is not None
    was_busy = log.busy
    assert was_busy
    assert begin_clean(log) is None
    assert log.retention(NOW_MS, 5) == []
    log.cleaner.stop()
    assert not clean_step(log, job)
    assert not log.busy
    assert len(log.retention(NOW_MS, 5)) == 5


def test_a_stop_is_heeded_within_a_step(disk: FaultyDisk) -> None:
    pairs: list[tuple[bytes, bytes | None]] = [(b"%d" % i, b"") for i in range(1_000)]
    log = segmented(disk, keyed(pairs), keyed(pairs))
    flush(log)
    checkpoint(log)
    pauses: list[int] = []

    def pause(spent: int) -> None:
        pauses.append(spent)
        if len(pauses) == 3:
            log.cleaner.stop()

    job = begin_clean(log, pause=pause)
    assert job is not None
    assert clean_step(log, job)
    assert not clean_step(log, job)
    assert len(pauses) == 3
    assert len(contents(log)) == 2_001
    assert not any(name.endswith(".tmp") for name in disk.listdir(str(DIRECTORY)))
    assert disk.open_descriptors <= 1


def test_malformed_records_make_a_log_uncleanable(disk: FaultyDisk) -> None:
    odd = keyed([(b"a", b"1")])
    odd[61] = 0x7F  # the first record claims to be longer than its batch
    odd[17:21] = crc32c(odd[21:]).to_bytes(4)
    log = segmented(disk, odd, keyed([(b"a", b"2")]))
    with pytest.raises(InvalidRecord):
        clean(log)
    assert log.cleaner.uncleanable is not None
    assert not log.offline
    assert not clean(log)
    assert not log.busy


def test_damage_found_while_cleaning_takes_the_log_offline(disk: FaultyDisk) -> None:
    log = segmented(disk, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]), keyed([(b"a", b"3")]))
    end = log.log_end_offset
    disk.corrupt(f"{DIRECTORY}/{1:020}.log", 66, b"?")
    with pytest.raises(KafkaStorageError, match="damaged at byte 0"):
        clean(log)
    assert log.offline
    assert not log.busy
    log.close()
    log = open_log(disk)
    assert (log.log_end_offset, log.state.held, log.state.is_whole) == (1, end, False)


@pytest.mark.parametrize("in_another_process", [False, True])
def test_truncation_makes_what_follows_dirty(disk: FaultyDisk, in_another_process: bool) -> None:
    log = segmented(disk, *[keyed([(b"a", b"%d" % i)]) for i in range(4)])
    clean(log)
    assert log.cleaner.first_dirty_offset == 4
    log.truncate_to(2, NOW_MS)
    assert log.cleaner.first_dirty_offset == log.log_end_offset
    if in_another_process:
        append(log, keyed([(b"a", b"w")]))
        disk.kill()
        log = segmented_again(disk)
        assert log.cleaner.first_dirty_offset < log.log_end_offset
    append(log, keyed([(b"a", b"x")]))
    append(log, keyed([(b"a", b"y")]))
    append(log, keyed([(b"last", b"")]))
    clean(log)
    assert [value for _, _, value in contents(log)] == [b"y", b""]
    disk.crash(random.Random(0))
    assert open_log(disk).log_end_offset == log.log_end_offset


# -- producers and transactions --------------------------------------------------------------------


def test_the_last_batch_of_a_producer_stays_without_records(disk: FaultyDisk) -> None:
    log = segmented(
        disk,
        keyed([(b"a", b"1")], producer_id=7, sequence=0),
        keyed([(b"a", b"2")], producer_id=7, sequence=1),
        keyed([(b"a", b"3")], producer_id=8, sequence=0),
        keyed([(b"a", b"4")]),
    )
    merge_from_now_on(log)
    before = log.producers.describe()
    clean(log)
    assert [(h.base_offset, h.record_count, h.producer_id) for h in headers(log)] == [
        (1, 0, 7),
        (2, 0, 8),
        (3, 1, -1),
        (4, 1, -1),
    ]
    log.close()
    for name in disk.listdir(str(DIRECTORY)):
        if name.endswith(".producers"):
            disk.unlink(f"{DIRECTORY}/{name}")
    assert open_log(disk).producers.describe() == before


def transactional(key: bytes, value: bytes, producer_id: int, sequence: int = 0) -> bytearray:
    return keyed([(key, value)], producer_id=producer_id, sequence=sequence, transactional=True)


def test_aborted_records_go_and_overtake_nothing(disk: FaultyDisk) -> None:
    log = segmented(
        disk,
        keyed([(b"a", b"kept")]),
        transactional(b"a", b"aborted", 7),
        transactional(b"b", b"committed", 8),
        marker(7, commit=False),
        marker(8, commit=True),
    )
    merge_from_now_on(log)
    clean(log)
    assert contents(log) == [(0, b"a", b"kept"), (2, b"b", b"committed"), (5, b"last", b"")]
    assert [(h.base_offset, h.is_control, h.record_count) for h in headers(log)] == [
        (0, False, 1),
        (1, False, 0),
        (2, False, 1),
        (3, True, 1),
        (4, True, 1),
        (5, False, 1),
    ]
    assert log.reader.aborted_transactions(0, 6) == [AbortedTransaction(7, 1, 3, 2)]


def test_markers_go_after_their_transactions(disk: FaultyDisk) -> None:
    log = segmented(
        disk,
        transactional(b"a", b"1", 7),
        marker(7, commit=False),
        transactional(b"a", b"2", 8),
        marker(8, commit=True),
        transactional(b"x", b"", 7, 1),
        transactional(b"y", b"", 8, 1),
        marker(7, commit=True),
        marker(8, commit=True),
        keyed([(b"a", b"3")]),
    )
    merge_from_now_on(log)

    def again(now_ms: int) -> list[int]:
        log.reconfigure(type(log.state.config)(segment_bytes=10, min_cleanable_dirty_ratio=0))
        append(log, keyed([(b"last", b"")]))
        merge_from_now_on(log)
        assert clean(log, now_ms)
        return [h.base_offset for h in headers(log) if h.is_control]

    assert again(NOW_MS) == [1, 3, 6, 7]  # their batches went in this cleaning
    assert log.reader.aborted_transactions(0, 9) == [AbortedTransaction(7, 0, 1, 2)]
    assert again(NOW_MS) == [1, 3, 6, 7]  # from now on they wait
    assert again(NOW_MS + DAY_MS - 1) == [1, 3, 6, 7]
    assert again(NOW_MS + DAY_MS) == [6, 7]
    assert log.reader.aborted_transactions(0, 9) == []


def test_an_open_transaction_holds_the_cleaner_back(disk: FaultyDisk) -> None:
    log = segmented(
        disk,
        keyed([(b"a", b"1")]),
        keyed([(b"a", b"2")]),
        transactional(b"a", b"3", 7),
        keyed([(b"b", b"1")]),
        keyed([(b"b", b"2")]),
    )
    clean(log)
    assert log.cleaner.first_dirty_offset == 2
    assert [offset for offset, _, _ in contents(log)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("durable", [False, True])
def test_a_follower_keeps_a_last_batch_behind_a_gap(disk: FaultyDisk, *, durable: bool) -> None:
    """What its leader had cleaned is missing in its log, which may end right behind that."""
    before, last = keyed([(b"a", b"1")]), keyed([(b"b", b"1")])
    last[:8] = (5).to_bytes(8)
    log = Log.open(DIRECTORY, LogConfig(compact=True), disk, now_ms=NOW_MS)
    log.append_verbatim(bytes(before + last), NOW_MS)
    if durable:
        flush(log)
        checkpoint(log)
    disk.kill()
    log = Log.open(DIRECTORY, LogConfig(compact=True), disk, now_ms=NOW_MS)
    assert log.state.is_whole
    assert [offset for offset, _, _ in contents(log)] == [0, 5]
    assert log.log_end_offset == 6


# -- what a cleaning meets -------------------------------------------------------------------------


def test_records_beyond_the_key_map_wait_for_the_next_cleaning(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=10_000, min_cleanable_dirty_ratio=0)
    pairs: list[tuple[bytes, bytes | None]] = []
    for number in range(12):
        pairs += [(b"%d" % (number % 3), b"v%d" % number), (b"", None)]
        append(log, keyed(pairs[-2:]))
    log.reconfigure(type(log.state.config)(segment_bytes=10, min_cleanable_dirty_ratio=0))
    append(log, keyed([(b"last", b"")]))
    before = contents(log)
    assert clean(log, memory_bytes=800)
    end = log.cleaner.first_dirty_offset
    assert 2 < end < 20
    found = contents(log)
    latest = {key: offset for offset, key, _ in before if offset < end}
    assert found == [one for one in before if one[0] >= end or latest[one[1]] == one[0]]
    while log.cleaner.first_dirty_offset < 24:
        assert clean(log, memory_bytes=800)
        assert log.cleaner.first_dirty_offset > end
        end = log.cleaner.first_dirty_offset
    latest = {key: offset for offset, key, _ in before}
    assert contents(log) == [one for one in before if latest[one[1]] == one[0]]


def test_a_segment_without_times_whose_file_cannot_be_asked_takes_the_log_offline(
    disk: FaultyDisk,
) -> None:
    timeless = [keyed([(b"k", b"v")], timestamp=-1) for _ in range(2)]
    log = segmented(disk, *timeless, min_compaction_lag_ms=1)
    flush(log)
    checkpoint(log)
    disk.fail("modified_ms", errno.EIO)
    with pytest.raises(KafkaStorageError, match="cleaning"):
        log.cleaner.cleanable(NOW_MS, log.log_end_offset)
    assert log.offline
    assert log.cleaner.cleanable(NOW_MS, 3) is None


@pytest.mark.parametrize("fails", [False, True])
def test_a_cleaning_that_is_given_up_removes_what_it_made(disk: FaultyDisk, fails: bool) -> None:
    log = segmented(disk, *[keyed([(b"a", b"%d" % number)]) for number in range(3)])
    flush(log)
    checkpoint(log)
    before = contents(log)
    job = begin_clean(log)
    assert job is not None
    assert clean_step(log, job)
    job.work.step()
    assert any(name.endswith(".tmp") for name in disk.listdir(str(DIRECTORY)))
    if fails:
        disk.fail("unlink", errno.EIO)
    job.abandon()
    assert job.done
    if fails:
        with pytest.raises(KafkaStorageError, match="cleaning"):
            log.cleaner.end_clean(job, NOW_MS)
    else:
        assert not log.cleaner.end_clean(job, NOW_MS)
        assert not any(name.endswith(".tmp") for name in disk.listdir(str(DIRECTORY)))
        assert contents(log) == before
        assert clean(log)
    assert (log.busy, log.offline) == (False, fails)


def test_cleaned_data_may_exceed_the_write_buffer(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raylog.storage.segment_work._BUFFER_BYTES", 100)
    log = segmented(disk, *[keyed([(b"%d" % (number % 5), b"v")]) for number in range(9)])
    merge_from_now_on(log)
    assert clean(log)
    assert [offset for offset, _, _ in contents(log)] == [4, 5, 6, 7, 8, 9]
    log.close()
    log = open_log(disk)
    assert [offset for offset, _, _ in contents(log)] == [4, 5, 6, 7, 8, 9]


def test_only_a_marker_ends_a_transaction_during_cleaning() -> None:
    aborted = AbortedTransaction(1, 0, 3, 4)
    transactions = CleanedTransactions([aborted])

    def is_discarded(data: bytearray, offset: int, **changes: int) -> bool:
        header = read_header(data)._replace(base_offset=offset, **changes)
        return transactions.is_discarded(header, memoryview(data))

    data = transactional(b"k", b"v", 1)
    end = marker(1, commit=False)
    another = Record(0, NOW_MS, bytes([0, 0, 0, 2]), bytes(6), [])
    other = bytearray(encode_batch([another], producer_id=1, producer_epoch=0, is_control=True))
    assert is_discarded(data, 0)
    assert not is_discarded(other, 1)
    assert is_discarded(end, 2, record_count=0), "emptied when it was cleaned before"
    assert transactions.kept == []
    assert is_discarded(data, 2), "it is not over"
    assert not is_discarded(end, 3), "batches before it were there: the marker stays"
    assert transactions.kept == [aborted]
    assert is_discarded(end, 4), "nothing is left that it would mark"
    assert not is_discarded(data, 5)

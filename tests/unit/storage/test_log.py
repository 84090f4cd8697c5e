"""Appends, rolling and reads of a log on a disk that works."""

import errno

import pytest

from raylog.storage.index import decode_head
from raylog.storage.log import LogConfig, Slice
from raylog.storage.producers import ProducerSnapshot
from raylog.wire.compression import Codec
from raylog.wire.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange
from raylog.wire.records import encode_like, iter_batches, read_header
from tests.support.batches import raw_batch, raw_record
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import DIRECTORY, NOW_MS, append, batch, flush, looked_up, open_log

FIRST = "00000000000000000000.log"


def test_an_empty_log_has_no_files_and_no_descriptors(disk: FaultyDisk) -> None:
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset, log.size, log.segments) == (0, 0, 0, [])
    assert log.read(0, 1_000, 10) is None
    assert disk.listdir(str(DIRECTORY)) == []
    assert disk.open_descriptors == 0


def test_append_assigns_offsets_and_the_leader_epoch_in_place(disk: FaultyDisk) -> None:
    log = open_log(disk)
    data = batch(3)
    info = append(log, data, epoch=7)
    assert info == (0, 3, FIRST, 0, len(data))
    info = append(log, data, epoch=8)
    assert info == (3, 6, FIRST, len(data), len(data))
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 8)
    stored = disk.contents(f"{DIRECTORY}/{FIRST}")[: 2 * len(data)]
    assert [found.base_offset for found, _ in iter_batches(stored)] == [0, 3]
    assert log.epochs.end_offset_for(7, log.log_end_offset) == (7, 3)


def test_a_batch_is_one_write(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    disk.calls.clear()
    append(log, batch())
    assert disk.calls == ["pwritev"]


def test_the_file_is_extended_ahead_in_growing_steps_up_to_the_segment_size(
    disk: FaultyDisk,
) -> None:
    log = open_log(disk, segment_bytes=400_000)
    sizes = []
    while log.segment_count < 2:
        append(log, batch(size=10_000))
        sizes.append(len(disk.contents(f"{DIRECTORY}/{FIRST}")))
    assert sorted(set(sizes)) == [65_536, 131_072, 262_144, 400_000]


def test_a_batch_larger_than_a_segment_gets_a_segment_of_its_own(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=500)
    append(log, batch())
    info = append(log, batch(size=2_000))
    append(log, batch())
    assert log.segment_count == 3
    assert (info.base_offset, info.position) == (1, 0)


@pytest.mark.parametrize(
    ("first_ms", "second_ms", "segments"),
    [(0, 1_000, 1), (0, 1_001, 2), (5_000, 0, 1)],
)
def test_a_segment_is_rolled_by_the_age_of_its_first_batch(
    disk: FaultyDisk, first_ms: int, second_ms: int, segments: int
) -> None:
    log = open_log(disk, segment_ms=1_000)
    append(log, batch(timestamp=NOW_MS + first_ms))
    append(log, batch(timestamp=NOW_MS + second_ms))
    assert log.segment_count == segments


def test_a_segment_is_rolled_when_its_index_is_full(disk: FaultyDisk) -> None:
    log = open_log(disk, index_interval_bytes=1, max_index_size_bytes=16)
    for _ in range(5):
        append(log, batch())
    assert log.segments == [FIRST, "00000000000000000003.log"]


def test_upkeep_rolls_a_segment_that_nobody_writes_to(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_ms=1_000)
    assert not log.roll_if_due(NOW_MS + 5_000)
    append(log, batch(timestamp=5))
    assert not log.roll_if_due(NOW_MS + 1_000)
    assert log.roll_if_due(NOW_MS + 1_001)
    assert log.segment_count == 2


def test_read_gives_whole_batches_up_to_the_bytes_and_the_offset_asked(disk: FaultyDisk) -> None:
    log = open_log(disk, index_interval_bytes=1)
    size = append(log, batch(10)).length
    for _ in range(9):
        append(log, batch(10))
    assert log.read(0, 3 * size, 100) == Slice(FIRST, 0, 3 * size, 0, 30)
    assert log.read(0, 4 * size - 1, 100) == Slice(FIRST, 0, 3 * size, 0, 30)
    assert log.read(35, 2 * size, 100) == Slice(FIRST, 3 * size, 2 * size, 35, 50)
    assert log.read(35, 10 * size, 50) == Slice(FIRST, 3 * size, 2 * size, 35, 50)
    assert log.read(35, 10 * size, 49) == Slice(FIRST, 3 * size, size, 35, 49)
    assert log.read(35, 10 * size, 39) is None
    assert log.read(95, 10 * size, 1_000) == Slice(FIRST, 9 * size, size, 95, 100)
    assert log.read(100, 10 * size, 1_000) is None
    assert log.read(50, 10 * size, 40) is None


def test_a_first_batch_that_is_too_large_comes_whole_or_not_at_all(disk: FaultyDisk) -> None:
    log = open_log(disk)
    size = append(log, batch(size=5_000)).length
    append(log, batch())
    assert log.read(0, 10, 2) == Slice(FIRST, 0, size, 0, 1)
    assert log.read(0, 10, 2, at_least_one=False) is None


@pytest.mark.parametrize("interval", [1, 300, 100_000])
def test_reading_on_visits_every_batch_once(disk: FaultyDisk, interval: int) -> None:
    log = open_log(disk, segment_bytes=2_000, index_interval_bytes=interval)
    written = []
    for number in range(60):
        data = batch(1 + number % 4, size=10 * number % 90)
        append(log, data)
        written.append(bytes(data))
    offset, read = 0, b""
    while (found := log.read(offset, 700, log.log_end_offset)) is not None:
        read += log.reader.load(found)
        assert found.next_offset > offset
        offset = found.next_offset
    assert read == b"".join(written)
    assert log.segment_count > 3


def test_a_reader_that_goes_on_costs_no_search(disk: FaultyDisk) -> None:
    log = open_log(disk)
    for _ in range(200):
        append(log, batch(size=1_000))
    found = log.read(0, 50_000, 200)
    disk.calls.clear()
    while found is not None:
        found = log.read(found.next_offset, 50_000, 200)
    assert disk.calls == []


def test_offsets_outside_of_the_log_are_out_of_range(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch(5))
    log.delete_records_to(2)
    for offset in (1, 6):
        with pytest.raises(OffsetOutOfRange, match=str(offset)):
            log.read(offset, 100, 5)
    assert log.read(5, 100, 5) is None


def test_a_follower_takes_batches_as_they_are(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=500)
    batches = [batch(2, offset=offset, leader_epoch=offset) for offset in (0, 2, 9)]
    assert log.append_verbatim(b"".join(batches), NOW_MS) == 11
    assert log.epochs.entries() == [(0, 0), (2, 2), (9, 9)]
    found = log.read(5, 10_000, 11)
    assert found is not None
    assert log.reader.load(found) == batches[2]
    with pytest.raises(OffsetOutOfRange):
        log.append_verbatim(batches[2], NOW_MS)


def test_a_follower_refuses_what_is_damaged_and_keeps_what_came_before(disk: FaultyDisk) -> None:
    log = open_log(disk)
    good, bad = batch(2), batch(2, offset=2)
    bad[-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_verbatim(good + bad, NOW_MS)
    assert log.log_end_offset == 2


def test_a_follower_writes_batches_for_one_segment_at_once(disk: FaultyDisk) -> None:
    log = open_log(disk, index_interval_bytes=150)
    log.append_verbatim(batch(2), NOW_MS)
    batches = [batch(2, offset=offset, producer_id=1, sequence=offset - 2) for offset in (2, 4, 6)]
    disk.fail("pwritev", errno.EIO, skip=1)
    assert log.append_verbatim(b"".join(batches), NOW_MS) == 8
    assert len(log.producers) == 1
    found = log.read(4, 10_000, 8)
    assert found is not None
    assert log.reader.load(found) == batches[1] + batches[2]


def test_a_followers_segments_are_the_leaders(disk: FaultyDisk) -> None:
    leader = open_log(disk, segment_bytes=1_000)
    follower = open_log(FaultyDisk(), segment_bytes=1_000)
    data = b""
    for _ in range(20):
        one = batch(2)
        append(leader, one)
        data += one
    for begin in range(0, 20, 3):
        size = len(data) // 20
        follower.append_verbatim(data[begin * size : (begin + 3) * size], NOW_MS)
    assert follower.segments == leader.segments
    assert follower.segment_count > 2


def test_an_empty_log_begins_within_the_leaders_first_batch(disk: FaultyDisk) -> None:
    log = open_log(disk)
    log.truncate_fully(5)
    assert log.append_verbatim(batch(4, offset=3) + batch(offset=7), NOW_MS) == 8
    assert (log.log_start_offset, log.segments) == (5, ["00000000000000000003-1.log"])
    found = log.read(5, 10_000, 8)
    assert found is not None
    assert log.reader.load(found) == batch(4, offset=3) + batch(offset=7)
    disk.kill()
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset) == (5, 8)
    with pytest.raises(OffsetOutOfRange):
        log.append_verbatim(batch(4, offset=6), NOW_MS)


def test_settings_can_change(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    log.reconfigure(LogConfig(segment_bytes=100))
    append(log, batch())
    assert log.segment_count == 2


def test_descriptors_stay_few_without_flushes(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=300)
    for _ in range(20):
        append(log, batch())
        assert disk.open_descriptors <= 2
    flush(log)
    assert disk.open_descriptors == 1
    assert log.state.recovery_point == 20


def test_lookups_by_time(disk: FaultyDisk) -> None:
    log = open_log(disk, segment_bytes=800, index_interval_bytes=1)
    assert looked_up(log, 0) is None
    assert looked_up(log, None) is None
    for ms in (10, 30, 20, 50, 40, 50):
        append(log, batch(2, timestamp=NOW_MS + ms), epoch=3)
    assert looked_up(log, 0) == (0, NOW_MS + 10, 3)
    assert looked_up(log, NOW_MS + 11) == (1, NOW_MS + 11, 3)
    assert looked_up(log, NOW_MS + 25) == (2, NOW_MS + 30, 3)
    assert looked_up(log, NOW_MS + 51) == (7, NOW_MS + 51, 3)
    assert looked_up(log, NOW_MS + 52) is None
    assert looked_up(log, None) == (7, NOW_MS + 51, 3)
    log.delete_records_to(8)
    assert looked_up(log, 0) == (8, NOW_MS + 40, 3)
    assert looked_up(log, None) == (11, NOW_MS + 51, 3)
    log.delete_records_to(12)
    assert looked_up(log, None) is None


def test_the_largest_time_is_a_records_not_an_empty_batchs(disk: FaultyDisk) -> None:
    log = open_log(disk, index_interval_bytes=1)
    append(log, batch(2))
    append(log, batch())
    emptied = encode_like(read_header(batch(timestamp=NOW_MS + 90)), [])
    append(log, bytearray(emptied))
    assert looked_up(log, None) == (1, NOW_MS + 1, 0)


@pytest.mark.parametrize(
    ("unreadable", "readable"),
    [
        (raw_batch(raw_record(), attributes=Codec.ZSTD, body=b"no frame at all"), 0),
        (raw_batch(raw_record(), count=9, last_offset_delta=8), 1),
        (raw_batch(raw_record(), attributes=7), 0),
    ],
    ids=["garbage", "count", "codec"],
)
def test_lookups_pass_over_what_older_builds_let_in(
    disk: FaultyDisk, unreadable: bytes, readable: int
) -> None:
    """It is whole, so that the log is not damaged, and nobody can read it."""
    log = open_log(disk)
    append(log, bytearray(unreadable))
    append(log, batch(timestamp=NOW_MS + 5))
    end = log.log_end_offset
    first = (0, NOW_MS, 0) if readable else (end - 1, NOW_MS + 5, 0)
    assert looked_up(log, 0) == first
    assert looked_up(log, NOW_MS + 1) == (end - 1, NOW_MS + 5, 0)
    assert looked_up(log, None) == (end - 1, NOW_MS + 5, 0)
    assert not log.offline


def test_lookups_notice_what_the_disk_has_changed(disk: FaultyDisk) -> None:
    log = open_log(disk)
    append(log, batch())
    disk.corrupt(f"{DIRECTORY}/{log.segments[0]}", 70, b"\xff")
    with pytest.raises(KafkaStorageError):
        looked_up(log, None)
    assert log.offline


def test_a_time_before_the_times_is_nobodys(disk: FaultyDisk) -> None:
    """As Apache Kafka answers."""
    log = open_log(disk)
    append(log, bytearray(raw_batch(raw_record(), base_timestamp=-1000, max_timestamp=-1)))
    assert looked_up(log, None) is None
    append(log, bytearray(raw_batch(raw_record(), base_timestamp=-1, max_timestamp=-1)))
    assert looked_up(log, None) == (1, -1, 0)


def test_producers_are_encoded_by_the_checkpoint_and_not_by_the_append_that_rolls(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = ProducerSnapshot.encode

    def noted(snapshot: ProducerSnapshot) -> bytes:
        encoded.append(1)
        return encode(snapshot)

    monkeypatch.setattr(ProducerSnapshot, "encode", noted)
    log = open_log(disk, segment_bytes=300)
    for sequence in range(4):
        append(log, batch(producer_id=1, sequence=sequence))
    assert log.segment_count == 4
    job = log.checkpoints.begin(NOW_MS, 4)
    assert job is not None
    assert encoded == []
    job.run()
    log.checkpoints.end(job)
    assert len(encoded) == len(job.snapshots) > 0


@pytest.mark.parametrize(("count", "segments"), [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("leads", [True, False])
def test_a_segment_is_rolled_before_an_offset_is_too_far_from_its_first(
    disk: FaultyDisk, count: int, segments: int, leads: bool
) -> None:
    """The end of a segment is at most 2**31 - 1 behind its first offset."""
    log = open_log(disk)
    end = 2**31 - 3
    log.append_verbatim(b"".join([batch(offset=0), batch(offset=end - 1)]), NOW_MS)
    assert (log.log_end_offset, log.segment_count) == (end, 1)
    if leads:
        append(log, batch(count))
    else:
        log.append_verbatim(batch(count, offset=end), NOW_MS)
    assert (log.log_end_offset, log.segment_count) == (end + count, segments)


def test_times_are_looked_up_by_an_index_that_was_made_again(disk: FaultyDisk) -> None:
    log = open_log(disk)
    for hour in (1, 5, 3, 2, 7, 6, 8):
        append(log, batch(size=5_000, timestamp=NOW_MS + 3_600_000 * hour))
    index = f"{DIRECTORY}/{log.segments[0].replace('.log', '.index')}"
    log.close()
    disk.corrupt(index, len(disk.contents(index)) - 1, b"\x77")
    found = []
    for hour in range(1, 10):
        log = open_log(disk)
        one = looked_up(log, NOW_MS + 3_600_000 * hour)
        found.append(None if one is None else one.offset)
    assert found == [0, 1, 1, 1, 1, 4, 4, 6, None]


def test_segments_are_named_by_base_offset_and_only_appended_to() -> None:
    disk = FaultyDisk()
    log = open_log(disk, segment_bytes=5_000)
    earlier: dict[str, bytes] = {}
    for _ in range(40):
        append(log, batch(5))
        for name in log.segments:
            written = disk.contents(f"{DIRECTORY}/{name}").rstrip(b"\0")
            assert written.startswith(earlier.get(name, b""))
            earlier[name] = written
    assert len(earlier) > 3
    for name, data in earlier.items():
        first, _ = next(iter_batches(data))
        assert name == f"{first.base_offset:020}.log"


def test_the_index_from_offset_to_position_is_sparse() -> None:
    disk = FaultyDisk()
    log = open_log(disk, index_interval_bytes=4_096)
    for _ in range(200):
        append(log, batch(1, size=500))
    found = log.read(150, 1, 200)
    assert isinstance(found, Slice)
    assert found.next_offset == 151
    log.close(200)
    head = decode_head(disk.contents(f"{DIRECTORY}/{log.segments[0][:20]}.index"))
    assert head is not None
    assert 0 < head.entries <= log.size // 4_096 + 1

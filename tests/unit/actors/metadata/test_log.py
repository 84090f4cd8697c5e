"""The metadata log on disk: what survives which failure."""

import errno
import random
from pathlib import Path

import msgpack
import pytest

from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.log_copy import Append, Promise, Truncate
from raylog.actors.metadata.records import (
    VERSION,
    ClusterNamed,
    MetadataCorrupt,
    Voters,
    VotersChanged,
    encode_record,
)
from raylog.wire.errors import KafkaStorageError
from tests.worlds.storage.disk import FaultyDisk

DIRECTORY = Path("/data/metadata")


def entry(offset: int, epoch: int, *records: bytes) -> LogEntry:
    return LogEntry(offset, epoch, records or (b"r%d" % offset,))


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def reopened(disk: FaultyDisk) -> MetadataLog:
    disk.kill()
    return MetadataLog(DIRECTORY, disk)


def test_a_new_log_is_empty(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    assert (log.copy.promised_epoch, log.copy.last_epoch, log.copy.next_offset) == (0, 0, 0)
    assert log.copy.read(0, 1000) == []


def test_promises_and_entries_survive_the_process(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(3)])
    entries = [entry(0, 3, b"a", b"b"), entry(2, 3, b"c")]
    log.write([Append(tuple(entries))])
    log.write([Promise(5)])
    again = reopened(disk)
    assert (again.copy.promised_epoch, again.copy.last_epoch, again.copy.next_offset) == (5, 3, 3)
    assert again.copy.entries == entries


@pytest.mark.parametrize("seed", range(12))
def test_synced_metadata_log_survives_a_machine_crash(disk: FaultyDisk, seed: int) -> None:
    """With the directory's own name, which lasts or not by chance as long as nobody syncs it."""
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(3)])
    log.write([Append((entry(0, 3),))])
    log.sync()
    disk.crash(random.Random(seed))
    again = MetadataLog(DIRECTORY, disk)
    assert (again.copy.promised_epoch, again.copy.entries) == (3, [entry(0, 3)])


def test_a_torn_tail_is_cut_off(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Append((entry(0, 1),))])
    whole = log.size_bytes
    log.write([Append((entry(1, 1),))])
    for size in range(whole, log.size_bytes):
        fd = disk.open(str(DIRECTORY / "log"))
        disk.ftruncate(fd, size)
        again = reopened(disk)
        assert again.copy.entries == [entry(0, 1)]
        assert again.size_bytes == whole
        again.write([Append((entry(1, 1),))])
        assert reopened(disk).copy.entries == [entry(0, 1), entry(1, 1)]


def test_a_synced_frame_that_broke_is_damage_and_not_a_torn_tail(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Append((entry(0, 1),))])
    log.sync()
    log.write([Append((entry(1, 1),))])
    fd = disk.open(str(DIRECTORY / "log"))
    disk.pwritev(fd, [b"\xff"], 20)
    with pytest.raises(MetadataCorrupt, match="damaged at byte 0"):
        reopened(disk)


def test_a_hole_that_no_sync_had_closed_is_a_torn_tail(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Append((entry(0, 1),))])
    log.sync()
    whole = log.size_bytes
    log.write(
        [
            Append(
                (
                    entry(1, 1),
                    entry(2, 1),
                )
            )
        ]
    )
    fd = disk.open(str(DIRECTORY / "log"))
    disk.pwritev(fd, [bytes(8)], whole)  # the disk wrote the second frame only
    assert reopened(disk).copy.entries == [entry(0, 1)]


def test_a_gap_is_damage(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Append((entry(0, 1),))])
    first = log.size_bytes
    log.write(
        [
            Append(
                (
                    entry(1, 1),
                    entry(2, 1),
                )
            )
        ]
    )
    data = disk.pread(disk.open(str(DIRECTORY / "log")), 10_000, 0)
    second = first + (len(data) - first) // 2
    fd = disk.open(str(DIRECTORY / "log"))
    disk.ftruncate(fd, 0)
    disk.pwritev(fd, [data[:first] + data[second:]], 0)
    with pytest.raises(MetadataCorrupt, match="goes on at 2 after 1"):
        reopened(disk)


def test_cut_entries_stay_cut_and_promises_behind_them_stay(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write(
        [
            Append(
                (
                    entry(0, 1),
                    entry(1, 1),
                    entry(2, 1),
                )
            )
        ]
    )
    log.write([Promise(7)])
    log.write([Truncate(1)])
    assert log.copy.next_offset == 1
    log.write([Append((entry(1, 7),))])
    again = reopened(disk)
    assert again.copy.entries == [entry(0, 1), entry(1, 7)]
    assert again.copy.promised_epoch == 7


def test_the_epoch_before_an_offset_is_known_where_entries_end(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write(
        [
            Append(
                (
                    entry(0, 1, b"a", b"b"),
                    entry(2, 4),
                )
            )
        ]
    )
    assert [log.copy.epoch_before(offset) for offset in range(5)] == [0, None, 1, 4, None]


def test_reading_stops_at_the_limit_but_gives_at_least_one_entry(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    entries = [entry(at, 1, b"x" * 10) for at in range(4)]
    log.write([Append(tuple(entries))])
    assert log.copy.read(1, 1) == entries[1:2]
    assert log.copy.read(1, 20) == entries[1:3]
    assert log.copy.read(4, 20) == []


def test_a_snapshot_stands_for_the_entries_below_it(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(2)])
    log.write([Append(tuple(entry(at, 2) for at in range(4)))])
    snapshot = LogSnapshot(3, 2, (b"all",))
    before = log.size_bytes
    log.finish_install(snapshot, log.prepare_install(snapshot))
    for each in (log, reopened(disk)):
        copy = each.copy
        assert copy.snapshot == snapshot
        assert copy.entries == [entry(3, 2)]
        assert (copy.promised_epoch, copy.next_offset, copy.epoch_before(3)) == (2, 4, 2)
        assert each.size_bytes < before
    log = reopened(disk)
    log.write([Append((entry(4, 2),))])
    assert reopened(disk).copy.next_offset == 5


def test_a_snapshot_past_the_end_replaces_everything(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Append((entry(0, 1),))])
    snapshot = LogSnapshot(9, 4, (b"all",))
    log.finish_install(snapshot, log.prepare_install(snapshot))
    assert (log.copy.next_offset, log.copy.last_epoch, log.copy.entries) == (9, 4, [])


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_during_a_snapshot_leaves_the_old_state_or_the_new(
    disk: FaultyDisk, seed: int
) -> None:
    rng = random.Random(seed)
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(2)])
    log.write([Append(tuple(entry(at, 2) for at in range(4)))])
    log.sync()
    calls = ("pwritev", "fdatasync", "rename", "fsync_dir")
    disk.fail(rng.choice(calls), errno.EIO, skip=rng.randint(0, 2))
    snapshot = LogSnapshot(3, 2, (b"all",))
    try:
        log.prepare_install(snapshot)
    except OSError:
        disk.heal()
    disk.crash(rng)
    again = MetadataLog(DIRECTORY, disk)
    assert (again.copy.promised_epoch, again.copy.next_offset) == (2, 4)
    kept = [entry(at, 2) for at in range(4)]
    assert again.copy.entries == (kept[3:] if again.copy.snapshot == snapshot else kept)


def test_an_incomplete_snapshot_is_damage(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    snapshot = LogSnapshot(2, 1, (b"a", b"b"))
    log.finish_install(snapshot, log.prepare_install(snapshot))
    fd = disk.open(str(DIRECTORY / "snapshot"))
    disk.ftruncate(fd, disk.size(fd) - 1)
    with pytest.raises(MetadataCorrupt, match="holds 2 of 2"):
        reopened(disk)
    disk.ftruncate(disk.open(str(DIRECTORY / "snapshot")), 0)
    with pytest.raises(MetadataCorrupt, match="no header"):
        reopened(disk)


def test_a_full_disk_is_an_error_and_leaves_the_log_as_it_was(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Append((entry(0, 1),))])
    disk.capacity = 512
    with pytest.raises(KafkaStorageError, match="full"):
        log.write([Append((entry(1, 1, b"x" * 2000),))])
    disk.heal()
    disk.fail("pwritev", errno.EIO)
    with pytest.raises(KafkaStorageError, match="cannot be written"):
        log.write(
            [
                Append(
                    (
                        entry(1, 1, b"x" * 2000),
                        entry(2, 1),
                    )
                )
            ]
        )
    assert log.copy.next_offset == 1
    log.write([Append((entry(1, 1),))])
    assert reopened(disk).copy.entries == [entry(0, 1), entry(1, 1)]


def test_a_snapshot_for_which_there_is_no_room_leaves_the_log_as_it_was(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write(
        [
            Append(
                (
                    entry(0, 1),
                    entry(1, 1),
                )
            )
        ]
    )
    snapshot = LogSnapshot(2, 1, (b"x" * 10_000,))
    open_before = disk.open_descriptors
    disk.capacity = disk.used_bytes + 2 * disk.block
    with pytest.raises(OSError, match="is full"):
        log.prepare_install(snapshot)
    assert disk.open_descriptors == open_before, "the file that was begun is closed"
    disk.heal()
    assert reopened(disk).copy.entries == [entry(0, 1), entry(1, 1)]


def test_a_log_that_is_shorter_than_its_size_said_is_read_to_its_end(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has cut it since."""
    MetadataLog(DIRECTORY, disk).write([Append((entry(0, 1),))])
    size = disk.size
    monkeypatch.setattr(disk, "size", lambda fd: size(fd) + 1)
    assert reopened(disk).copy.entries == [entry(0, 1)]


def test_entries_that_a_snapshot_contradicts_go_with_it(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(5, "c")])
    log.write([Append(tuple(entry(at, 2) for at in range(6)))])
    snapshot = LogSnapshot(3, 4, (b"all",))
    log.finish_install(snapshot, log.prepare_install(snapshot))
    for one in (log.copy, reopened(disk).copy):
        assert (one.entries, one.next_offset, one.last_epoch) == ([], 3, 4)
        assert (one.promised_epoch, one.promised_controller) == (5, "c")


def test_a_crash_between_snapshot_and_log_leaves_no_entries_that_it_contradicts(
    disk: FaultyDisk,
) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Append(tuple(entry(at, 2) for at in range(6)))])
    fd = disk.open(str(DIRECTORY / "log"))
    before = disk.pread(fd, log.size_bytes, 0)
    snapshot = LogSnapshot(3, 4, (b"all",))
    log.finish_install(snapshot, log.prepare_install(snapshot))
    fd = disk.open(str(DIRECTORY / "log"))
    disk.ftruncate(fd, 0)
    disk.pwritev(fd, [before], 0)
    again = reopened(disk)
    assert (again.copy.entries, again.copy.next_offset, again.copy.last_epoch) == ([], 3, 4)
    again.write([Append((entry(3, 4),))])
    assert reopened(disk).copy.entries == [entry(3, 4)]


def test_promises_of_older_builds_name_nobody(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log._write([msgpack.packb([0, 3])])
    again = reopened(disk)
    assert (again.copy.promised_epoch, again.copy.promised_controller) == (3, "")


def naming(*broker_ids: int) -> tuple[Voters, bytes]:
    """A voter set and its record."""
    voters = tuple((one, f"d{one}") for one in broker_ids)
    return voters, encode_record(VotersChanged(voters))


def test_the_voter_set_named_last_counts_until_it_is_cut(disk: FaultyDisk) -> None:
    (one, first), (two, second), (three, third) = naming(0), naming(0, 1), naming(0, 1, 2)
    log = reopened(disk)
    assert log.copy.voters == ()
    log.write(
        [
            Append(
                (
                    entry(0, 1, b"x", first),
                    entry(2, 1, second, b"y"),
                )
            )
        ]
    )
    assert log.copy.voters == two
    log.write(
        [
            Append(
                (
                    entry(4, 1, b"z"),
                    entry(5, 1, third),
                )
            )
        ]
    )
    assert log.copy.voters == three
    log = reopened(disk)
    assert log.copy.voters == three
    log.write([Truncate(5)])
    assert log.copy.voters == two
    log = reopened(disk)
    assert log.copy.voters == two
    log.write([Truncate(2)])
    assert log.copy.voters == one
    log = reopened(disk)
    assert log.copy.voters == one


def test_a_snapshot_names_voters_too(disk: FaultyDisk) -> None:
    (one, first), (two, second) = naming(0), naming(0, 1)
    log = reopened(disk)
    log.write(
        [
            Append(
                (
                    entry(0, 1, b"x"),
                    entry(1, 1, second),
                )
            )
        ]
    )
    snapshot = LogSnapshot(1, 1, (first,))
    log.finish_install(snapshot, log.prepare_install(snapshot))
    assert log.copy.voters == two
    log = reopened(disk)
    assert log.copy.voters == two
    log.write([Truncate(1)])
    assert log.copy.voters == one
    log = reopened(disk)
    assert log.copy.voters == one


def newer(offset: int) -> LogEntry:
    """An entry of a build that has added a field to a record."""
    record = msgpack.packb([2, VERSION + 1, "cluster", "metadata", "field"])
    return entry(offset, 4, encode_record(ClusterNamed("c")), record)


def test_entries_of_a_newer_build_are_refused_by_name(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(4)])
    log.write(
        [
            Append(
                (
                    entry(0, 4),
                    newer(1),
                )
            )
        ]
    )
    said = f"{DIRECTORY}/log has records of version {VERSION + 1}, this build knows {VERSION}"
    with pytest.raises(KafkaStorageError, match=said):
        reopened(disk)


def test_a_snapshot_of_a_newer_build_is_refused_by_name(disk: FaultyDisk) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(4)])
    snapshot = LogSnapshot(7, 4, newer(0).records)
    log.finish_install(snapshot, log.prepare_install(snapshot))
    said = f"{DIRECTORY}/snapshot has records of version {VERSION + 1}, this build knows"
    with pytest.raises(KafkaStorageError, match=said):
        reopened(disk)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("skip", [0, 1])
def test_after_a_sync_of_names_that_failed_a_later_one_is_not_believed(
    disk: FaultyDisk, skip: int, seed: int
) -> None:
    """Of the names in the directory, or of its own."""
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(1)])
    disk.fail("fsync_dir", errno.EIO, skip=skip)
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    again = reopened(disk)
    again.sync()
    disk.crash(random.Random(seed))
    assert MetadataLog(DIRECTORY, disk).copy.promised_epoch == 1


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("skip", [0, 1])
def test_a_snapshot_whose_name_may_be_lost_is_put_in_place_again(
    disk: FaultyDisk, skip: int, seed: int
) -> None:
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(1)])
    log.write(
        [
            Append(
                (
                    entry(0, 1),
                    entry(1, 1),
                )
            )
        ]
    )
    log.sync()
    disk.fail("fsync_dir", errno.EIO, skip=skip)
    with pytest.raises(OSError, match="Input/output"):
        log.prepare_install(LogSnapshot(1, 1, (b"r0",)))
    again = reopened(disk)
    assert again.copy.next_offset == 2
    again.write([Append((entry(2, 1),))])
    again.sync()
    disk.crash(random.Random(seed))
    assert MetadataLog(DIRECTORY, disk).copy.next_offset == 3


def test_after_a_failed_sync_the_log_is_written_anew() -> None:
    disk = FaultyDisk()
    log = MetadataLog(DIRECTORY, disk)
    log.write([Promise(1)])
    log.sync()
    log.write([Append((entry(0, 1),))])
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    again = MetadataLog(DIRECTORY, disk)
    assert again.copy.next_offset == 1
    again.sync()
    disk.crash(random.Random(1))
    found = MetadataLog(DIRECTORY, disk)
    assert (found.copy.next_offset, found.copy.promised_epoch) == (1, 1)
    assert "unflushed" not in disk.listdir(str(DIRECTORY))

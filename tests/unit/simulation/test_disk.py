"""The simulated disk: durable data survives a power loss, the rest may or may not."""

from __future__ import annotations

import errno
from random import Random

import pytest

from raylog.simulation.disk import SimDisk
from raylog.simulation.loop import Process
from raylog.storage.checkpoint import read_file, write_file
from raylog.storage.disk import Volume


def disk(seed: int = 0) -> SimDisk:
    made = SimDisk(Random(seed))
    made.mkdir("/data/topics/t-0")
    for path in ("/data", "/data/topics"):
        made.fsync_dir(path)
    return made


def put(on: SimDisk, path: str, data: bytes, *, sync: bool) -> None:
    fd = on.open(path, create=True)
    assert on.pwritev(fd, [data], 0) == len(data)
    if sync:
        on.fdatasync(fd)
        on.fsync_dir(path.rpartition("/")[0])
    on.close(fd)


def test_simulated_disk_implements_volume() -> None:
    volume: Volume = disk()
    assert volume.listdir("/data") == ["topics"]
    assert volume.listdir("/data/topics/t-0") == []


def test_files_are_written_read_and_cut() -> None:
    one = disk()
    fd = one.open("/data/a", create=True)
    one.pwritev(fd, [b"abc", b"def"], 0)
    one.ftruncate(fd, 8)
    assert (one.size(fd), one.pread(fd, 100, 1)) == (8, b"bcdef\0\0")
    room = bytearray(2)
    assert one.preadv(fd, [room], 2) == 2
    assert room == b"cd"
    one.ftruncate(fd, 1)
    assert one.contents("/data/a") == b"a"
    again = one.duplicate(fd)
    one.close(fd)
    assert one.pread(again, 1, 0) == b"a"


def test_names_are_replaced_and_removed() -> None:
    one = disk()
    write_file(one, "/data/state", b"1", durable=True)
    write_file(one, "/data/state", b"2", durable=True)
    assert read_file(one, "/data/state") == b"2"
    assert one.listdir("/data") == ["topics", "state"]
    one.unlink("/data/state")
    assert read_file(one, "/data/state") is None
    with pytest.raises(FileNotFoundError):
        one.unlink("/data/state")
    one.remove_tree("/data/topics")
    assert one.listdir("/data") == []
    with pytest.raises(FileNotFoundError):
        one.listdir("/data/topics/t-0")


def test_a_directory_is_moved_with_all_in_it() -> None:
    one = disk()
    put(one, "/data/topics/t-0/a", b"abc", sync=True)
    with pytest.raises(FileNotFoundError):
        one.move_tree("/data/topics/t-1", "/data/topics/t-2")
    one.mkdir("/data/topics/t-1")
    with pytest.raises(FileExistsError):
        one.move_tree("/data/topics/t-0", "/data/topics/t-1")
    one.move_tree("/data/topics/t-0", "/data/topics/kept")
    assert sorted(one.listdir("/data/topics")) == ["kept", "t-1"]
    assert one.contents("/data/topics/kept/a") == b"abc"
    assert (one.used("/data/topics"), one.used("/data/topics/t-1")) == (3, 0)
    one.fsync_dir("/data/topics")
    one.lose_power()
    assert one.contents("/data/topics/kept/a") == b"abc"


@pytest.mark.parametrize("seed", range(20))
def test_synced_data_survives_a_power_loss(seed: int) -> None:
    one = disk(seed)
    put(one, "/data/kept", b"kept", sync=True)
    boot_id = one.boot_id()
    one.lose_power()
    assert one.contents("/data/kept") == b"kept"
    assert one.boot_id() != boot_id


def test_unsynced_data_may_be_lost_torn_or_kept() -> None:
    found = set()
    for seed in range(200):
        one = disk(seed)
        put(one, "/data/file", b"old.", sync=True)
        put(one, "/data/file", b"new!", sync=False)
        put(one, "/data/fresh", b"", sync=False)
        one.lose_power()
        found.add((one.contents("/data/file"), "fresh" in one.listdir("/data")))
    contents = {data for data, _ in found}
    assert {b"old.", b"new!"} < contents
    assert any(data[:1] == b"n" and data[-1:] == b"." for data in contents), "torn"
    assert {fresh for _, fresh in found} == {True, False}


def test_a_killed_process_lets_its_descriptors_and_locks_go_and_loses_nothing() -> None:
    one = disk()
    process = Process("p")

    def work() -> None:
        one.lock("/data/.lock")
        put(one, "/data/file", b"x", sync=False)

    process.context.run(work)
    with pytest.raises(BlockingIOError):
        one.lock("/data/.lock")
    one.release(process)
    one.lock("/data/.lock")
    assert one.contents("/data/file") == b"x"


def test_a_full_disk_takes_a_part_and_then_nothing_more() -> None:
    one = disk(3)
    fd = one.open("/data/file", create=True)
    one.pwritev(fd, [b"12345678"], 0)
    one.full = True
    assert one.pwritev(fd, [b"x"], 0) == 1, "what has room stays writable"
    errors = set()
    for _ in range(20):
        try:
            assert one.pwritev(fd, [b"12345678"], one.size(fd)) <= 4
        except OSError as full:
            errors.add(full.errno)
    assert errors == {errno.ENOSPC}
    with pytest.raises(OSError, match="No space"):
        one.open("/data/more", create=True)
    one.heal()
    one.open("/data/more", create=True)


def test_planned_disk_failures_are_raised() -> None:
    one = disk()
    put(one, "/data/topics/t-0/log", b"x", sync=True)
    one.fail_next("fdatasync", "/topics/", 1)
    fd = one.open("/data/topics/t-0/log")
    with pytest.raises(OSError, match="Input/output"):
        one.fdatasync(fd)
    assert one.failed == {"/data/topics/t-0"}


@pytest.mark.parametrize("seed", range(20))
def test_sync_after_a_failed_one_does_not_cover_earlier_writes(
    seed: int,
) -> None:
    one = disk(seed)
    put(one, "/data/log", b"old.", sync=True)
    fd = one.open("/data/log")
    one.pwritev(fd, [b"lost"], 4)
    one.fail_next("fdatasync", "/data/", 1)
    with pytest.raises(OSError, match="Input/output"):
        one.fdatasync(fd)
    one.pwritev(fd, [b"new!"], 8)
    one.fdatasync(fd)
    assert one.contents("/data/log") == b"old.lostnew!", "memory has it"
    one.close(fd)
    assert one.contents("/data/log") in (b"old.lostnew!", b"old.\0\0\0\0new!"), "or not any more"
    one.lose_power()
    assert one.contents("/data/log") == b"old.\0\0\0\0new!"


def test_a_directory_is_durable_by_a_sync_of_the_one_that_it_is_in() -> None:
    found = set()
    for seed in range(50):
        one = disk(seed)
        one.mkdir("/data/topics/t-1")
        put(one, "/data/topics/t-1/log", b"synced", sync=True)
        one.lose_power()
        found.add("t-1" in one.listdir("/data/topics"))
        one = disk(seed)
        one.mkdir("/data/topics/t-1")
        put(one, "/data/topics/t-1/log", b"synced", sync=True)
        one.fsync_dir("/data/topics")
        one.lose_power()
        assert one.contents("/data/topics/t-1/log") == b"synced"
    assert found == {True, False}


def test_a_directory_that_was_removed_may_come_back_in_part() -> None:
    found = set()
    for seed in range(200):
        one = disk(seed)
        for name in "abc":
            put(one, f"/data/topics/t-0/{name}", b"x", sync=True)
        one.remove_tree("/data/topics/t-0")
        one.lose_power()
        there = "t-0" in one.listdir("/data/topics")
        found.add("".join(one.listdir("/data/topics/t-0")) if there else None)
    assert found >= {None, "abc", "bc", "c", ""}


def test_a_directory_keeps_what_is_in_it_under_another_name() -> None:
    one = disk()
    put(one, "/data/topics/t-0/log", b"x", sync=True)
    one.rename("/data/topics/t-0", "/data/topics/t-0-stray")
    assert one.listdir("/data/topics") == ["t-0-stray"]
    assert one.contents("/data/topics/t-0-stray/log") == b"x"
    with pytest.raises(FileNotFoundError):
        one.open("/data/topics/t-0/log")
    one.fsync_dir("/data/topics")
    one.lose_power()
    assert one.contents("/data/topics/t-0-stray/log") == b"x"


def test_a_directory_is_lost_and_an_older_copy_put_in_its_place() -> None:
    one = disk()
    put(one, "/data/topics/t-0/log", b"old", sync=True)
    copy = one.copy_of("/data/topics")
    put(one, "/data/topics/t-0/log", b"newer", sync=False)
    one.put_back("/data/topics", None)
    assert one.listdir("/data") == []
    assert one.copy_of("/data/topics") is None
    one.put_back("/data/topics", copy)
    assert one.contents("/data/topics/t-0/log") == b"old"
    one.lose_power()
    assert one.contents("/data/topics/t-0/log") == b"old"

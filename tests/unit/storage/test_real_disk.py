"""The log on the machine's own disk: readers' maps, and a small disk that is really full."""

import mmap
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from raylog.storage.disk import OsDisk, make_durably, remove, sync_names_anew
from raylog.storage.dry_run import DryRunDisk
from raylog.storage.log import Log, LogConfig
from raylog.wire.errors import KafkaStorageError
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import NOW_MS, append, batch, flush

CONFIG = LogConfig(segment_bytes=100_000)
SMALL_BYTES = 256 * 1024


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log.open(tmp_path / "t-0", CONFIG, OsDisk(), now_ms=NOW_MS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 256 KiB."""
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(where)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted: {done.stderr.strip()}")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


def mapped(log: Log, name: str) -> mmap.mmap:
    fd = os.open(Path(log.directory) / name, os.O_RDONLY)
    try:
        return mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    finally:
        os.close(fd)


def test_a_map_made_early_sees_what_is_written_later(log: Log) -> None:
    first = append(log, batch(size=1_000))
    view = mapped(log, first.segment_id)
    assert len(view) > first.length
    data = batch(size=1_000)
    info = append(log, data)
    assert view[info.position : info.position + info.length] == bytes(data)


def test_a_map_survives_truncation_retention_and_close(log: Log) -> None:
    data = bytearray()
    for _ in range(20):
        one = batch(size=1_000)
        append(log, one)
        data += one
    name = log.segments[0]
    view = mapped(log, name)
    log.truncate_to(5, NOW_MS)
    append(log, batch(size=9))
    log.close()
    assert view[: len(data)] == data
    assert not (Path(log.directory) / name).exists()


def test_a_log_comes_back_from_the_disk(log: Log) -> None:
    for _ in range(300):
        append(log, batch(3, size=1_000))
    flush(log)
    stored = [path.stat() for path in Path(log.directory).glob("*.log")]
    assert sum(stat.st_blocks * 512 for stat in stored) < log.size + 64 * 1024
    log.close(900)
    again = Log.open(Path(log.directory), CONFIG, OsDisk(), now_ms=NOW_MS)
    assert again.report.clean
    assert (again.log_end_offset, again.size) == (900, log.size)
    again = Log.open(Path(log.directory), CONFIG, OsDisk(), now_ms=NOW_MS, clean=False)
    assert not again.report.clean
    assert (again.log_end_offset, again.size) == (900, log.size)
    again.delete()
    assert list(Path(log.directory).iterdir()) == []


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    log = Log.open(small_disk / "t-0", CONFIG, OsDisk(), now_ms=NOW_MS)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(SMALL_BYTES // 2))
    end = _append_until_full(log)
    found = log.read(0, SMALL_BYTES, end + 100)
    assert found is not None
    view = mapped(log, found.segment_id)
    assert view[found.position : found.position + found.length] == log.reader.load(found)
    ballast.unlink()
    assert _append_until_full(log) > end
    assert not log.offline
    again = Log.open(Path(log.directory), CONFIG, OsDisk(), now_ms=NOW_MS)
    assert again.log_end_offset == log.log_end_offset
    assert again.report.rejected_bytes == 0


def _append_until_full(log: Log) -> int:
    """Append until the disk refuses; the log end, which a second refusal does not move."""
    with suppress(KafkaStorageError):
        while True:
            append(log, batch(size=10_000))
    end = log.log_end_offset
    with pytest.raises(KafkaStorageError):
        append(log, batch(size=10_000))
    assert log.log_end_offset == end
    return end


def test_a_thousand_idle_logs_cost_little(tmp_path: Path) -> None:
    tracemalloc = pytest.importorskip("tracemalloc")
    disk, before = OsDisk(), len(os.listdir("/proc/self/fd"))
    tracemalloc.start()
    try:
        logs = [Log.open(tmp_path / f"t-{n}", CONFIG, disk, now_ms=NOW_MS) for n in range(1_000)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(logs) <= 20 * 1024
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_calls_of_the_real_disk(tmp_path: Path) -> None:
    disk = OsDisk()
    path = str(tmp_path / "a" / "file")
    disk.mkdir(str(tmp_path / "a"))
    disk.mkdir(str(tmp_path / "a"))
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    fd = disk.open(path, create=True)
    again = disk.duplicate(fd)
    assert disk.pwritev(fd, (b"abc", b"def"), 2) == 6
    disk.ftruncate(fd, 10)
    assert disk.pread(again, 99, 0) == b"\0\0abcdef\0\0"
    buffer = bytearray(4)
    assert disk.preadv(again, (buffer,), 4) == 4
    assert buffer == b"cdef"
    disk.fdatasync(fd)
    disk.fsync_dir(str(tmp_path / "a"))
    assert disk.size(fd) == 10
    disk.close(fd)
    disk.close(again)
    disk.rename(path, path + "2")
    assert disk.listdir(str(tmp_path / "a")) == ["file2"]
    remove(disk, path + "2")
    remove(disk, path + "2")
    assert disk.listdir(str(tmp_path / "a")) == []


def test_a_directory_is_moved_to_a_name_that_nothing_has(tmp_path: Path) -> None:
    disk = OsDisk()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"." * 10_000)
    (tmp_path / "taken").mkdir()
    with pytest.raises(FileExistsError):
        disk.move_tree(str(tmp_path / "a"), str(tmp_path / "taken"))
    with pytest.raises(FileNotFoundError):
        disk.move_tree(str(tmp_path / "missing"), str(tmp_path / "free"))
    before = disk.used(str(tmp_path / "a"))
    disk.move_tree(str(tmp_path / "a"), str(tmp_path / "free"))
    assert sorted(disk.listdir(str(tmp_path))) == ["free", "taken"]
    assert disk.used(str(tmp_path / "free")) == before >= 10_000
    assert disk.used(str(tmp_path / "a")) == 0


class _SharedDirectory(OsDisk):
    """Another process removes what was just created, as when two sync one directory."""

    def open(self, path: str, *, create: bool = False) -> int:
        opened = super().open(path, create=create)
        os.unlink(path)
        return opened


def test_concurrent_name_syncs_of_one_directory_are_allowed(tmp_path: Path) -> None:
    sync_names_anew(_SharedDirectory(), str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_file_that_vanishes_is_not_counted_as_used_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"a" * 10_000)
    walked: list[tuple[str, list[str], list[str]]] = [(str(tmp_path), [], ["gone", "a"])]
    monkeypatch.setattr(os, "walk", lambda _: iter(walked))
    assert OsDisk().used(str(tmp_path)) == (tmp_path / "a").stat().st_blocks * 512 > 0


def test_a_machine_without_a_boot_id_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_id = tmp_path / "boot_id"
    monkeypatch.setattr("raylog.storage.disk._BOOT_ID", str(boot_id))
    assert OsDisk().boot_id() == ""
    boot_id.write_text("abc\n")
    assert OsDisk().boot_id() == DryRunDisk().boot_id() == "abc"


class ClosedDisk(FaultyDisk):
    """A disk with a directory whose names cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def listdir(self, path: str) -> list[str]:
        if path == "/a":
            raise PermissionError(path)
        return super().listdir(path)

    def fsync_dir(self, path: str) -> None:
        self.synced.append(path)
        super().fsync_dir(path)


def test_a_directory_whose_names_nobody_may_read_is_there() -> None:
    disk = ClosedDisk()
    disk.mkdir("/a")
    make_durably(disk, "/a/b/c")
    assert disk.synced == ["/a", "/a/b"], "from the top, or a name may outlive its parent"
    disk.synced.clear()
    make_durably(disk, "/a/b/c")
    assert disk.synced == ["/a/b"]


def test_a_dry_run_changes_nothing_and_says_that_it_did(tmp_path: Path) -> None:
    disk, file = DryRunDisk(), tmp_path / "a"
    file.write_bytes(b"abc")
    os.utime(file, (5, 5))
    assert disk.modified_ms(str(file)) == 5_000
    disk.set_modified_ms(str(file), 7_000)
    fd = disk.open(str(file))
    assert disk.pwritev(fd, (b"xy", b"zzz"), 1) == 5
    disk.ftruncate(fd, 0)
    disk.fdatasync(fd)
    assert (disk.size(fd), disk.pread(fd, 9, 0)) == (3, b"abc")
    disk.close(fd)
    disk.rename(str(file), str(tmp_path / "b"))
    disk.unlink(str(file))
    disk.mkdir(str(tmp_path / "c"))
    disk.fsync_dir(str(tmp_path / "c"))
    assert disk.listdir(str(tmp_path / "c")) == []
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "d"))
    fd = disk.open(str(tmp_path / "d"), create=True)
    assert disk.size(fd) == 0
    disk.close(fd)
    assert disk.listdir(str(tmp_path)) == ["a"]
    assert (file.read_bytes(), file.stat().st_mtime) == (b"abc", 5)

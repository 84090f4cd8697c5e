"""A broker's data directory."""

from pathlib import Path

import pytest

from raylog.actors.broker.identity import (
    DataDirectory,
    Identity,
    LastProcess,
    read_identity,
)
from raylog.storage.disk import OsDisk
from raylog.wire.errors import KafkaStorageError

WANTED = Identity("c", 3, "d3", ((3, "d3"),))


def test_a_new_directory_is_formatted_once(tmp_path: Path) -> None:
    assert read_identity(tmp_path / "data") is None
    first = DataDirectory(tmp_path / "data", WANTED, fsync=True)
    assert first.identity == WANTED
    assert first.identity.is_voter
    assert first.topics.is_dir()
    first.close()
    again = DataDirectory(tmp_path / "data", Identity("c", 3, "other"), fsync=False)
    assert again.identity == WANTED
    again.close()
    assert read_identity(tmp_path / "data") == WANTED


def test_a_voter_is_known_by_number_and_directory() -> None:
    assert not Identity("c", 3, "d3").is_voter
    assert not Identity("c", 3, "d4", ((3, "d3"),)).is_voter


def test_one_process_has_it_open(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path, WANTED, fsync=False)
    with pytest.raises(KafkaStorageError, match="in use"):
        DataDirectory(tmp_path, WANTED, fsync=False)
    first.close()
    DataDirectory(tmp_path, WANTED, fsync=False).close()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 1, "cluster_id": "c"}'])
def test_a_damaged_identity_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(KafkaStorageError, match="damaged"):
        read_identity(tmp_path)
    with pytest.raises(KafkaStorageError, match="damaged"):
        DataDirectory(tmp_path, WANTED, fsync=False)
    (tmp_path / "meta.json").unlink()
    DataDirectory(tmp_path, WANTED, fsync=False).close()  # the lock was let go


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    DataDirectory(tmp_path, WANTED, fsync=False).close()
    meta = tmp_path / "meta.json"
    meta.write_text(meta.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(KafkaStorageError, match="has format 2, this build knows 1"):
        read_identity(tmp_path)


def test_the_next_process_learns_of_the_last(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path, WANTED, fsync=True)
    assert first.last == LastProcess()
    assert not first.kept_running
    last = LastProcess(7, OsDisk().boot_id(), clean=True, starts=2)
    first.remember(last, durable=True)
    first.remember_epoch(9)
    first.remember_children({"c/replica/3/4": "b", "c/gateway/3/12": "b"})
    first.remember_children({"c/replica/3/4": "b"})
    first.close()
    second = DataDirectory(tmp_path, WANTED, fsync=True)
    children = {"c/replica/3/4": "b"}
    assert second.last == LastProcess(9, OsDisk().boot_id(), True, 2, 13, children=children)
    kept = [second.kept_running]
    second.remember(LastProcess(boot_id="another"))
    kept.append(second.kept_running)
    assert kept == [True, False]
    second.close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"unknown": 1}'])
def test_without_notes_the_last_process_counts_as_crashed(tmp_path: Path, text: str) -> None:
    DataDirectory(tmp_path, WANTED, fsync=False).close()
    (tmp_path / "state.json").write_text(text)
    again = DataDirectory(tmp_path, WANTED, fsync=False)
    assert again.last == LastProcess()
    again.close()


class RebootedDisk(OsDisk):
    """The same disk under one kernel after the other."""

    boot = "first"

    def boot_id(self) -> str:
        return self.boot


def test_a_crash_stays_known_until_the_broker_has_registered(tmp_path: Path) -> None:
    """A process that ends before that must not make the next one believe nothing was lost."""
    disk = RebootedDisk()

    def start() -> DataDirectory:
        data = DataDirectory(tmp_path, WANTED, fsync=False, disk=disk)
        data.note_start()
        data.close()
        return data

    assert not start().kept_running
    start().remember_epoch(7)
    assert start().kept_running
    disk.boot = "second"
    for _ in range(3):
        assert not start().kept_running
    start().remember_epoch(8)
    again = start()
    assert again.kept_running
    assert (again.last.broker_epoch, again.last.starts) == (8, 8)


def test_nothing_is_lost_by_a_clean_shutdown_before_a_reboot(tmp_path: Path) -> None:
    disk = RebootedDisk()
    data = DataDirectory(tmp_path, WANTED, fsync=False, disk=disk)
    data.remember(LastProcess(broker_epoch=7, boot_id="first", clean=True))
    disk.boot = "second"
    data.note_start()
    assert not data.last.clean
    assert data.kept_running
    data.close()

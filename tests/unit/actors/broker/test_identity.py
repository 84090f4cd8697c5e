"""A broker's data directory."""

import errno
import json
import os
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest

from raylog.actors.broker.identity import (
    ASKING_MAX,
    DataDirectory,
    Identity,
    LastProcess,
    read_identity,
)
from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.metadata.entries import LogEntry
from raylog.actors.metadata.followed import DirectoryHistory, Followed
from raylog.actors.metadata.log_copy import Append
from raylog.actors.metadata.records import (
    ClusterNamed,
    LeaderChanged,
    Record,
    VotersChanged,
    encode_record,
)
from raylog.simulation.disk import SimDisk
from raylog.storage.disk import OsDisk
from raylog.storage.layout import holds_log
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


@pytest.mark.parametrize("seed", range(10))
def test_a_new_directory_survives_a_power_loss(seed: int) -> None:
    disk, path = SimDisk(Random(seed)), Path("/volume/clusters/c/broker-3")
    DataDirectory(path, WANTED, fsync=True, disk=disk).close()
    disk.lose_power()
    assert read_identity(path, disk) == WANTED
    assert "topics" in disk.listdir(str(path))


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


GOOD = {"version": 1, "cluster_id": "c", "broker_id": 3, "directory_id": "d", "voters": []}


@pytest.mark.parametrize(
    "wrong",
    [
        {"broker_id": "3"},
        {"broker_id": True},
        {"cluster_id": 7},
        {"directory_id": None},
        {"voters": [["0", "d"]]},
        {"voters": [3]},
        {"version": "1"},
    ],
)
def test_an_identity_of_another_shape_is_refused_by_name(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    (tmp_path / "meta.json").write_text(json.dumps(GOOD))
    assert read_identity(tmp_path) == Identity("c", 3, "d")
    (tmp_path / "meta.json").write_text(json.dumps(GOOD | wrong))
    with pytest.raises(KafkaStorageError) as refused:
        read_identity(tmp_path)
    said = str(refused.value)
    assert said.startswith(f"{tmp_path / 'meta.json'} is damaged: it begins with b'{{")
    assert "expected is a JSON object with version, cluster_id" in said
    assert "Restore the file" in said
    assert "away" not in said


REPLICA = "t-0.AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize(
    "held", [f"topics/{REPLICA}", f"topics/{REPLICA}.17-stray", "metadata/something"]
)
def test_data_whose_owner_is_not_known_is_left_alone(tmp_path: Path, held: str) -> None:
    DataDirectory(tmp_path, WANTED, fsync=False).close()
    (tmp_path / held).mkdir(parents=True)
    (tmp_path / "meta.json").unlink()
    (tmp_path / "meta.copy.json").unlink()
    expected = (
        "meta.json is missing, .* broker 3 in cluster c: "
        f"found is data in {Path(held).parent}. Nothing is changed. Restore"
    )
    with pytest.raises(KafkaStorageError, match=expected):
        DataDirectory(tmp_path, WANTED, fsync=False)
    (tmp_path / held).rmdir()
    DataDirectory(tmp_path, WANTED, fsync=False).close()


@pytest.mark.parametrize("text", [None, "", '{"version": 1}', "\0" * 99])
def test_a_lost_identity_is_made_anew_from_its_copy(tmp_path: Path, text: str | None) -> None:
    DataDirectory(tmp_path, WANTED, fsync=True).close()
    meta, copy = tmp_path / "meta.json", tmp_path / "meta.copy.json"
    (tmp_path / "topics" / REPLICA).mkdir()
    for lost, other in ((meta, copy), (copy, meta)):
        before = lost.read_bytes()
        lost.unlink()
        if text is not None:
            lost.write_text(text)
        assert read_identity(tmp_path) == WANTED
        data = DataDirectory(tmp_path, Identity("c", 3, "new"), fsync=True)
        assert data.identity == WANTED
        data.close()
        assert lost.read_bytes() == other.read_bytes() == before


def test_a_directory_of_an_older_build_is_given_the_copy(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(json.dumps(GOOD))
    data = DataDirectory(tmp_path, Identity("c", 3, "new"), fsync=True)
    assert read_copy(tmp_path) == Identity("c", 3, "d")
    data.remember_voters(((3, "d"),))
    assert read_copy(tmp_path) == Identity("c", 3, "d", ((3, "d"),))
    data.close()


def read_copy(path: Path) -> Identity | None:
    (path / "meta.json").rename(path / "saved")
    found = read_identity(path)
    (path / "saved").rename(path / "meta.json")
    return found


def test_missing_identity_error_contains_the_meta_json_to_write(tmp_path: Path) -> None:
    """The line that is shown makes the directory what it was."""
    own = Identity("c", 3, "d3", ((0, "d0"), (3, "d3")))
    data = DataDirectory(tmp_path, own, fsync=True)
    records: list[Record] = [LeaderChanged(1), ClusterNamed("c", "m"), VotersChanged(own.voters)]
    copy = MetadataLog(data.metadata, OsDisk())
    copy.write([Append((LogEntry(0, 1, tuple(map(encode_record, records))),))])
    copy.sync()
    copy.close()
    data.close()
    for name in ("meta.json", "meta.copy.json"):
        (tmp_path / name).unlink()
    with pytest.raises(KafkaStorageError) as refused:
        DataDirectory(tmp_path, Identity("another", 3, "new"), fsync=True)
    said = str(refused.value)
    assert "move" not in said
    assert "as the metadata in this directory says" in said
    assert "`raylog metadata rebuild`" in said
    line = said[said.index("{") : said.index("}") + 1]
    (tmp_path / "meta.json").write_text(line)
    assert read_identity(tmp_path) == own
    again = DataDirectory(tmp_path, Identity("c", 3, "new"), fsync=True)
    assert again.identity == own
    again.close()


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


def noted(**changes: object) -> str:
    return json.dumps(asdict(LastProcess(broker_epoch=4, clean=True)) | changes)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"unknown": 1}', "null"),
        *(noted(starts="x"), noted(children=[1]), noted(children={"a": 1}), noted(ports=None)),
        *(noted(ports={"PLAINTEXT": "1"}), noted(ports={"PLAINTEXT": None})),
    ],
)
def test_without_notes_the_last_process_counts_as_crashed(tmp_path: Path, text: str) -> None:
    DataDirectory(tmp_path, WANTED, fsync=False).close()
    (tmp_path / "state.json").write_text(text)
    again = DataDirectory(tmp_path, WANTED, fsync=False)
    assert again.last == LastProcess()
    again.close()


class RebootedDisk(OsDisk):
    """The same disk under one boot after another."""

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


def test_unanswered_epoch_requests_are_known_to_the_next_process(
    tmp_path: Path,
) -> None:
    """Their registrations may be what the controller knows; of those that lost nothing, that is."""
    disk = RebootedDisk()

    def start() -> DataDirectory:
        data = DataDirectory(tmp_path, WANTED, fsync=False, disk=disk)
        data.note_start()
        data.close()
        return data

    first = start()
    first.note_asking("lost something: nothing is known of the process before")
    assert first.last.asking == ()
    first.remember_epoch(7)
    for number in range(ASKING_MAX + 2):
        start().note_asking(f"process {number}")
    assert start().last.asking == tuple(f"process {2 + number}" for number in range(ASKING_MAX))
    disk.boot = "second"
    crashed = start()
    crashed.note_asking("crashed")
    assert "crashed" not in crashed.last.asking
    crashed.remember_epoch(8)
    assert start().last.asking == ()


def test_notes_of_before_the_asking_was_noted_are_read(tmp_path: Path) -> None:
    DataDirectory(tmp_path, WANTED, fsync=False).close()
    notes = json.loads(noted())
    del notes["asking"]
    (tmp_path / "state.json").write_text(json.dumps(notes))
    again = DataDirectory(tmp_path, WANTED, fsync=False)
    assert again.last == LastProcess(broker_epoch=4, clean=True)
    again.close()


def test_nothing_is_lost_by_a_clean_shutdown_before_a_reboot(tmp_path: Path) -> None:
    disk = RebootedDisk()
    data = DataDirectory(tmp_path, WANTED, fsync=False, disk=disk)
    data.remember(LastProcess(broker_epoch=7, boot_id="first", clean=True))
    disk.boot = "second"
    data.note_start()
    assert not data.last.clean
    assert data.kept_running
    data.close()


class FullDisk(OsDisk):
    """A disk that refuses writes."""

    def pwritev(self, *_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_failed_write_of_an_optional_note_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    DataDirectory(tmp_path, WANTED, fsync=False).close()
    data = DataDirectory(tmp_path, WANTED, fsync=False, disk=FullDisk())
    data.remember_epoch(7)
    data.remember_ports({"PLAINTEXT": 8})
    data.note_end()
    assert [one.message for one in caplog.records] == [
        f"{tmp_path / 'state.json'} cannot be written: [Errno 28] No space left on device"
    ] * 3
    assert (data.last.broker_epoch, data.last.ports) == (7, {"PLAINTEXT": 8})
    for strict in (data.note_start, lambda: data.remember_children({"c/replica/3/1": "b"})):
        with pytest.raises(OSError, match="No space left"):
            strict()
    data.close()


def test_meta_json_follows_the_voters_and_a_directory_can_be_given_another_id(
    tmp_path: Path,
) -> None:
    wanted = Identity("c", 3, "d3", ((3, "d3"),))
    directory = DataDirectory(tmp_path, wanted, fsync=True)
    before = directory.has_metadata_log
    directory.metadata.mkdir()
    assert (before, directory.has_metadata_log) == (False, True)
    directory.remember_voters(((3, "d3"), (4, "d4")))
    assert directory.identity == read_identity(tmp_path)
    assert directory.identity.voters == ((3, "d3"), (4, "d4"))
    directory.rename("other")
    directory.close()
    assert read_identity(tmp_path) == Identity("c", 3, "other", ((3, "d3"), (4, "d4")))
    again = DataDirectory(tmp_path, wanted, fsync=True)
    assert not again.identity.is_voter
    again.close()


# ---- what was known here ---------------------------------------------------------------------


def opened(path: Path) -> DataDirectory:
    return DataDirectory(path, WANTED, fsync=False)


def test_a_directory_notes_which_metadata_was_followed_and_how_far(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path, WANTED, fsync=True)
    assert first.followed == Followed()
    first.note_followed(Followed("m", 4, 900, 77))
    first.close()
    assert json.loads((tmp_path / "followed.json").read_bytes()) == {
        "version": 2,
        "metadata_id": "m",
        "epoch": 4,
        "offset": 900,
        "nonce": 77,
    }
    again = opened(tmp_path)
    assert again.followed == Followed("m", 4, 900, 77)
    again.close()


def test_a_note_of_before_there_were_nonces_is_read(tmp_path: Path) -> None:
    opened(tmp_path).close()
    note = {"version": 1, "metadata_id": "m", "epoch": 4, "offset": 900}
    (tmp_path / "followed.json").write_text(json.dumps(note))
    data = opened(tmp_path)
    assert data.followed == Followed("m", 4, 900)
    data.close()


def test_a_note_of_a_newer_build_is_refused_by_name(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "followed.json").write_text('{"version": 3, "found": "later"}')
    expected = f"{tmp_path / 'followed.json'} has format 3, this build knows 2"
    with pytest.raises(KafkaStorageError, match=expected):
        opened(tmp_path)
    (tmp_path / "followed.json").unlink()
    opened(tmp_path).close()  # the lock was let go


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": true}'])
def test_a_damaged_note_is_reported_and_no_obstacle(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    opened(tmp_path).close()
    (tmp_path / "followed.json").write_text(text)
    again = opened(tmp_path)
    assert again.followed == Followed()
    assert "followed.json is damaged, older metadata cannot be told from it" in caplog.text
    again.close()


def test_a_directory_is_blank_until_anything_of_a_cluster_was_known_in_it(tmp_path: Path) -> None:
    data = opened(tmp_path)
    assert data.history() == DirectoryHistory(3)
    data.note_start()
    data.note_asking("i")
    data.remember_ports({"PLAINTEXT": 9092})
    assert data.history().is_blank
    data.remember_epoch(0)
    data.note_followed(Followed("m", 1, 1))
    (data.topics / REPLICA).mkdir()
    assert data.history() == DirectoryHistory(3, 0, Followed("m", 1, 1), 1)
    data.close()


def test_history_of_a_directory_that_cannot_be_listed_is_unknown(tmp_path: Path) -> None:
    data = opened(tmp_path)
    data.topics.rmdir()
    with pytest.raises(KafkaStorageError, match=r"topics cannot be listed: \[Errno 2\]"):
        data.history()
    data.close()


@pytest.mark.parametrize("name", ["lost+found", ".nfs0000000000a1b2", ".snapshot"])
def test_directories_of_the_file_system_do_not_count_as_history(tmp_path: Path, name: str) -> None:
    (tmp_path / "topics" / name).mkdir(parents=True)
    data = opened(tmp_path)
    data.note_start()
    assert data.history().is_blank
    (data.topics / f"{REPLICA}.17-stray").mkdir()
    assert data.history().replicas == 1
    data.close()


def test_only_the_first_process_of_this_build_marks_empty_logs(tmp_path: Path) -> None:
    """Those are an older build's: what is empty later has lost its log."""
    data = opened(tmp_path)
    names = [f"t-{number}.AAECAwQFBgcICQoLDA0ODw" for number in range(4)]
    for name in names:
        (data.topics / name).mkdir()
    (data.topics / names[1] / "00000000000000000000.log").touch()
    (data.topics / names[2] / "partition.json").touch()
    data.note_start()
    later = data.topics / "u-0.AAECAwQFBgcICQoLDA0ODw"
    later.mkdir()
    data.close()
    again = opened(tmp_path)
    again.note_start()
    again.close()
    assert [holds_log(os.listdir(data.topics / name)) for name in names] == [
        True,
        True,
        False,
        True,
    ]
    assert list(later.iterdir()) == []
    notes = json.loads((tmp_path / "state.json").read_bytes())
    del notes["marked"]  # as an older build writes it at its start
    (tmp_path / "state.json").write_text(json.dumps(notes))
    after = opened(tmp_path)
    after.note_start()
    after.close()
    assert holds_log(os.listdir(later))


def test_a_directory_without_topics_is_given_them(tmp_path: Path) -> None:
    data = opened(tmp_path)
    data.topics.rmdir()
    data.close()
    again = opened(tmp_path)
    assert again.history().replicas == 0
    again.close()


class DyingSimDisk(SimDisk):
    """Kills the process at the first sync of a directory."""

    dies = True

    def fsync_dir(self, path: str) -> None:
        if self.dies:
            raise KeyboardInterrupt
        super().fsync_dir(path)


@pytest.mark.parametrize("seed", range(8))
def test_next_process_syncs_the_directory_that_a_dead_one_left(seed: int) -> None:
    """It ended between the change of a name and its sync: the directory's own, and meta.json's."""
    disk, path = DyingSimDisk(Random(seed)), Path("/volume/broker-3")
    with pytest.raises(KeyboardInterrupt):
        DataDirectory(path, WANTED, fsync=True, disk=disk)
    disk.dies = False
    data = DataDirectory(path, WANTED, fsync=True, disk=disk)
    data.close()
    disk.dies = True
    with pytest.raises(KeyboardInterrupt):
        data.note_followed(Followed("metadata", 3, 5, 7))
    disk.dies = False
    data = DataDirectory(path, WANTED, fsync=True, disk=disk)
    assert data.followed.offset == 5
    disk.lose_power()
    data = DataDirectory(path, WANTED, fsync=True, disk=disk)
    assert (data.identity, data.followed.offset) == (WANTED, 5)


def test_older_builds_noted_the_port_of_their_only_listener(tmp_path: Path) -> None:
    DataDirectory(tmp_path, WANTED, fsync=False).close()
    older = asdict(LastProcess(broker_epoch=7, boot_id="b")) | {"port": 9092}
    del older["ports"]
    (tmp_path / "state.json").write_text(json.dumps(older))
    data = DataDirectory(tmp_path, WANTED, fsync=False)
    assert (data.last.broker_epoch, data.last.ports) == (7, {"PLAINTEXT": 9092})
    data.close()

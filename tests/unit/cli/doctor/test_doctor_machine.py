"""`raylog doctor` about a machine and a data directory: good, bad and unknown facts."""

import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from raylog.cli.doctor import findings, machine, volume
from raylog.cli.doctor.findings import Finding, Status, failure, ok, unknown, warning
from raylog.cli.doctor.machine import MachineFacts, PortFacts
from raylog.cli.doctor.volume import VolumeFacts

GIB = 1024**3
GOOD = MachineFacts(
    python=(3, 12, 1),
    kernel="Linux 6.1 x86_64",
    raylog="0.1.0",
    ray="2.55.0",
    cores=8,
    memory_total=16 * GIB,
    memory_available=8 * GIB,
    descriptors=(1_024, 1_048_576),
    processes=-1,
    is_clock_synchronized=True,
    java="",
)
VOLUME = VolumeFacts(
    "/data",
    exists=True,
    place="/data",
    owner=1_000,
    user=1_000,
    file_system="ext4",
    mount_point="/",
    total_bytes=100 * GIB,
    free_bytes=50 * GIB,
    total_inodes=1_000_000,
    free_inodes=900_000,
    fsync_ms=(1.0, 2.0, 30.0),
)


def status(found: Iterable[Finding]) -> dict[str, Status]:
    return {one.check: one.status for one in found}


def host(**changes: object) -> dict[str, Status]:
    facts = replace(GOOD, **changes)  # type: ignore[arg-type]
    return status([*machine.check_client(facts), *machine.check_host(facts, 3)])


def directory(**changes: object) -> dict[str, Status]:
    return status(volume.check(replace(VOLUME, **changes)))  # type: ignore[arg-type]


def test_all_is_well() -> None:
    assert set(host().values()) == {Status.OK}
    assert set(directory().values()) == {Status.OK}


@pytest.mark.parametrize(
    ("changes", "check", "expected"),
    [
        ({"python": (3, 10, 9)}, "versions", Status.FAILURE),
        ({"python": (3, 14, 0)}, "versions", Status.FAILURE),
        ({"broken": ("lz4.frame: no such file",)}, "packages", Status.FAILURE),
        ({"ray": None}, "ray", Status.FAILURE),
        ({"ray": "2.51.9"}, "ray", Status.FAILURE),
        ({"ray": "3.0.0.dev0"}, "ray", Status.OK),
        ({"ray": "nightly"}, "ray", Status.UNKNOWN),
        ({"memory_available": 2 * GIB}, "memory", Status.WARNING),
        ({"memory_available": GIB}, "memory", Status.FAILURE),
        ({"memory_available": None}, "memory", Status.UNKNOWN),
        ({"cores": 2}, "cores", Status.WARNING),
        ({"descriptors": (1_024, 4_000)}, "open files", Status.FAILURE),
        ({"descriptors": (1_024, 20_000)}, "open files", Status.WARNING),
        ({"descriptors": (-1, -1)}, "open files", Status.OK),
        ({"processes": 1_000}, "processes", Status.WARNING),
        ({"is_clock_synchronized": False}, "clock", Status.WARNING),
        ({"is_clock_synchronized": None}, "clock", Status.UNKNOWN),
        ({"java": "expected Java 17, found 8"}, "java", Status.WARNING),
    ],
)
def test_a_machine(changes: dict[str, object], check: str, expected: Status) -> None:
    found = host(**changes)
    assert found[check] is expected
    assert {one for name, one in found.items() if name != check} == {Status.OK}


def test_java_matters_where_spark_is_installed() -> None:
    assert "java" not in host(java=None)


@pytest.mark.parametrize(
    ("changes", "check", "expected"),
    [
        ({"is_writable": False, "owner": 0}, "data directory", Status.FAILURE),
        ({"foreign": ("/data/broker-1",)}, "data directory", Status.FAILURE),
        ({"owner": 0}, "data directory", Status.WARNING),
        ({"owner": 0, "exists": False, "place": "/"}, "data directory", Status.OK),
        ({"file_system": "tmpfs"}, "file system", Status.WARNING),
        ({"file_system": "nfs4"}, "file system", Status.WARNING),
        ({"file_system": "fuse.sshfs"}, "file system", Status.WARNING),
        ({"file_system": "overlay"}, "file system", Status.WARNING),
        ({"file_system": ""}, "file system", Status.UNKNOWN),
        ({"free_bytes": GIB - 1}, "disk space", Status.FAILURE),
        ({"free_bytes": 9 * GIB}, "disk space", Status.WARNING),
        ({"total_bytes": -1}, "disk space", Status.UNKNOWN),
        ({"free_inodes": 9_999}, "inodes", Status.FAILURE),
        ({"free_inodes": 40_000}, "inodes", Status.WARNING),
        ({"total_inodes": 0, "free_inodes": 0}, "inodes", Status.OK),
        ({"free_inodes": -1}, "inodes", Status.UNKNOWN),
        ({"fsync_ms": (25.0, 30.0, 1.0)}, "fsync", Status.WARNING),
        ({"fsync_ms": (250.0,)}, "fsync", Status.FAILURE),
        ({"fsync_ms": (), "fsync_failure": "No space left"}, "fsync", Status.FAILURE),
        ({"fsync_ms": ()}, "fsync", Status.UNKNOWN),
    ],
)
def test_a_volume(changes: dict[str, object], check: str, expected: Status) -> None:
    found = directory(**changes)
    assert found[check] is expected
    assert {one for name, one in found.items() if name != check} == {Status.OK}


def test_a_file_where_the_directory_would_be() -> None:
    assert directory(is_directory=False) == {"data directory": Status.FAILURE}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/raylog", ("/var/lib", "xfs")),
        ("/var/lib", ("/var/lib", "xfs")),
        ("/var/library", ("/", "ext4")),
        ("/mnt/a b/c", ("/mnt/a b", "nfs4")),
    ],
)
def test_which_file_system_a_path_is_on(path: str, expected: tuple[str, str]) -> None:
    mounts = (
        "/dev/a / ext4 rw 0 0\n/dev/b /var/lib tmpfs rw 0 0\n/dev/b /var/lib xfs rw 0 0\n"
        "server:/x /mnt/a\\040b nfs4 rw 0 0\ndamaged\n"
    )
    assert volume.mount_of(Path(path), mounts) == expected
    assert volume.mount_of(Path(path), "") == ("", "")


def test_this_machine_is_looked_at() -> None:
    facts = machine.gather()
    assert facts.python == sys.version_info[:3]
    assert facts.cores >= 1
    assert facts.broken == ()
    assert facts.memory_total is not None
    assert facts.memory_available is not None
    assert 0 < facts.memory_available <= facts.memory_total
    assert facts.ray is not None
    assert machine.check_client(facts)[0].status is Status.OK


def test_memory_of_a_container_without_its_page_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "Path", lambda path: tmp_path / Path(path).name)
    (tmp_path / "meminfo").write_text("MemTotal: 800 kB\nMemAvailable: 400 kB\n")
    assert machine._memory() == (800 * 1024, 400 * 1024)
    (tmp_path / "memory.max").write_text("300000\n")
    (tmp_path / "memory.current").write_text("250000\n")
    assert machine._memory() == (300_000, 50_000)
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100000\nactive_file 2\n")
    assert machine._memory() == (300_000, 150_000)
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._memory() == (800 * 1024, 400 * 1024)


def test_limits_of_open_files_are_for_brokers() -> None:
    found = machine.check_client(replace(GOOD, descriptors=(1_024, 4_000)))
    assert {one.status for one in found} == {Status.OK}


def test_a_directory_that_does_not_exist_yet_is_not_made(tmp_path: Path) -> None:
    facts = volume.gather(tmp_path / "a" / "b")
    assert (facts.place, facts.exists, facts.is_writable) == (str(tmp_path), False, True)
    assert (facts.owner, facts.user) == (os.getuid(), os.geteuid())
    assert facts.free_bytes > 0
    assert facts.file_system
    assert all(one >= 0 for one in facts.fsync_ms)
    assert facts.fsync_ms
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    facts = volume.gather(tmp_path / "file" / "data")
    assert (facts.place, facts.is_directory) == (str(tmp_path / "file"), False)


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="space"):
        list(volume._syncs(full.fileno()))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_a_broker_directory_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "broker-0").mkdir()
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-0").rename(tmp_path / "moved")
    (tmp_path / "broker-0").symlink_to("gone")
    os.chown(tmp_path / "broker-1", 12_345, -1)
    assert volume.gather(tmp_path).foreign == (str(tmp_path / "broker-1"),)


def test_ports_that_are_free_and_one_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (found,) = machine.ports([("127.0.0.1", port)])
    assert "cannot listen on" in found.problem
    (finding,) = machine.check_ports([PortFacts("h:1"), found])
    assert (finding.status, finding.do) == (Status.FAILURE, found.do)
    assert machine.check_ports([PortFacts("h:1"), PortFacts("h:2")]) == [
        ok("ports", "free: h:1, h:2")
    ]


def test_failed_check_requires_a_remedy() -> None:
    with pytest.raises(AssertionError, match="nobody learns what to do"):
        failure("disk", "it is full", "")
    found = [ok("a", "x"), warning("b", "y", "z"), unknown("c", "why")]
    assert findings.counts(found) == "3 checks: 1 ok, 1 unknown, 1 warning"
    assert list(findings.lines(found, 3)) == [
        "ok       a    x",
        "warning  b    y",
        "              -> z",
        "unknown  c    why",
    ]


def test_a_cluster_that_is_down_is_reported() -> None:
    stopped = machine.check_down(Path("d"), 3, was_stopped=True)
    assert stopped.status is Status.WARNING
    assert stopped.found.startswith("the cluster with data in d (3 brokers) is stopped")
    ended = machine.check_down(Path("d"), 3, was_stopped=False)
    assert ended.status is Status.FAILURE
    assert "its Ray processes ended without `raylog down`" in ended.found

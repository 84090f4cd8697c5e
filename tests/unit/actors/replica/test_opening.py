"""A log that cannot be opened or closed does not affect the others."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from raylog.actors.common_messages import OpenPartition, TopicId
from raylog.actors.replica.opening import Outcome, open_logs
from raylog.wire.errors import KafkaStorageError
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, run_world
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import append, batch, checkpoint, flush

NOBODY: frozenset[tuple[TopicId, int]] = frozenset()
CONFIG = ReplicaWorld().config


class Disk(FaultyDisk):
    """Syncs all directories but one, and records which."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = ""
        self.synced: list[str] = []

    def fsync_dir(self, path: str) -> None:
        if path == self.broken:
            raise OSError(errno.EIO, "broken")
        super().fsync_dir(path)
        self.synced.append(path)


def opening(directory: str) -> OpenPartition:
    number = int(directory[-1])
    return OpenPartition(TopicId(b"i" * 16), "t", number, directory, CONFIG)


def opened(disk: Disk, *directories: str) -> list[Outcome]:
    disk.synced.clear()
    return open_logs([opening(one) for one in directories], disk, 1_000, NOBODY)


def closed(disk: Disk, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, tuple):
            outcome[0].close()
    assert disk.open_descriptors == 0


def test_a_folder_that_cannot_be_synced_keeps_its_new_logs_closed_and_no_others() -> None:
    disk = Disk()
    closed(disk, opened(disk, "/a/t-0"))
    disk.broken = "/a"
    old, new, elsewhere = opened(disk, "/a/t-0", "/a/t-1", "/b/t-2")
    assert isinstance(old, tuple)
    assert isinstance(elsewhere, tuple)
    assert isinstance(new, OSError)
    closed(disk, [old, elsewhere])
    assert disk.listdir("/a/t-1") == [], "nothing is in it before its name is durable"
    disk.broken = ""
    closed(disk, opened(disk, "/a/t-1"))
    assert "/a" in disk.synced, "its name is durable before it is served"
    closed(disk, opened(disk, "/a/t-1"))
    assert "/a" not in disk.synced


@in_world(run_world, brokers=1, partitions=3)
async def test_a_log_that_cannot_be_closed_does_not_keep_the_others_open(
    world: ReplicaWorld,
) -> None:
    node, disk = world.nodes[1], world.disks[1]
    directories = [ReplicaWorld.directory(1, index) for index in range(3)]
    disk.fail("fdatasync", errno.EIO, times=10, path=directories[0])
    for index in range(3):
        assert await world.produce(1, partition=index)
    with pytest.raises(KafkaStorageError) as raised:
        await node.actor.close_partitions(list(world.keys), False)
    assert str(raised.value).startswith(f"1 of 3 logs are not closed: {directories[0]}: ")
    assert disk.open_descriptors == 0


@in_world(run_world, brokers=1)
async def test_deleting_a_partition_ignores_failed_syncs(
    world: ReplicaWorld, *, caplog: pytest.LogCaptureFixture
) -> None:
    node, disk = world.nodes[1], world.disks[1]
    directory = ReplicaWorld.directory(1, 0)
    assert await world.produce(1)
    disk.fail("fdatasync", errno.EIO, times=10, path=directory)
    await node.actor.close_partitions(list(world.keys), True)
    assert disk.listdir(directory) == []
    assert f"cannot close {Path(directory)}" in caplog.text


def test_a_directory_that_cannot_be_made_keeps_its_log_closed_and_no_others() -> None:
    disk = Disk()
    disk.fail("mkdir", errno.EIO, path="t-1")
    first, failed, last = opened(disk, "/a/t-0", "/a/t-1", "/a/t-2")
    assert isinstance(failed, OSError)
    assert isinstance(first, tuple)
    assert isinstance(last, tuple)
    closed(disk, [first, last])
    (again,) = opened(disk, "/a/t-1")
    assert isinstance(again, tuple)
    closed(disk, [again])


def test_a_damaged_log_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    (made,) = opened(disk, "/a/t-0")
    assert isinstance(made, tuple)
    for _ in range(3):
        size = append(made[0], batch()).length
    flush(made[0])
    checkpoint(made[0])
    disk.kill()
    opened(disk, "/a/t-0")
    assert caplog.text == ""
    disk.kill()
    disk.corrupt(f"/a/t-0/{0:020}.log", size + 70, b"?")
    outcomes = opened(disk, "/a/t-0")
    assert "/a/t-0 is damaged: it ends at offset 1 and had everything below 3." in caplog.text
    closed(disk, outcomes)


@in_world(run_world, brokers=1, partitions=2)
async def test_files_that_cannot_be_deleted_are_reported(world: ReplicaWorld) -> None:
    node, disk = world.nodes[1], world.disks[1]
    directories = [ReplicaWorld.directory(1, index) for index in range(2)]
    for index in range(2):
        assert await world.produce(1, partition=index)
    disk.fail("unlink", errno.EIO, times=10, path=directories[0])
    with pytest.raises(KafkaStorageError) as raised:
        await node.actor.close_partitions(list(world.keys), True)
    assert str(raised.value).startswith(f"1 of 2 logs are not closed: {directories[0]}: ")
    assert disk.open_descriptors == 0
    assert disk.listdir(directories[1]) == []

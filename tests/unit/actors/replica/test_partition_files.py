"""Each partition's directory records its owner and the topic's settings, also after a change."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from dataclasses import astuple
from pathlib import Path
from random import Random

import pytest

from raylog.actors.broker.empty_logs import mark_empty_logs
from raylog.actors.broker.rules.directories import directory_name
from raylog.actors.common_messages import (
    OpenedPartition,
    OpenPartition,
    PartitionLeadership,
    TopicConfig,
    TopicId,
)
from raylog.actors.replica.actor import ReplicaActor
from raylog.actors.replica.opening import open_logs
from raylog.actors.replica.partition_files import RETRY_MS, RETRY_MS_MAX, check
from raylog.storage.disk import OsDisk
from raylog.storage.layout import PARTITION_FILE, holds_log, segment_name
from raylog.storage.partition_file import (
    PartitionFile,
    TopicNote,
    read_partition_file,
    write_partition_file,
)
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.replica.actor import Node, NodeRuntime, ReplicaWorld
from tests.worlds.replica.fake_host import TOPIC_ID
from tests.worlds.runtime import settle
from tests.worlds.storage.disk import FaultyDisk, Killed

Story = Callable[[ReplicaWorld], Awaitable[None]]


def play(story: Story, **options: object) -> None:
    asyncio.run(story_of(story, **options))


async def story_of(story: Story, **options: object) -> None:
    world = ReplicaWorld(1, **options)  # type: ignore[arg-type]  # as the world checks
    await story(world)


def path(partition: int = 0) -> str:
    return f"{ReplicaWorld.directory(1, partition)}/{PARTITION_FILE}"


def found(world: ReplicaWorld, partition: int = 0) -> PartitionFile | None:
    return read_partition_file(world.disks[1], ReplicaWorld.directory(1, partition))


class CountingDisk(FaultyDisk):
    """Records which files are replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.renamed: list[str] = []

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.renamed.append(target)


@in_world(play, partitions=2, config={"retention.ms": "5"})
async def test_a_directory_says_whose_it_is_before_anything_is_written_to_its_log(
    world: ReplicaWorld,
) -> None:
    disk = world.disks[1] = CountingDisk()
    await world.start(1)
    for partition in range(2):
        expected = PartitionFile("t", TOPIC_ID, partition, {"retention.ms": "5"})
        assert found(world, partition) == expected
    assert disk.renamed[0] == path(0)


@in_world(play)
async def test_a_directory_of_an_older_build_is_given_the_file_when_it_is_opened(
    world: ReplicaWorld,
) -> None:
    await world.start(1)
    await world.kill(1)
    world.disks[1].unlink(path())
    assert found(world) is None
    await world.start(1)
    assert found(world) == PartitionFile("t", TOPIC_ID, 0)


@in_world(play)
async def test_a_file_of_version_1_is_written_anew_when_its_log_is_opened(
    world: ReplicaWorld,
) -> None:
    world.noted = TopicNote(4, 7, 42)
    await world.start(1)
    await world.kill(1)
    values = json.loads(world.disks[1].contents(path()))
    older = {key: values[key] for key in values if key not in TopicNote.__slots__}
    fd = world.disks[1].open(path())
    world.disks[1].ftruncate(fd, 0)
    world.disks[1].pwritev(fd, [json.dumps(older | {"version": 1}).encode()], 0)
    world.disks[1].close(fd)
    assert found(world) == PartitionFile("t", TOPIC_ID, 0)
    await world.start(1)
    assert found(world) == PartitionFile("t", TOPIC_ID, 0, noted=TopicNote(4))


@in_world(play, partitions=2)
async def test_other_settings_are_written_beside_the_event_loop_and_the_same_ones_are_not(
    world: ReplicaWorld,
) -> None:
    disk = world.disks[1] = CountingDisk()
    await world.start(1)
    disk.renamed.clear()
    await world.configure()
    await settle()
    assert disk.renamed == []  # as after a change of the broker's settings
    await world.configure(retention_ms="7")
    await settle()
    assert disk.renamed == [path(0), path(1)]
    assert found(world) == PartitionFile("t", TOPIC_ID, 0, {"retention.ms": "7"})


@in_world(play)
async def test_the_number_of_partitions_is_written_when_it_grows_and_where_it_was_found(
    world: ReplicaWorld,
) -> None:
    disk = world.disks[1] = CountingDisk()
    await world.start(1)
    disk.renamed.clear()
    for offset, count in ((40, 5), (41, 5), (42, 6)):
        config = TopicConfig(TOPIC_ID, world.config, {}, TopicNote(count, 7, offset))
        await world.nodes[1].actor.configure([config])
        await settle()
    assert disk.renamed == [path(), path()]
    written = found(world)
    assert written is not None
    assert astuple(written.noted) == (6, 7, 42)


@in_world(play)
async def test_a_topic_whose_settings_change_has_no_other_topics_files_written(
    world: ReplicaWorld,
) -> None:
    disk = world.disks[1] = CountingDisk()
    node = await world.start(1)
    other = TopicId(b"u" * 16)
    opening = OpenPartition(other, "u", 0, "/1/u-0", world.config)
    await node.actor.open_partitions([opening])
    disk.renamed.clear()
    own = {"retention.ms": "7"}
    changed = [TopicConfig(TOPIC_ID, world.config, own), TopicConfig(other, world.config)]
    await node.actor.configure(changed)
    await settle()
    assert disk.renamed == [path()]


@in_world(play)
async def test_a_file_that_cannot_be_written_is_tried_again(
    world: ReplicaWorld, *, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start(1)
    disk = world.disks[1]
    disk.fail("pwritev", errno.ENOSPC, times=100, path=PARTITION_FILE)
    await world.configure(retention_ms="7")
    await settle()
    assert found(world) == PartitionFile("t", TOPIC_ID, 0)
    assert ", will retry: [Errno 28]" in caplog.text
    disk.heal()
    await world.configure(retention_ms="8")
    await world.pass_ms(RETRY_MS)
    assert found(world) == PartitionFile("t", TOPIC_ID, 0, {"retention.ms": "8"})
    assert disk.open_descriptors == 0


@in_world(play)
async def test_a_file_that_cannot_be_written_is_tried_less_and_less_often(
    world: ReplicaWorld,
) -> None:
    await world.start(1)
    disk = world.disks[1]
    disk.fail("pwritev", errno.ENOSPC, times=1_000, path=PARTITION_FILE)
    disk.calls.clear()
    await world.configure(retention_ms="7")
    await settle()
    tried_s = []
    for second in range(200):
        if "pwritev" in disk.calls:
            tried_s.append(second)
        disk.calls.clear()
        await world.pass_ms(1_000)
    assert tried_s == [0, 5, 15, 35, 75, 135, 195]

    disk.heal()
    await world.pass_ms(RETRY_MS_MAX)
    assert found(world) == PartitionFile("t", TOPIC_ID, 0, {"retention.ms": "7"})
    disk.fail("pwritev", errno.ENOSPC, path=PARTITION_FILE)
    await world.configure(retention_ms="8")
    await world.pass_ms(RETRY_MS)
    assert found(world) == PartitionFile("t", TOPIC_ID, 0, {"retention.ms": "8"})


@in_world(play)
async def test_a_full_disk_keeps_no_log_closed_that_is_there(world: ReplicaWorld) -> None:
    disk = world.disks[1]
    disk.mkdir(ReplicaWorld.directory(1, 0))
    disk.close(disk.open(f"{ReplicaWorld.directory(1, 0)}/{segment_name(0, 0)}", create=True))
    disk.fail("pwritev", errno.ENOSPC, times=100, path=PARTITION_FILE)
    await world.start(1)
    await settle()
    assert found(world) is None
    disk.heal()
    await world.pass_ms(RETRY_MS)
    assert found(world) == PartitionFile("t", TOPIC_ID, 0)


@in_world(play, partitions=3)
async def test_one_file_that_cannot_be_written_does_not_keep_the_others(
    world: ReplicaWorld,
) -> None:
    await world.start(1)
    world.disks[1].fail("pwritev", errno.EIO, times=100, path=path(0))
    await world.configure(retention_ms="7")
    await settle()
    own = {"retention.ms": "7"}
    assert [found(world, at) for at in range(3)] == [
        PartitionFile("t", TOPIC_ID, 0),
        PartitionFile("t", TOPIC_ID, 1, own),
        PartitionFile("t", TOPIC_ID, 2, own),
    ]


async def opened_again(world: ReplicaWorld) -> str | None:
    """Why partition 0 cannot be opened in a new process."""
    await world.kill(1)
    world.keys, keys = [], world.keys
    node: Node = await world.start(1)
    world.keys = keys
    opening = OpenPartition(TOPIC_ID, "t", 0, ReplicaWorld.directory(1, 0), world.config)
    (outcome,) = await node.actor.open_partitions([opening])
    return outcome.error


@in_world(play)
async def test_a_damaged_file_is_made_anew(
    world: ReplicaWorld, *, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start(1)
    world.disks[1].corrupt(path(), 0, b"[")
    assert await opened_again(world) is None
    assert found(world) == PartitionFile("t", TOPIC_ID, 0)
    assert "It is written anew from the metadata" in caplog.text


@in_world(play)
async def test_a_newer_file_keeps_the_log_closed_and_stays_as_it_is(world: ReplicaWorld) -> None:
    await world.start(1)
    disk = world.disks[1]
    newer = disk.contents(path()).replace(b'"version": 2', b'"version": 3')
    disk.corrupt(path(), 0, newer)
    assert await opened_again(world) == f"{path()} has format 3, this build knows 2"
    assert disk.contents(path()) == newer


@pytest.mark.parametrize(
    "other",
    [
        PartitionFile("u", TOPIC_ID, 0),
        PartitionFile("t", b"u" * 16, 0),
        PartitionFile("t", TOPIC_ID, 1),
    ],
)
@in_world(play)
async def test_another_partitions_directory_is_not_opened(
    world: ReplicaWorld, *, other: PartitionFile
) -> None:
    await world.start(1)
    write_partition_file(world.disks[1], ReplicaWorld.directory(1, 0), other)
    refused = await opened_again(world)
    assert refused is not None
    assert refused.startswith(f"{ReplicaWorld.directory(1, 0)} holds {other}, expected is t-0")


@in_world(play)
async def test_a_deleted_partition_leaves_no_file_though_its_settings_just_changed(
    world: ReplicaWorld,
) -> None:
    node = await world.start(1)
    gate = asyncio.Event()
    blocking = node.runtime.run_blocking

    async def slow(function: Callable[..., object], *args: object) -> object:
        await gate.wait()
        return await blocking(function, *args)

    node.runtime.run_blocking = slow  # type: ignore[method-assign]  # a slow disk
    await world.configure(retention_ms="7")
    closing = asyncio.ensure_future(node.actor.close_partitions([(TOPIC_ID, 0)], True))
    await settle()
    gate.set()
    while not closing.done():
        await world.pass_ms(10)
    assert world.disks[1].listdir(ReplicaWorld.directory(1, 0)) == []


@in_world(play)
async def test_a_file_waits_for_who_has_the_log_to_itself_and_holds_up_no_other(
    world: ReplicaWorld,
) -> None:
    await world.start(1)
    partition = world.replica(1)
    partition.work.reserve(lambda: None)
    await world.configure(retention_ms="7")
    await world.pass_ms(10)
    before = found(world)
    assert before is not None
    partition.work.release()
    await world.pass_ms(10)
    after = found(world)
    assert after is not None
    assert (before.settings, after.settings) == ({}, {"retention.ms": "7"})


# ---- directories that were lost --------------------------------------------------------------


class RealWorld:
    """One Replica process on a real disk."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.world = ReplicaWorld(1)
        self.actor: ReplicaActor | None = None

    async def open(self, *, was_open: bool) -> OpenedPartition:
        """Open a partition's log in a new process."""
        runtime = NodeRuntime(self.world, OsDisk())  # type: ignore[arg-type]  # a real disk
        self.actor = ReplicaActor(
            runtime,  # type: ignore[arg-type]  # a fake
            name="replica",
            cluster_id="c",
            broker_id=1,
        )
        directory = str(self.data / "topics" / "t-0")
        opening = OpenPartition(TOPIC_ID, "t", 0, directory, self.world.config, was_open=was_open)
        (outcome,) = await self.actor.open_partitions([opening])
        assert outcome.error is None
        return outcome

    async def lead(self, leader: int, *isr: int) -> None:
        assert self.actor is not None
        leadership = PartitionLeadership(TOPIC_ID, 0, leader, 1, 1, (1, 2), isr, {1: "i"})
        await self.actor.lead_partitions([leadership])
        await settle()

    async def whole(self) -> bool:
        """What the process says of its log."""
        assert self.actor is not None
        (status,) = await self.actor.describe()
        return status.whole


def on_disk(story: Callable[[RealWorld], Awaitable[None]], data: Path) -> None:
    asyncio.run(run_story(story, data))


async def run_story(story: Callable[[RealWorld], Awaitable[None]], data: Path) -> None:
    await story(RealWorld(data))


@in_world(on_disk, TMP_PATH)
async def test_a_log_that_was_never_open_here_lacks_nothing(world: RealWorld) -> None:
    assert (await world.open(was_open=False)).whole
    assert (await world.open(was_open=True)).whole
    assert await world.whole()


@in_world(on_disk, TMP_PATH)
async def test_an_empty_log_of_an_older_build_was_not_lost(
    world: RealWorld, *, tmp_path: Path
) -> None:
    """Its broker has marked it: without that nobody could tell it from one that was emptied."""

    topics = tmp_path / "topics"
    partition = directory_name("t", (TOPIC_ID, 0))
    (topics / partition).mkdir(parents=True)
    mark_empty_logs(OsDisk(), str(topics))
    (topics / partition).rename(topics / "t-0")
    assert (await world.open(was_open=True)).whole


@in_world(on_disk, TMP_PATH)
async def test_a_directory_that_was_emptied_has_lost_its_log(
    world: RealWorld, *, tmp_path: Path
) -> None:
    (tmp_path / "topics" / "t-0").mkdir(parents=True)
    assert not (await world.open(was_open=True)).whole


DIRECTORY = "/1/t-0"


def asked(*, lacks: bool = False, was_open: bool = True) -> OpenPartition:
    config = ReplicaWorld(1).config
    return OpenPartition(
        TOPIC_ID, "t", 0, DIRECTORY, config, {"retention.ms": "5"}, was_open, lacks
    )


def opened_on(disk: FaultyDisk) -> bool:
    """Open the lost log as a process does; whether it begins anew."""
    [opened] = open_logs([asked()], disk, 0, frozenset())
    assert isinstance(opened, tuple), opened
    log, found = opened
    log.close()
    return found.wanted.begun_anew


def checked(disk: FaultyDisk, *, lacks: bool = False) -> PartitionFile:
    """What the file of a directory that is there says once it was checked."""
    disk.mkdir(DIRECTORY)
    return check(asked(lacks=lacks), disk).wanted


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_lost_log_stays_lost_whenever_a_process_dies_that_opens_it(power_loss: bool) -> None:
    for dies_at in range(1000):
        disk = FaultyDisk()
        disk.mkdir("/1")
        disk.fsync_dir("/1")
        before = len(disk.calls)
        disk.left = dies_at
        try:
            assert opened_on(disk)
            died = False
        except Killed:
            died = True
        disk.left = -1
        disk.kill()
        if power_loss:
            disk.crash(Random(dies_at))
        assert opened_on(disk), f"forgotten by a death at {disk.calls[before + dies_at]}"
        if not died:
            break
    else:
        pytest.fail("the opening does not end")
    assert dies_at > 5


@pytest.mark.parametrize("call", ["open", "pwritev", "fdatasync", "rename", "fsync_dir"])
def test_a_lost_log_is_not_opened_while_that_cannot_be_noted(call: str) -> None:
    disk = FaultyDisk()
    disk.fail(call, errno.ENOSPC, path=DIRECTORY)
    with pytest.raises(OSError, match="No space left"):
        checked(disk)
    assert not holds_log(disk.listdir(DIRECTORY))
    assert checked(disk).begun_anew


def with_damaged_file(disk: FaultyDisk, *, records: bytes) -> None:
    assert checked(disk).begun_anew
    fd = disk.open(f"{DIRECTORY}/{segment_name(0, 0)}", create=True)
    disk.pwritev(fd, [records], 0)
    disk.close(fd)
    disk.corrupt(f"{DIRECTORY}/{PARTITION_FILE}", 0, b"[")


@pytest.mark.parametrize(("records", "lacks"), [(bytes(61), False), (b"\0" * 11 + b"1", True)])
def test_a_damaged_file_does_not_make_a_lost_log_whole(records: bytes, lacks: bool) -> None:
    disk = FaultyDisk()
    with_damaged_file(disk, records=records)
    assert checked(disk, lacks=lacks).begun_anew


def test_a_damaged_file_does_not_make_a_whole_log_a_lost_one() -> None:
    disk = FaultyDisk()
    with_damaged_file(disk, records=b"\0" * 11 + b"1")
    assert not checked(disk).begun_anew


def test_records_in_one_of_its_segments_show_that_a_log_is_whole() -> None:
    """Behind it there may be one that has space, and nothing in it yet."""
    disk = FaultyDisk()
    with_damaged_file(disk, records=b"\0" * 11 + b"1")
    fd = disk.open(f"{DIRECTORY}/{segment_name(1, 0)}", create=True)
    disk.pwritev(fd, [bytes(61)], 0)
    disk.close(fd)
    assert not checked(disk).begun_anew


def test_a_directory_that_was_put_back_without_its_file_lacks_what_the_metadata_says() -> None:
    disk = FaultyDisk()
    with_damaged_file(disk, records=b"\0" * 11 + b"1")
    disk.unlink(f"{DIRECTORY}/{PARTITION_FILE}")
    assert checked(disk, lacks=True).begun_anew


@pytest.mark.parametrize("leader", [1, 2])
def test_a_log_that_was_lost_lacks_records_until_it_is_in_sync(
    tmp_path: Path, leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also for the processes after that which found the directory missing."""

    async def story(world: RealWorld) -> None:
        for _ in range(2):
            assert not (await world.open(was_open=True)).whole
            assert not await world.whole()
            await world.lead(2, 2)
            assert not await world.whole()
        await world.lead(leader, 1, 2)
        assert await world.whole()
        assert (await world.open(was_open=True)).whole

    on_disk(story, tmp_path)
    said = f"{tmp_path / 'topics' / 't-0'} was lost and begins anew."
    assert len([one for one in caplog.messages if one.startswith(said)]) == 2

"""What a Replica process does for its broker and for coordinators, besides records."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import pytest

from raylog.actors.common_messages import OpenPartition
from raylog.actors.replica.messages import CLAIM, EPOCH_END, PRODUCE, ProducePart, produced
from raylog.actors.runtime.links import InprocLink
from raylog.wire.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from raylog.wire.records import NO_SEQUENCE
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, run_world
from tests.worlds.replica.fake_host import TOPIC_ID
from tests.worlds.runtime import settle
from tests.worlds.storage.logs import batch

LEADER, FOLLOWER = 1, 2
RETENTION_CHECK_MS = 300_000


async def write(world: ReplicaWorld, count: int = 1, partition: int = 0) -> None:
    written = world.produce(LEADER, batch(count), partition=partition)
    await world.pass_ms(100)
    await written


@in_world(run_world, brokers=1, partitions=2)
async def test_a_process_says_who_it_is(world: ReplicaWorld) -> None:
    said = await world.nodes[LEADER].actor.ping()
    assert said == {"name": "replica 1", "pid": os.getpid(), "partitions": 2}


@in_world(run_world, brokers=2, partitions=2)
async def test_a_process_says_how_each_of_its_replicas_is(world: ReplicaWorld) -> None:
    await write(world, 4, partition=1)
    world.replica(LEADER, 1).log.delete_records_to(3)
    await world.kill(FOLLOWER)
    written = world.produce(LEADER, partition=1, acks=1)
    await written
    first, second = await world.nodes[LEADER].actor.describe()
    assert (first.topic_id, first.topic, first.partition) == (TOPIC_ID, "t", 0)
    assert (second.topic_id, second.topic, second.partition) == (TOPIC_ID, "t", 1)
    assert (second.leader_epoch, second.is_leader) == (0, True)
    ends = (second.log_start_offset, second.high_watermark, second.log_end_offset)
    assert ends == (3, 4, 5)
    assert second.size_bytes == len(batch(4)) + len(batch())
    assert (first.size_bytes, second.segments) == (0, 1)
    assert (second.offline, second.whole) == (False, True)


@pytest.mark.parametrize(("epoch", "end"), [(0, (0, 2)), (1, (0, 2)), (2, (2, 3)), (3, (-1, -1))])
@in_world(run_world, brokers=2)
async def test_a_leader_says_where_an_epoch_ended(
    world: ReplicaWorld, *, epoch: int, end: tuple[int, int]
) -> None:
    await write(world, 2)
    await world.elect(FOLLOWER)
    await world.pass_ms(100)
    await world.elect(LEADER)
    await world.pass_ms(100)
    await write(world)
    assert tuple(await world.ask(LEADER, EPOCH_END, 2, epoch)) == end
    assert tuple(await world.ask(LEADER, EPOCH_END, -1, epoch)) == end
    with pytest.raises(FencedLeaderEpoch):
        await world.ask(LEADER, EPOCH_END, 1, epoch)
    with pytest.raises(UnknownLeaderEpoch):
        await world.ask(LEADER, EPOCH_END, 3, epoch)
    with pytest.raises(NotLeaderOrFollower):
        await world.ask(FOLLOWER, EPOCH_END, 2, epoch)


# ---- claims ------------------------------------------------------------------------------


async def outcome(link: InprocLink) -> Sequence[Any]:
    """Of a batch that is written over a link."""
    data = batch()
    part = ProducePart(TOPIC_ID, 0, -1, len(data), NO_SEQUENCE)
    (answer,) = await link.ask(PRODUCE, [1, 1_000, [part]], [data])
    found: Sequence[Any] = answer
    return found


@in_world(run_world, brokers=1)
async def test_newer_claim_fences_the_writer_with_the_older_claim(
    world: ReplicaWorld,
) -> None:
    await write(world, 3)
    older, newer, stranger = (world.connect(world.nodes[LEADER].address) for _ in range(3))
    assert await older.ask(CLAIM, [TOPIC_ID, 0, 0]) == 3
    assert produced(await outcome(older)).base_offset == 3
    assert await newer.ask(CLAIM, [TOPIC_ID, 0, -1]) == 4
    with pytest.raises(NotLeaderOrFollower):
        produced(await outcome(older))
    assert world.replica(LEADER).log.log_end_offset == 4
    assert produced(await outcome(newer)).base_offset == 4
    assert produced(await outcome(stranger)).base_offset == 5


@in_world(run_world, brokers=2)
async def test_a_partition_is_claimed_at_its_leader_and_in_its_epoch(world: ReplicaWorld) -> None:
    await world.elect(LEADER)
    for epoch, refusal in ((0, FencedLeaderEpoch), (2, UnknownLeaderEpoch)):
        with pytest.raises(refusal):
            await world.ask(LEADER, CLAIM, epoch)
    with pytest.raises(NotLeaderOrFollower):
        await world.ask(FOLLOWER, CLAIM, 1)
    assert await world.ask(LEADER, CLAIM, 1) == 0


@in_world(run_world, brokers=1)
async def test_a_link_that_only_claimed_ends_without_harm_to_newer_claims(
    world: ReplicaWorld,
) -> None:
    older, newer = (world.connect(world.nodes[LEADER].address) for _ in range(2))
    for link in (older, newer):
        assert await link.ask(CLAIM, [TOPIC_ID, 0, -1]) == 0
    older.close()
    assert produced(await outcome(newer)).base_offset == 0
    newer.close()
    await write(world)
    assert world.replica(LEADER).log.log_end_offset == 2


# ---- opening and closing -----------------------------------------------------------------


@in_world(run_world, brokers=1)
async def test_open_partition_is_not_opened_again(world: ReplicaWorld) -> None:
    await write(world, 2)
    partition = world.replica(LEADER)
    partition.log.delete_records_to(1)
    where = world.directory(LEADER, 0)
    again = OpenPartition(TOPIC_ID, "t", 0, where, world.config, world.own)
    (opened,) = await world.nodes[LEADER].actor.open_partitions([again])
    assert (opened.error, opened.log_start_offset, opened.log_end_offset) == (None, 1, 2)
    assert world.replica(LEADER) is partition
    assert partition.machine.is_leader


@pytest.mark.parametrize("delete", [False, True])
@in_world(run_world, brokers=2, partitions=2)
async def test_closing_a_partition_answers_waiters_and_keeps_files_unless_deleted(
    world: ReplicaWorld, *, delete: bool
) -> None:
    await world.kill(FOLLOWER)
    written = world.produce(LEADER)
    reader = asyncio.ensure_future(world.fetch(LEADER, wait=True))
    await settle()
    actor, disk = world.nodes[LEADER].actor, world.disks[LEADER]
    stranger = (TOPIC_ID, 7)
    await actor.close_partitions([stranger, world.keys[0]], delete)
    assert await written == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (await reader).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await world.produce(LEADER) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    with pytest.raises(UnknownTopicOrPartition):
        world.replica(LEADER)
    assert world.replica(LEADER, 1).machine.is_leader
    kept = [bool(disk.listdir(world.directory(LEADER, index))) for index in range(2)]
    assert kept == [not delete, True]


@in_world(run_world, brokers=1, config={"retention.ms": "1000"})
async def test_expired_records_go_at_the_next_look_at_retention_and_at_each_one_after_it(
    world: ReplicaWorld,
) -> None:
    await world.nodes[LEADER].actor.start()
    for start in (0, 1):
        written = world.produce(LEADER, batch(timestamp=1))
        await world.pass_ms(RETENTION_CHECK_MS - 1)
        await written
        assert world.replica(LEADER).log.log_start_offset == start
        await world.pass_ms(1)
        assert world.replica(LEADER).log.log_start_offset == start + 1

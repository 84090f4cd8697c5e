"""How much a leader's process sends to a follower's process at once."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.common_messages import PartitionKey
from raylog.actors.replica.messages import REPLICATE, ReplicaInterest, ReplicateAsk, ReplicatedPart
from raylog.actors.runtime.links import InprocLink
from raylog.storage.index import SparseIndex
from raylog.storage.reader import LogReader, ReadJob
from raylog.wire.errors import ErrorCode, KafkaStorageError
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, run_world
from tests.worlds.storage.logs import batch

BATCH = len(batch())
BATCHES = 3
PARTITIONS = 4
FOLLOWER = 9
"""A broker whose process is played."""


async def fetched(
    world: ReplicaWorld,
    link: InprocLink,
    keys: list[PartitionKey],
    *,
    max_bytes: int,
    partition_bytes: int,
) -> list[int]:
    """Bytes of each partition's records in one answer to a follower that has nothing of them."""
    interests = [ReplicaInterest(*key, 0, 0, -1, 0, "played", partition_bytes) for key in keys]
    epochs = [world.metadata[key].leader_epoch for key in keys]
    changes = [
        one._replace(leader_epoch=epoch) for one, epoch in zip(interests, epochs, strict=True)
    ]
    asked = asyncio.ensure_future(
        link.ask(REPLICATE, ReplicateAsk(FOLLOWER, 0, 1, max_bytes, changes, []))
    )
    await world.pass_ms(1)
    parts = [ReplicatedPart(*one) for one in await asked]
    assert not any(part.error_code for part in parts)
    assert {(part.topic_id, part.partition) for part in parts} <= set(world.keys)
    return [part.length for part in parts if part.length]


@pytest.mark.parametrize(
    ("max_bytes", "partition_bytes", "lengths"),
    [
        (100 * BATCH, 100 * BATCH, [3, 3, 3, 3]),
        (100 * BATCH, 2 * BATCH, [2, 2, 2, 2]),
        (8 * BATCH, 100 * BATCH, [3, 3, 2]),
        (7 * BATCH - 1, 100 * BATCH, [3, 3]),
        (6 * BATCH, 100 * BATCH, [3, 3]),
        (2 * BATCH, 100 * BATCH, [2]),
        (BATCH - 1, 100 * BATCH, [1]),
        (100 * BATCH, BATCH - 1, [1]),
    ],
)
@in_world(run_world, brokers=1, partitions=PARTITIONS)
async def test_an_answer_holds_no_more_than_the_follower_asked_for(
    world: ReplicaWorld, *, max_bytes: int, partition_bytes: int, lengths: list[int]
) -> None:
    """Kafka's rule: the first batch comes whatever its size, all others only if they fit."""

    for index in range(PARTITIONS):
        written = world.produce(1, *[batch() for _ in range(BATCHES)], partition=index)
        await world.pass_ms(60)
        await written
    link = world.connect(world.nodes[1].address)
    found = await fetched(
        world, link, world.keys, max_bytes=max_bytes, partition_bytes=partition_bytes
    )
    assert found == [BATCH * count for count in lengths]


@pytest.mark.parametrize("left_over", [0, 1, BATCH])
@in_world(run_world, brokers=1, partitions=PARTITIONS)
async def test_partitions_for_which_there_was_no_room_come_first_in_the_next_answer(
    world: ReplicaWorld, *, left_over: int
) -> None:
    for index in range(PARTITIONS):
        written = world.produce(1, batch(count=index + 1), partition=index)
        await world.pass_ms(60)
        await written
    sizes = [len(batch(count=index + 1)) for index in range(PARTITIONS)]
    link = world.connect(world.nodes[1].address)
    room = sizes[0] + sizes[1] + left_over
    assert await fetched(world, link, world.keys, max_bytes=room, partition_bytes=9999) == sizes[:2]
    again = world.keys[:1]  # named again, behind those that still wait
    found = await fetched(world, link, again, max_bytes=sizes[2] + sizes[3], partition_bytes=9999)
    assert found == sizes[2:]


def test_a_log_that_is_offline_when_its_index_is_wanted_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offline(reader: LogReader, offset: int) -> ReadJob[SparseIndex]:
        raise KafkaStorageError("the log is offline")

    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(1, batch())
        await world.pass_ms(60)
        await written
        monkeypatch.setattr(LogReader, "is_indexed", lambda *_: False)
        monkeypatch.setattr(LogReader, "begin_index", offline)
        link = world.connect(world.nodes[1].address)
        key = world.keys[0]
        interest = ReplicaInterest(*key, 0, 0, -1, 0, "played", 1_000)
        interest = interest._replace(leader_epoch=world.metadata[key].leader_epoch)
        asked = link.ask(REPLICATE, ReplicateAsk(FOLLOWER, 0, 1, 1_000, [interest], []))
        await world.pass_ms(1)
        (part,) = [ReplicatedPart(*one) for one in await asked]
        assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run_world(scenario)

"""Requests that the leaders of partitions answer, each partition on its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.gateway.context import TURN
from raylog.actors.gateway.handlers import describe_producers
from raylog.actors.metadata.records import PartitionChanged
from raylog.actors.replica.messages import pack_producers
from raylog.storage.producers import ProducerInfo
from raylog.wire.errors import (
    ErrorCode,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from raylog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raylog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raylog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, topic_id
from tests.worlds.runtime import FakeLink, settle

T = topic_id("t")


def offsets_of(
    *partitions: tuple[int, int], topic: str = "t", epoch: int = -1, **more: Any
) -> ListOffsetsRequest:
    """Ask for (partition, timestamp) pairs."""
    asked = [
        ListOffsetsPartition(partition_index=index, timestamp=time, current_leader_epoch=epoch)
        for index, time in partitions
    ]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)], **more
    )


async def served(world: World, partitions: int = 2) -> FakeLink:
    await world.brokers(1)
    await world.topic("t", partitions)
    return await world.route("replica", *((T, index) for index in range(partitions)))


# ---- ListOffsets -----------------------------------------------------------------------------


@in_world(run)
async def test_list_offsets_asks_the_leader_and_tells_what_it_says(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(offsets_of((0, -1), (1, 500), epoch=3, isolation_level=1), 11)
    assert [one.header for one in link.requests] == [(T, 0, 3, -1, 1), (T, 1, 3, 500, 1)]
    link.requests[1].reply((7, 501, 2))
    assert client.received() == []
    link.requests[0].reply((9, -1, 3))
    (answer,) = client.received()
    assert answer.topics[0].partitions == [
        ListOffsetsPartitionResponse(partition_index=0, offset=9, timestamp=-1, leader_epoch=3),
        ListOffsetsPartitionResponse(partition_index=1, offset=7, timestamp=501, leader_epoch=2),
    ]
    assert world.runtime.pending_timers() == 0


@pytest.mark.parametrize("version", range(1, 12))
@in_world(run)
async def test_list_offsets_in_each_version(world: World, *, version: int) -> None:
    link = await served(world)
    link.answering = lambda _request: (9, 8, 3)
    answer = await world.client().ask(offsets_of((0, 8)), version)
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.offset, found.timestamp) == (0, 9, 8)
    assert found.leader_epoch == (3 if version >= 4 else -1)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)]
)
@in_world(run)
async def test_timestamps_with_a_meaning_came_with_versions(
    world: World, *, timestamp: int, since: int
) -> None:
    link = await served(world)
    link.answering = lambda _request: (0, -1, 0)
    for version in range(1, 12):
        answer = await world.client().ask(offsets_of((0, timestamp)), version)
        expected = 0 if version >= since else ErrorCode.UNSUPPORTED_VERSION
        assert answer.topics[0].partitions[0].error_code == expected


@pytest.mark.parametrize("version", range(1, 12))
@in_world(run)
async def test_a_leader_that_does_not_know_the_end_yet(world: World, *, version: int) -> None:
    """KIP-207."""

    link = await served(world)
    client = world.client()
    client.send(offsets_of((0, -1)), version)
    link.take().fail(OffsetNotAvailable("the high watermark is below the epoch's start"))
    (answer,) = client.received()
    expected = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    assert answer.topics[0].partitions[0].error_code == expected


@in_world(run)
async def test_list_offsets_of_what_is_not_served_here(world: World) -> None:
    link = await served(world, 1)
    link.answering = lambda _request: (4, -1, 0)
    await world.brokers(2)
    await world.topic("elsewhere", leader=2)
    client = world.client()
    request = offsets_of((0, -1), (5, -1), (6, -1), (6, -2))
    request.topics += offsets_of((0, -1), topic="elsewhere").topics
    request.topics += offsets_of((0, -1), topic="none").topics
    answer = await client.ask(request, 11)
    found = {
        (topic.name, part.partition_index): ErrorCode(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    }
    assert found == {
        ("t", 0): ErrorCode.NONE,
        ("t", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 6): ErrorCode.INVALID_REQUEST,
        ("elsewhere", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert all(
        (part.offset, part.timestamp, part.leader_epoch) == (-1, -1, -1)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code
    )


@in_world(run)
async def test_refusal_of_a_leader_is_the_error_of_that_partition(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(offsets_of((0, -1), (1, -1)), 11)
    link.requests[0].fail(UnknownLeaderEpoch("newer than mine"))
    link.requests[1].reply((3, -1, 0))
    (answer,) = client.received()
    errors = [part.error_code for part in answer.topics[0].partitions]
    assert errors == [ErrorCode.UNKNOWN_LEADER_EPOCH, 0]


@in_world(run)
async def test_a_lost_replica_is_no_leader(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(offsets_of((0, -1)), 11)
    link.lose()
    (answer,) = client.received()
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_world(run)
async def test_late_answer_is_timed_out_and_then_ignored(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(offsets_of((0, -1), (1, -1), timeout_ms=5_000), 11)
    link.requests[0].reply((3, -1, 0))
    await world.runtime.advance(4_999)
    assert client.received() == []
    await world.runtime.advance(1)
    (answer,) = client.received()
    errors = [part.error_code for part in answer.topics[0].partitions]
    assert errors == [0, ErrorCode.REQUEST_TIMED_OUT]
    link.requests[1].reply((3, -1, 0))
    await settle()
    assert client.received() == []


@in_world(run)
async def test_an_answer_that_comes_after_the_client_has_left_goes_nowhere(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(offsets_of((0, -1)), 11)
    client.connection.connection_lost(None)
    link.requests[0].reply((3, -1, 0))
    assert client.received() == []


@in_world(run)
async def test_answers_keep_the_order_of_the_requests(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(offsets_of((0, -1)), 11)
    client.send(offsets_of((1, -1)), 11)
    link.requests[1].reply((2, -1, 0))
    assert client.received() == []
    link.requests[0].reply((1, -1, 0))
    first, second = client.received()
    assert first.topics[0].partitions[0].offset == 1
    assert second.topics[0].partitions[0].offset == 2


# ---- OffsetForLeaderEpoch --------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3, 4])
@in_world(run)
async def test_offset_for_leader_epoch(world: World, *, version: int) -> None:
    link = await served(world)
    link.answering = lambda request: (request.header[3], 40 + request.header[1])
    asked = [
        OffsetForLeaderPartition(partition=index, current_leader_epoch=6, leader_epoch=5)
        for index in (1, 0, 9)
    ]
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(topic="t", partitions=asked),
            OffsetForLeaderTopic(topic="none", partitions=asked[:1]),
        ]
    )
    answer = await world.client().ask(request, version)
    assert [one.header for one in link.requests] == [(T, 1, 6, 5), (T, 0, 6, 5)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[0].partitions == [
        EpochEndOffset(partition=1, leader_epoch=5, end_offset=41),
        EpochEndOffset(partition=0, leader_epoch=5, end_offset=40),
        EpochEndOffset(partition=9, error_code=unknown),
    ]
    assert answer.topics[1].partitions == [EpochEndOffset(partition=1, error_code=unknown)]


# ---- DeleteRecords ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_delete_records(version: int) -> None:
    def delete(request: Any) -> int:
        _, _, offset = request.header
        if offset > 10:
            raise OffsetOutOfRange(f"{offset} is past the end")
        return int(offset)

    async def scenario(world: World) -> None:
        link = await served(world)
        link.answering = delete
        asked = [DeleteRecordsPartition(partition_index=i, offset=o) for i, o in ((0, 7), (1, 11))]
        topics = [
            DeleteRecordsTopic(name=name, partitions=asked)
            for name in ("t", "none", "__consumer_offsets")
        ]
        answer = await world.client().ask(
            DeleteRecordsRequest(topics=topics, timeout_ms=1000), version
        )
        assert answer.topics[0].partitions == [
            DeleteRecordsPartitionResult(partition_index=0, low_watermark=7),
            DeleteRecordsPartitionResult(
                partition_index=1, low_watermark=-1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE
            ),
        ]
        unknown, internal = (topic.partitions[0].error_code for topic in answer.topics[1:])
        assert unknown == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert internal == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario)


@in_world(run)
async def test_delete_records_waits_at_least_a_moment(world: World) -> None:
    await served(world)
    client = world.client()
    asked = [DeleteRecordsPartition(partition_index=0, offset=1)]
    topics = [DeleteRecordsTopic(name="t", partitions=asked)]
    client.send(DeleteRecordsRequest(topics=topics, timeout_ms=0), 2)
    await world.runtime.advance(99)
    assert client.received() == []
    await world.runtime.advance(1)
    (answer,) = client.received()
    assert answer.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


# ---- DescribeProducers -----------------------------------------------------------------------


@in_world(run)
async def test_describe_producers(world: World) -> None:
    link = await served(world, 1)
    found = [ProducerInfo(4, 1, 17, 1000, -1, 12), ProducerInfo(5, 0, 3, 900, 2, -1)]
    link.answering = lambda _request: pack_producers(found)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 3])])
    answer = await world.client().ask(request, 0)
    assert link.requests[0].header == (T, 0)
    known, unknown = answer.topics[0].partitions
    assert known == PartitionResponse(
        partition_index=0,
        active_producers=[
            ProducerState(
                producer_id=4,
                producer_epoch=1,
                last_sequence=17,
                last_timestamp=1000,
                coordinator_epoch=-1,
                current_txn_start_offset=12,
            ),
            ProducerState(
                producer_id=5,
                producer_epoch=0,
                last_sequence=3,
                last_timestamp=900,
                coordinator_epoch=2,
                current_txn_start_offset=-1,
            ),
        ],
    )
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "partitions 0 to 0" in unknown.error_message


class Turns:
    """How many replica answers a gateway took between two checks of other connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest = self._now = 0
        state = describe_producers._state

        def counting(found: ProducerInfo) -> ProducerState:
            self._now += 1
            self.longest = max(self.longest, self._now)
            return state(found)

        monkeypatch.setattr(describe_producers, "_state", counting)

    async def watch(self) -> None:
        """Note each turn of the event loop, for as long as that takes."""
        for _ in range(100):
            self._now = 0
            await asyncio.sleep(0)


@in_world(run)
async def test_many_producers_are_described_in_turns(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may make hundreds of thousands of them, with a batch each."""

    link = await served(world, 3)
    found = [ProducerInfo(n, 0, 0, 0, -1, -1) for n in range(2_000)]
    link.answering = lambda _request: pack_producers(found)
    turns = Turns(monkeypatch)
    topic = TopicRequest(name="t", partition_indexes=[0, 1, 2])
    client = world.client()
    client.send(DescribeProducersRequest(topics=[topic]), 0)
    await turns.watch()
    (answer,) = client.received()
    counts = [len(one.active_producers) for one in answer.topics[0].partitions]
    assert counts == [2_000] * 3
    assert turns.longest <= TURN


@in_world(run)
async def test_producers_of_one_partition_may_come_long_after_those_of_another(
    world: World,
) -> None:
    link = await served(world, 2)
    packed = pack_producers([ProducerInfo(n, 0, 0, 0, -1, -1) for n in range(3)])
    client = world.client()
    topic = TopicRequest(name="t", partition_indexes=[0, 1])
    client.send(DescribeProducersRequest(topics=[topic]), 0)
    for question in link.requests:
        assert client.received() == []
        question.reply(packed)
        await settle()
    (answer,) = client.received()
    found = [len(one.active_producers) for one in answer.topics[0].partitions]
    assert found == [3, 3]
    assert world.runtime.pending_timers() == 0


def test_time_may_be_up_while_producers_are_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is answered once, with the error of what was not there in time."""
    monkeypatch.setattr(describe_producers, "REPLICA_TIMEOUT_MS", 1_000)

    async def scenario(world: World) -> None:
        link = await served(world, 2)
        packed = pack_producers([ProducerInfo(n, 0, 0, 0, -1, -1) for n in range(2_000)])
        client = world.client()
        topic = TopicRequest(name="t", partition_indexes=[0, 1])
        client.send(DescribeProducersRequest(topics=[topic]), 0)
        link.requests[0].reply(packed)
        await asyncio.sleep(0)
        await world.runtime.advance(1_000)
        (answer,) = client.received()
        assert [one.error_code for one in answer.topics[0].partitions][1] == 7
        link.requests[1].reply(packed)
        await settle()
        assert client.received() == []

    run(scenario)


@in_world(run)
async def test_the_start_of_a_leader_is_waited_for(world: World) -> None:
    link = await served(world, 1)
    client = world.client()
    await world.unroute((TopicId(T), 0))
    client.send(offsets_of((0, -1)), 11)
    await settle()
    assert client.received() == []
    await world.route("replica", (TopicId(T), 0))
    await settle()
    link.requests[0].reply((7, -1, 0))
    (answer,) = client.received()
    assert answer.topics[0].partitions[0].offset == 7


@in_world(run)
async def test_a_leader_that_does_not_start_is_not_waited_for_long(world: World) -> None:
    await served(world, 1)
    client = world.client()
    await world.unroute((TopicId(T), 0))
    client.send(offsets_of((0, -1)), 11)
    await world.runtime.advance(1_000)
    (answer,) = client.received()
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_a_leader_that_moves_on_before_it_has_started_is_not_waited_for(world: World) -> None:
    await served(world, 1)
    client = world.client()
    await world.unroute((TopicId(T), 0))
    client.send(offsets_of((0, -1)), 11)
    await settle()
    await world.apply(PartitionChanged(TopicId(T), 0, leader=2))
    await settle()
    (answer,) = client.received()
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

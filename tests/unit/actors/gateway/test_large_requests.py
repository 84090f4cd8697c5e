"""Requests at and beyond their API's limits, and requests that follow large ones."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest

from raylog.actors.gateway import actor, large_requests, topic_metadata
from raylog.actors.gateway.answers import LEADER_START_MS
from raylog.actors.gateway.context import TURN
from raylog.actors.gateway.large_requests import DECODED_BYTES_MAX, STANDSTILL_MS
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import ConfigChanged
from raylog.actors.replica.messages import DELETE_RECORDS, FETCH, OFFSET_FOR, PRODUCE, PRODUCERS
from raylog.actors.runtime.deadlines import TICK_MS
from raylog.wire.api import ELEMENT_BYTES, LIGHT_ELEMENTS_MAX, ApiKey, limit_of
from raylog.wire.compression import Codec
from raylog.wire.errors import ErrorCode
from raylog.wire.frame import encode_request
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raylog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.messages.produce import ProduceRequest
from raylog.wire.records import Record, encode_batch
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, topic_id
from tests.worlds.gateway.fetching import fetch
from tests.worlds.gateway.producing import appended, codes, produce
from tests.worlds.runtime import settle

T = topic_id("t")
BATCH = encode_batch([Record(0, 1_000_000, b"k", b"v", [])])


def offsets(partitions: int) -> ListOffsetsRequest:
    parts = [ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(partitions)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=parts)])


def asked(topics: int) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name="t")] * topics, allow_auto_topic_creation=False
    )


def test_request_with_too_many_elements_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        most = limit_of(ApiKey.METADATA).elements_max
        client.send(asked(most + 1), 9)
        await settle()
        assert client.transport.closed
        assert "cannot be read" in caplog.text
        other = world.client()
        other.send(asked(most), 9)
        await settle()
        assert len(other.received()[0].topics) == 1

    caplog.set_level("INFO")
    run(scenario)


@in_world(run)
async def test_a_request_too_long_for_its_api_is_refused_by_its_first_bytes(world: World) -> None:
    client = world.client()
    length = limit_of(ApiKey.HEARTBEAT).bytes_max + 1
    client.send_bytes(length.to_bytes(4, "big") + int(ApiKey.HEARTBEAT).to_bytes(2, "big"))
    assert client.transport.closed
    produces = world.client()
    produces.send_bytes(length.to_bytes(4, "big") + int(ApiKey.PRODUCE).to_bytes(2, "big"))
    assert not produces.transport.closed


@in_world(run)
async def test_large_requests_are_answered_in_turns_and_overtaken_by_others_only(
    world: World,
) -> None:
    await world.brokers(1)
    await world.topic("t", LIGHT_ELEMENTS_MAX)
    link = await world.route("replica", *((T, at) for at in range(LIGHT_ELEMENTS_MAX)))
    link.answering = lambda request: (7, -1, 0)
    client, other = world.client(), world.client()
    client.send(offsets(LIGHT_ELEMENTS_MAX), 5)
    assert not client.transport.reading, "what comes behind it waits"
    client.send(ApiVersionsRequest(), 0)
    other.send(ApiVersionsRequest(), 0)
    assert len(other.received()) == 1
    assert link.kinds().count(OFFSET_FOR) < LIGHT_ELEMENTS_MAX, "that was in between"
    for _ in range(5):
        await settle()
    large, small = client.received()
    assert [one.offset for one in large.topics[0].partitions] == [7] * LIGHT_ELEMENTS_MAX
    assert small.error_code == 0
    assert client.connection.is_paused is False


def test_one_large_request_has_its_turn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one that comes in between waits for one turn, however many large ones there are."""
    count, clients = 4 * TURN, 8

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", count)
        link = await world.route("replica", *((T, at) for at in range(count)))
        link.answering = lambda request: (7, -1, 0)
        asking = [world.client() for _ in range(clients)]
        for client in asking:
            client.send(offsets(count), 5)
        most, before = 0, link.kinds().count(OFFSET_FOR)
        while before < clients * count:
            await asyncio.sleep(0)
            asked = link.kinds().count(OFFSET_FOR)
            most, before = max(most, asked - before), asked
        assert most <= TURN
        await settle()
        assert [len(client.received()) for client in asking] == [1] * clients

    run(scenario)


def test_one_task_waits_for_all_leaders_that_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change has all of them looked at: a task for each would look again and again."""
    count = 600

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", count, opened=False)
        started: list[str] = []
        start = world.runtime.start

        def starting(coroutine: Any, name: str) -> Any:
            started.append(name)
            return start(coroutine, name)

        monkeypatch.setattr(world.runtime, "start", starting)
        client = world.client()
        client.send(offsets(count), 5)
        await settle()
        assert started.count("leaders that start") == 1
        assert len(world.gateway.cluster._changed) <= 3
        link = await world.route("replica", *((T, at) for at in range(count)))
        link.answering = lambda request: (7, -1, 0)
        await world.runtime.advance(20)
        (answer,) = client.received()
        assert [one.offset for one in answer.topics[0].partitions] == [7] * count

    run(scenario)


def test_leaders_that_do_not_start_fail_together() -> None:
    count = 600

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", count, opened=False)
        client = world.client()
        client.send(offsets(count), 5)
        await world.runtime.advance(LEADER_START_MS - 1)
        assert client.received() == []
        await world.runtime.advance(100)
        (answer,) = client.received()
        codes = {one.error_code for one in answer.topics[0].partitions}
        assert codes == {int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
        await world.runtime.advance(60_000)

    run(scenario)


def test_the_partitions_of_one_topic_are_reported_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[int] = []
    partition = topic_metadata._partition

    def describe(image: MetadataImage, index: int, state: PartitionState, listener: str) -> Any:
        described.append(index)
        return partition(image, index, state, listener)

    monkeypatch.setattr(topic_metadata, "_partition", describe)

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", 3_000)
        client, other = world.client(), world.client()
        client.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        other.send(ApiVersionsRequest(), 0)
        assert len(other.received()) == 1
        assert client.received() == []
        assert described == list(range(TURN)), "with others between"
        await settle()
        await settle()
        (answer,) = client.received()
        assert [one.partition_index for one in answer.topics[0].partitions] == list(range(3_000))
        client.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        await settle()
        await settle()
        assert client.received() == [answer], "as it was built before"

    run(scenario)


def test_a_produce_request_with_many_batches_keeps_its_place() -> None:
    count = 600

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", count)
        link = await world.route("replica", *((T, at) for at in range(count)))
        client = world.client()
        client.send(produce(*((at, BATCH) for at in range(count)), timeout_ms=1_000), 9)
        client.send(produce((0, BATCH), timeout_ms=1_000), 9)
        for _ in range(5):
            await settle()
        sizes = [len(one.header[2]) for one in link.requests if one.kind == PRODUCE]
        assert sizes == [250, 250, 100, 1], "in parts, and the second request behind all of them"

    run(scenario)


def test_a_request_of_two_producers_writes_nothing_however_long_it_takes() -> None:
    """The first batch is decompressed, and done with that, before the last one is looked at."""
    slow = [Record(at, 1_000_000, b"k", bytes(500), []) for at in range(1_000)]
    first, last = (
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
            codec=Codec.LZ4,
        )
        for records, producer_id in ((slow, 5), (slow[:1], 6))
    )
    count = 600

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", count)
        link = await world.route("replica", *((T, at) for at in range(count)))
        between = [(at, BATCH) for at in range(1, count - 1)]
        request = produce((0, first), *between, (count - 1, last))
        request.transactional_id = "x"
        client = world.client()
        client.send(request, 9)
        for _ in range(5):
            await settle()
        (answer,) = client.received()
        assert codes(answer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * count
        assert link.requests == []

    run(scenario)


def test_slow_batches_of_a_large_request_are_sent_in_turns() -> None:
    slow = [Record(at, 1_000_000, b"k", bytes(500), []) for at in range(1_000)]
    count = 600

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", count)
        link = await world.route("replica", *((T, at) for at in range(count)))
        link.answering = appended
        batches = [encode_batch(slow, codec=Codec.LZ4), *[BATCH] * (count - 1)]
        client = world.client()
        client.send(produce(*enumerate(batches)), 9)
        for _ in range(5):
            await settle()
        (answer,) = client.received()
        assert codes(answer) == [ErrorCode.NONE] * count
        assert sorted(part.partition for one in link.requests for part in one.header[2]) == list(
            range(count)
        )
        await world.runtime.advance(TICK_MS)
        assert world.runtime.pending_timers() == 0

    run(scenario)


def test_record_errors_of_an_answer_are_limited() -> None:
    refused = encode_batch([Record(at, 1_000_000, None, b"v", []) for at in range(700)])

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", 3)
        await world.apply(ConfigChanged(2, "t", "cleanup.policy", "compact"))
        await world.route("replica", *((T, at) for at in range(3)))
        request: ProduceRequest = produce(*((at, refused) for at in range(3)), timeout_ms=1_000)
        answer = await world.client().ask(request, 9)
        found = [len(one.record_errors) for one in answer.responses[0].partition_responses]
        assert found == [700, 300, 0]

    run(scenario)


@in_world(run)
async def test_a_resource_is_described_once(world: World) -> None:
    await world.brokers(1)
    broker = DescribeConfigsResource(resource_type=4, resource_name="1")
    once = await world.client().ask(DescribeConfigsRequest(resources=[broker]), 4)
    often = await world.client().ask(DescribeConfigsRequest(resources=[broker] * 300), 4)
    assert often == once


@pytest.mark.parametrize(("count", "calls"), [(600, [500, 100]), (5_001, [])])
@in_world(run)
async def test_missing_topics_are_made_in_parts_and_not_beyond_a_number(
    world: World, *, count: int, calls: list[int]
) -> None:
    await world.brokers(1)
    world.controller.script["create_topics"] = lambda asked: []
    topics = [MetadataRequestTopic(name=f"m{at}") for at in range(count)]
    client = world.client()
    client.send(MetadataRequest(topics=topics), 9)
    for _ in range(5):
        await settle()
    (answer,) = client.received()
    assert len(answer.topics) == count
    assert [len(asked.topics) for _, asked in world.controller.asked] == calls


@in_world(run)
async def test_each_partition_is_worked_on_once_however_its_topic_is_repeated(world: World) -> None:
    await world.brokers(1)
    await world.topic("t")
    link = await world.route("replica", (T, 0))
    client = world.client()
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    twice = [ListOffsetsTopic(name="t", partitions=[part])] * 20
    answer = await client.ask(ListOffsetsRequest(topics=twice), 7)
    codes = {one.error_code for topic in answer.topics for one in topic.partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}, "as Apache Kafka answers each of them"
    client.send(
        DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0] * 9)] * 9),
        0,
    )
    gone = DeleteRecordsPartition(partition_index=0, offset=5)
    client.send(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[gone] * 9)] * 9, timeout_ms=1_000
        ),
        2,
    )
    assert link.kinds() == [PRODUCERS, DELETE_RECORDS]


@pytest.mark.long
def test_many_large_requests_at_once_take_little_more_memory_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their objects take ten times their bytes: not all of them are there at the same time."""
    count = 2 * LIGHT_ELEMENTS_MAX
    topics = [MetadataRequestTopic(name=f"u{at}") for at in range(count)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    frame = b"".join(encode_request(ApiKey.METADATA, 9, 7, "test", request))
    peaks = []

    async def scenario(world: World) -> None:
        for at_once in (1, 8):
            clients = [world.client() for _ in range(at_once)]
            for client in clients:
                client.connection.get_buffer(-1)  # what is received into is not what is measured
            tracemalloc.start()
            try:
                for client in clients:
                    client.send_bytes(frame)
                while any(client.connection.waits_for_answer for client in clients):
                    await settle()
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            peaks.append(peak - sum(len(client.transport.written) for client in clients))
        assert not world.runtime.pending_timers()

    monkeypatch.setattr(large_requests, "DECODED_BYTES_MAX", 2 * count * ELEMENT_BYTES)
    run(scenario)
    assert peaks[1] < 4 * peaks[0], f"{peaks[0] >> 10} and {peaks[1] >> 10} KiB"


def test_the_largest_request_of_each_api_fits_what_may_be_decoded() -> None:
    assert max(one.limit.elements_max for one in ApiKey) * ELEMENT_BYTES <= DECODED_BYTES_MAX


def test_large_requests_wait_their_turn_and_small_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that wait for a peer that does not answer keep the others for a moment only."""
    count = LIGHT_ELEMENTS_MAX

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", count)
        link = await world.route("replica", *((T, at) for at in range(count)))

        async def all_turns() -> None:
            for _ in range(5):
                await settle()

        clients = [world.client() for _ in range(5)]
        for client in clients:
            client.send(offsets(count), 5)
        await all_turns()
        assert link.kinds().count(OFFSET_FOR) == 2 * count
        await world.client().ask(ApiVersionsRequest(), 0)
        await world.runtime.advance(STANDSTILL_MS - 1)
        assert link.kinds().count(OFFSET_FOR) == 2 * count
        for question in tuple(link.requests):
            question.reply((7, -1, 0))
        await all_turns()
        assert link.kinds().count(OFFSET_FOR) == 4 * count, "these are answered"
        await world.runtime.advance(2 * STANDSTILL_MS)
        await all_turns()
        assert link.kinds().count(OFFSET_FOR) == 5 * count, "these stand still"

    monkeypatch.setattr(large_requests, "DECODED_BYTES_MAX", (2 * count + 2) * ELEMENT_BYTES)
    run(scenario)


def test_a_large_request_that_fails_makes_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    async def scenario(world: World) -> None:
        first, second = world.client(), world.client()
        with monkeypatch.context() as patched:
            patched.setattr(actor, "handler_of", lambda _key: broken)
            first.send(asked(2 * LIGHT_ELEMENTS_MAX), 9)
            await settle()
        assert first.transport.closed
        second.send(asked(2 * LIGHT_ELEMENTS_MAX), 9)
        await settle()
        assert len(second.received()) == 1
        assert world.runtime.pending_timers() == 0

    monkeypatch.setattr(large_requests, "DECODED_BYTES_MAX", 1)
    run(scenario)


def test_a_large_request_that_waits_for_records_makes_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 2 * LIGHT_ELEMENTS_MAX

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", count)
        link = await world.route("replica", *((T, at) for at in range(count)))
        waiting, other = world.client(), world.client()
        waiting.send(fetch(*((at, 0) for at in range(count)), max_wait_ms=60_000), 13)
        for _ in range(3):
            await settle()
        assert link.kinds() == [FETCH]
        other.send(asked(count), 9)
        for _ in range(3):
            await settle()
        assert len(other.received()) == 1
        assert waiting.received() == []

    monkeypatch.setattr(large_requests, "DECODED_BYTES_MAX", 1)
    run(scenario)


def test_a_request_stands_still_from_the_last_turn_that_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = LIGHT_ELEMENTS_MAX

    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t", count)
        link = await world.route("replica", *((T, at) for at in range(count)))
        for client in (world.client(), world.client()):
            client.send(offsets(count), 5)
        for expected in (count, 2 * count):
            await world.runtime.advance(STANDSTILL_MS)
            await settle()
            await settle()
            assert link.kinds().count(OFFSET_FOR) == expected

    monkeypatch.setattr(large_requests, "DECODED_BYTES_MAX", 1)
    run(scenario)

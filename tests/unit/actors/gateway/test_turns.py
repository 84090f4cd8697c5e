"""Requests handled in turns that fail in a later turn; edge cases of lanes and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raylog.actors.gateway import actor
from raylog.actors.gateway.answers import LEADER_START_MS, REPLICA_TIMEOUT_MIN_MS
from raylog.actors.gateway.connection import (
    BEGUN_MAX,
    PIPELINED_MAX,
    TURN_MS,
    WAITING_MAX,
    Slot,
)
from raylog.actors.gateway.connections import PART_MS
from raylog.actors.gateway.context import LARGE_TURNS, TURN, RequestContext
from raylog.actors.gateway.handlers.table import handler_of
from raylog.actors.gateway.lanes import WIDTH, Lanes
from raylog.actors.gateway.memory import RequestMemory
from raylog.actors.replica.messages import OFFSET_FOR, PRODUCE
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, InvalidRequest
from raylog.wire.frame import encode_request
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raylog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raylog.wire.records import Record, encode_batch
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import FakeClient, World, run, topic_id
from tests.worlds.gateway.producing import produce
from tests.worlds.runtime import FakeLink, settle

T = topic_id("t")
BATCH = encode_batch([Record(0, 1_000_000, b"k", b"v", [])])
WRITTEN = [(40, -1, 7)]


def is_paused(client: FakeClient) -> bool:
    return client.connection.is_paused


def in_turns(
    monkeypatch: pytest.MonkeyPatch, turns: int, failure: Exception | None = None
) -> list[int]:
    """DescribeCluster takes so many turns from now on, then fails or succeeds; its turns so far."""
    taken: list[int] = []

    def handler(context: RequestContext, _request: Any) -> None:
        def each() -> Iterator[int]:
            for turn in range(turns):
                taken.append(turn)
                yield TURN
            if failure is not None:
                raise failure

        context.in_turns(each(), lambda: context.reply(DescribeClusterResponse()))

    monkeypatch.setattr(
        actor,
        "handler_of",
        lambda key: handler if key.name == "DESCRIBE_CLUSTER" else handler_of(key),
    )
    return taken


# ---- turns -----------------------------------------------------------------------------------


@in_world(run)
async def test_a_refusal_in_a_later_turn_is_answered_and_the_connection_goes_on(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_turns(monkeypatch, 3, InvalidRequest("nonsense"))
    client = world.client()
    client.send(DescribeClusterRequest(), 2)
    client.send(ApiVersionsRequest(), 0)
    assert is_paused(client)
    await settle()
    refused, other = client.received()
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "nonsense",
    )
    assert other.api_keys
    assert not is_paused(client)
    assert world.gateway.memory.held == 0


@in_world(run)
async def test_unexpected_error_in_a_later_turn_closes_only_that_connection(
    world: World, *, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_turns(monkeypatch, 2, ZeroDivisionError("a bug"))
    client, other = world.client(), world.client()
    client.send(DescribeClusterRequest(), 2)
    await settle()
    assert client.transport.closed
    assert "ZeroDivisionError: a bug" in caplog.text
    client.connection.connection_lost(None)
    assert world.gateway.memory.held == 0
    monkeypatch.undo()
    in_turns(monkeypatch, 2)
    assert (await other.ask(DescribeClusterRequest(), 2)).error_code == 0


@in_world(run)
async def test_a_broken_invariant_in_a_later_turn_ends_the_actor(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = AssertionError("cannot be")
    in_turns(monkeypatch, 2, broken)
    world.client().send(DescribeClusterRequest(), 2)
    await settle()
    assert world.runtime.failures == [broken]
    world.runtime.failures.clear()


@pytest.mark.parametrize(("items", "at_once"), [(TURN - 1, True), (TURN, False), (TURN + 1, False)])
def test_a_turn_ends_with_so_many_items(
    monkeypatch: pytest.MonkeyPatch, items: int, at_once: bool
) -> None:
    def handler(context: RequestContext, _request: Any) -> None:
        context.in_turns(iter([1] * items), lambda: context.reply(DescribeClusterResponse()))

    async def scenario(world: World) -> None:
        monkeypatch.setattr(actor, "handler_of", lambda _key: handler)
        client = world.client()
        client.send(DescribeClusterRequest(), 2)
        assert len(client.received()) == at_once
        await settle()
        assert len(client.received()) == (not at_once)
        assert not is_paused(client)

    run(scenario)


@pytest.mark.parametrize(("turns", "aside"), [(LARGE_TURNS, []), (LARGE_TURNS + 1, ["encode"])])
@in_world(run)
async def test_an_answer_that_took_many_turns_is_encoded_beside_the_loop(
    world: World, *, monkeypatch: pytest.MonkeyPatch, turns: int, aside: list[str]
) -> None:
    in_turns(monkeypatch, turns)
    called = []
    encode = world.gateway.large_requests.encode

    async def recording(work: Callable[[], Any]) -> Any:
        called.append("encode")
        return await encode(work)

    monkeypatch.setattr(world.gateway.large_requests, "encode", recording)
    answer = await world.client().ask(DescribeClusterRequest(), 2)
    assert (answer.error_code, called) == (0, aside)


def test_a_large_answer_that_cannot_be_written_closes_that_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(context: RequestContext, _request: Any) -> None:
        context.is_large = True
        context.reply(DescribeClusterResponse(controller_id=1 << 40))

    async def scenario(world: World) -> None:
        monkeypatch.setattr(actor, "handler_of", lambda _key: handler)
        client = world.client()
        client.send(DescribeClusterRequest(), 2)
        await settle()
        assert client.transport.closed
        assert "cannot be written" in caplog.text
        client.connection.connection_lost(None)
        assert world.gateway.memory.held == 0

    run(scenario)


# ---- lanes -----------------------------------------------------------------------------------


@in_world(run)
async def test_a_broken_invariant_in_a_lane_ends_the_actor(world: World) -> None:
    broken = AssertionError("cannot be")

    async def work() -> None:
        raise broken

    failures: list[Exception] = []
    lanes = Lanes(world.gateway.runtime)
    lanes.enter((T, 0), work, lambda _: None, failures.append)
    await settle()
    assert world.runtime.failures == [broken]
    assert failures == []
    world.runtime.failures.clear()


@in_world(run)
async def test_lanes_run_concurrently_up_to_the_width_and_each_in_order(world: World) -> None:
    lanes = Lanes(world.gateway.runtime)
    moving: list[tuple[int, int]] = []
    done: list[Any] = []

    def work(place: tuple[int, int]) -> Callable[[], Any]:
        async def works() -> tuple[int, int]:
            moving.append(place)
            await world.gateway.runtime.sleep(1)
            return place

        return works

    for place in [(lane, turn) for turn in range(2) for lane in range(WIDTH + 1)]:
        lanes.enter((T, place[0]), work(place), done.append, done.append)
    await settle()
    assert moving == [(lane, 0) for lane in range(WIDTH)]
    await world.runtime.advance(1_000)
    assert done == [(lane, 0) for lane in range(WIDTH)]
    assert moving[WIDTH] == (WIDTH, 0), "it has waited longest"
    assert len(moving) == 2 * WIDTH
    await world.runtime.advance(2_000)
    assert sorted(done) == [(lane, turn) for lane in range(WIDTH + 1) for turn in range(2)]


# ---- connections -----------------------------------------------------------------------------


async def served(world: World, partitions: int = 1) -> FakeLink:
    await world.brokers(1)
    await world.topic("t", partitions)
    return await world.route("replica", *((T, at) for at in range(partitions)))


def offsets(partitions: int = 1, timeout_ms: int = 0) -> ListOffsetsRequest:
    parts = [ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(partitions)]
    topic = ListOffsetsTopic(name="t", partitions=parts)
    return ListOffsetsRequest(topics=[topic], timeout_ms=timeout_ms)


@in_world(run)
async def test_answers_that_wait_for_one_before_them_are_freed_with_the_connection(
    world: World,
) -> None:
    link = await served(world)
    client = world.client()
    client.send(offsets(), 5)
    alone = world.gateway.memory.held
    client.send(ApiVersionsRequest(), 0)
    assert world.gateway.memory.held > alone > 0
    client.connection.connection_lost(None)
    assert world.gateway.memory.held == alone, "this one is still handled"
    link.take().reply((7, -1, 0))
    assert world.gateway.memory.held == 0


@in_world(run)
async def test_reading_pauses_at_the_pipelined_produce_limit(world: World) -> None:
    link = await served(world)
    client = world.client()
    request: Any = produce((0, BATCH), timeout_ms=1_000)
    for _ in range(PIPELINED_MAX):
        client.send(request, 9)
    assert not is_paused(client)
    client.send(request, 9)
    assert is_paused(client)
    client.send(ApiVersionsRequest(), 0)
    assert len(link.requests) == PIPELINED_MAX + 1
    assert client.connection.requests == PIPELINED_MAX + 1
    link.take().reply(WRITTEN)
    assert client.connection.requests == PIPELINED_MAX + 2, "the next takes its place"
    assert is_paused(client)
    link.take().reply(WRITTEN)
    assert not is_paused(client)


@in_world(run)
async def test_concurrent_requests_of_a_connection_are_limited(world: World) -> None:
    link = await served(world)
    client, other = world.client(), world.client()
    for _ in range(BEGUN_MAX - 1):
        client.send(offsets(), 5)
    client.send(produce((0, BATCH), timeout_ms=1_000), 9)
    assert not is_paused(client)
    for _ in range(3):
        client.send(offsets(), 5)
    assert is_paused(client)
    assert link.kinds().count(OFFSET_FOR) == BEGUN_MAX
    link.requests[1].reply((7, -1, 0))
    assert link.kinds().count(OFFSET_FOR) == BEGUN_MAX + 1, "the next takes its place"
    assert is_paused(client)
    assert (await other.ask(ApiVersionsRequest(), 0)).error_code == 0
    assert client.received() == [], "answers keep their order"
    while link.kinds().count(OFFSET_FOR) < BEGUN_MAX + 2:
        link.take(OFFSET_FOR).reply((7, -1, 0))
    link.take(PRODUCE).reply(WRITTEN)
    for question in link.requests:
        question.reply((7, -1, 0))
    assert not is_paused(client)
    kinds = ["L"] * (BEGUN_MAX - 1) + ["P"] + ["L"] * 3
    assert [type(one).__name__[0] for one in client.received()] == kinds
    assert world.gateway.memory.held == 0


def test_others_have_their_turn_between_the_requests_of_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request takes a ms of the clock, and all of them are there already."""
    requests = 4 * TURN_MS

    async def scenario(world: World) -> None:
        client = world.client()
        taken: list[float] = []

        def handler(context: RequestContext, _request: Any) -> None:
            world.runtime._now_ms += 1
            taken.append(world.runtime._now_ms)
            context.reply(DescribeClusterResponse())

        monkeypatch.setattr(actor, "handler_of", lambda _key: handler)
        frame = b"".join(
            encode_request(ApiKey.DESCRIBE_CLUSTER, 0, 7, "c", DescribeClusterRequest())
        )
        client.send_bytes(frame * requests)
        assert len(taken) == TURN_MS
        assert is_paused(client)
        turns = [len(taken)]
        while len(taken) < requests:
            before = len(taken)
            await asyncio.sleep(0)
            if len(taken) > before:
                turns.append(len(taken) - before)
        assert turns == [TURN_MS] * 4
        await settle()
        assert not is_paused(client)
        assert client.connection.requests == requests

    run(scenario)


@in_world(run)
async def test_connection_lost_between_turns_drops_its_buffered_requests(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.client()

    def handler(context: RequestContext, _request: Any) -> None:
        world.runtime._now_ms += TURN_MS
        context.reply(DescribeClusterResponse())

    monkeypatch.setattr(actor, "handler_of", lambda _key: handler)
    frame = b"".join(encode_request(ApiKey.DESCRIBE_CLUSTER, 0, 7, "c", DescribeClusterRequest()))
    client.send_bytes(frame * 10)
    assert client.connection.requests == 1
    client.transport.closed = True
    client.connection.connection_lost(None)
    await settle()
    assert client.connection.requests == 1
    assert world.gateway.memory.held == 0


@in_world(run)
async def test_reading_pauses_at_the_waiting_requests_limit(world: World) -> None:
    client = world.client()
    connection = client.connection
    slots = [Slot(connection, 0, 0.0) for _ in range(WAITING_MAX)]
    connection._slots.extend(slots)
    for slot in slots[:-1]:
        slot.wait(lambda: None)
    client.send(ApiVersionsRequest(), 0)
    assert not is_paused(client)
    slots[-1].wait(lambda: None)
    connection.read_on()
    assert is_paused(client)
    slots[0].fill((b"x",))
    assert not is_paused(client)


@pytest.mark.parametrize(
    ("is_full", "unread", "silent_ms", "is_cut"),
    [
        (True, 1, PART_MS, True),
        (True, 1, PART_MS - 1, False),
        (True, 0, PART_MS, False),
        (False, 1, PART_MS, False),
    ],
)
@in_world(run, queued_max_request_bytes="100")
async def test_client_that_does_not_read_is_cut_off_when_memory_is_full(
    world: World, *, is_full: bool, unread: int, silent_ms: int, is_cut: bool
) -> None:
    client = world.client()
    client.transport.written += bytes(unread)
    connections = world.gateway.connections
    (seen,) = connections._seen.values()
    seen.activity = client.connection.activity
    world.gateway.memory.held = 100 if is_full else 99
    why = connections._is_silent(client.connection, seen, seen.since_ms + silent_ms)
    assert (why is not None) == is_cut


def test_paused_reader_resumes_once_when_memory_is_freed() -> None:
    class Reader:
        has_part = False
        calls = 0

        def read_on(self) -> None:
            self.calls += 1

    memory, reader = RequestMemory(10), Reader()
    memory.held = 9
    assert memory.may_read(reader)
    memory.held = 10
    assert not memory.may_read(reader)
    memory.free(0)
    assert reader.calls == 0, "it is full still"
    memory.free(1)
    assert reader.calls == 1
    memory.free(1)
    assert reader.calls == 1, "and is told once"
    memory.held = 10
    assert not memory.may_read(reader)
    memory.forget(reader)
    memory.free(1)
    assert reader.calls == 1


# ---- answers of replicas ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked_ms", "given_ms"),
    [
        (REPLICA_TIMEOUT_MIN_MS - 1, REPLICA_TIMEOUT_MIN_MS),
        (REPLICA_TIMEOUT_MIN_MS + 1, REPLICA_TIMEOUT_MIN_MS + 1),
        (-1, REPLICA_TIMEOUT_MIN_MS),
        (5_000, 5_000),
    ],
)
@in_world(run)
async def test_delete_records_timeout_is_bounded(
    world: World, *, asked_ms: int, given_ms: int
) -> None:
    link = await served(world, 2)
    gone = [DeleteRecordsPartition(partition_index=at, offset=5) for at in range(2)]
    topic = DeleteRecordsTopic(name="t", partitions=gone)
    client = world.client()
    client.send(DeleteRecordsRequest(topics=[topic], timeout_ms=asked_ms), 2)
    link.requests[1].reply(4)
    await world.runtime.advance(given_ms - 1)
    assert client.received() == []
    await world.runtime.advance(1)
    (answer,) = client.received()
    assert [(one.error_code, one.low_watermark) for one in answer.topics[0].partitions] == [
        (ErrorCode.REQUEST_TIMED_OUT, -1),
        (0, 4),
    ]
    link.requests[0].reply(4)
    assert client.received() == []


@in_world(run)
async def test_a_request_whose_time_is_up_before_its_leader_has_started(world: World) -> None:
    await world.brokers(1)
    await world.topic("t", 1, opened=False)
    client = world.client()
    client.send(offsets(timeout_ms=REPLICA_TIMEOUT_MIN_MS), 11)
    await world.runtime.advance(REPLICA_TIMEOUT_MIN_MS)
    (answer,) = client.received()
    assert answer.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    link = await world.route("replica", (T, 0))
    await world.runtime.advance(LEADER_START_MS)
    assert link.requests == [], "nobody waits for it"
    assert not world.runtime.pending_timers()


@in_world(run)
async def test_partitions_are_asked_in_the_order_in_which_they_open(world: World) -> None:
    await world.brokers(1)
    await world.topic("t", 3, opened=False)
    client = world.client()
    client.send(offsets(3), 11)
    await settle()
    link = await world.route("replica", (T, 1))
    await settle()
    assert [one.header[1] for one in link.requests] == [1]
    link.take().reply((7, -1, 0))
    await world.route("replica", (T, 2))
    await settle()
    assert [one.header[1] for one in link.requests] == [1, 2]
    link.take().reply((8, -1, 0))
    assert client.received() == []
    await world.runtime.advance(LEADER_START_MS)
    (answer,) = client.received()
    assert [(one.error_code, one.offset) for one in answer.topics[0].partitions] == [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (0, 7),
        (0, 8),
    ]

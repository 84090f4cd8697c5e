"""`queued.max.request.bytes`: one limit for all connections, at which reading pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.gateway import actor
from raylog.actors.names import GROUP
from raylog.wire.api import ApiKey
from raylog.wire.error_codes import ErrorCode
from raylog.wire.frame import encode_request
from raylog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.messages.produce import ProduceRequest
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raylog.wire.records import Record, encode_batch
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import FakeClient, World, run, served, topic_id
from tests.worlds.gateway.fetching import fetch
from tests.worlds.gateway.producing import produce
from tests.worlds.runtime import FakeLink, settle

BOUND = 100_000
T = topic_id("t")


def batch(size: int) -> bytes:
    return encode_batch([Record(0, 1_000_000, b"k", bytes(size), [])])


def frame(request: Any, version: int) -> bytes:
    api_key = ApiKey.PRODUCE if isinstance(request, ProduceRequest) else ApiKey.DESCRIBE_CLUSTER
    return b"".join(encode_request(api_key, version, 7, "c", request))


def is_open(client: FakeClient) -> bool:
    return client.transport.reading


def is_read(client: FakeClient) -> bool:
    return client.transport.reading and client.connection.has_part


def held(world: World) -> int:
    return world.gateway.memory.held


def limited(scenario: Callable[[World], Any], bound: int = BOUND) -> None:
    run(scenario, queued_max_request_bytes=str(bound))


@in_world(limited)
async def test_unacknowledged_requests_hold_memory_until_answered(
    world: World,
) -> None:
    link = await served(world)
    writers = [world.client() for _ in range(3)]
    for writer in writers:
        writer.send(produce((0, batch(60_000)), timeout_ms=60_000), 9)
    reading = [one.transport.reading for one in writers]
    assert reading == [True, False, False], "the bound is reached with the second"
    assert 2 * 60_000 < held(world) < BOUND + 2 * 61_000
    idle = world.client()
    answer = await idle.ask(DescribeClusterRequest(), 0)
    assert answer.error_code == 0, "what is small and here is still handled"
    while any(one.open for one in link.requests):
        link.take().reply([(0, -1, 0)])
        await settle()
    assert [one.transport.reading for one in (*writers, idle)] == [True] * 4
    assert held(world) == 0


@in_world(limited)
async def test_partial_requests_hold_memory_and_finish_one_at_a_time(world: World) -> None:
    link = await served(world)
    whole = frame(produce((0, batch(80_000)), timeout_ms=60_000), 9)
    slow = [world.client() for _ in range(3)]
    for one in slow:
        one.send_bytes(whole[:50_000])
    for one in slow:
        one.send_bytes(whole[50_000:50_001])
    reading = [one.transport.reading for one in slow]
    assert sorted(reading) == [False, False, True], "no more than one"
    assert held(world) == 150_003
    finished = 0
    while finished < 3:
        (at,) = (
            n for n, one in enumerate(slow) if one.transport.reading and one.connection.has_part
        )
        slow[at]._asked.append((ApiKey.PRODUCE, 9))
        slow[at].send_bytes(whole[50_001:])
        link.take().reply([(0, -1, 0)])
        finished += 1
    assert held(world) == 0
    assert [len(one.received()) for one in slow] == [1, 1, 1]
    assert [one.transport.reading for one in slow] == [True] * 3


@in_world(limited, BOUND + 10000)
async def test_slow_request_is_closed_to_let_the_others_finish(world: World) -> None:
    await served(world)
    whole = frame(produce((0, batch(80_000)), timeout_ms=60_000), 9)
    clients = [world.client() for _ in range(3)]
    for one in clients:
        one.send_bytes(whole[:50_000])
    for one in clients:
        one.send_bytes(whole[50_000:50_001])
    (first,) = (one for one in clients if one.transport.reading)
    await world.runtime.advance(25_000)
    assert first.transport.closed
    first.connection.connection_lost(None)
    others = [one for one in clients if one is not first]
    assert all(one.transport.reading for one in others), "there is memory for two"
    await world.runtime.advance(40_000)
    assert not any(one.transport.closed for one in others), "the time they had to wait is theirs"


@in_world(limited)
async def test_long_polls_do_not_block_other_clients(world: World) -> None:
    await served(world)
    for _ in range(3):
        client = world.client()
        for _ in range(8):
            client.send(fetch(*[(0, 0)] * 200, max_wait_ms=2**31 - 1), 13)
    await settle()
    assert held(world) < BOUND
    other = world.client()
    for _ in range(3):
        assert (await other.ask(DescribeClusterRequest(), 0)).error_code == 0
    assert other.transport.reading


@in_world(limited)
async def test_lost_connection_lets_the_next_partial_request_finish(world: World) -> None:
    await served(world)
    whole = frame(produce((0, batch(80_000)), timeout_ms=60_000), 9)
    clients = [world.client() for _ in range(4)]
    for one in clients:
        one.send_bytes(whole[:50_000])
    for one in clients:
        one.send_bytes(whole[50_000:50_001])
    for left in (3, 2):
        (finishing,) = (one for one in clients if one.transport.reading)
        finishing.connection.connection_lost(None)
        clients.remove(finishing)
        assert held(world) == left * 50_001
        assert [one.transport.reading for one in clients].count(True) == 1, "no more than one"


@in_world(limited)
async def test_silent_client_does_not_block_other_partial_requests(
    world: World,
) -> None:
    link = await served(world)
    whole = frame(produce((0, batch(80_000)), timeout_ms=60_000), 9)
    writer, silent, *others = [world.client() for _ in range(4)]
    writer.send(produce((0, batch(60_000)), timeout_ms=60_000), 9)
    refused = frame(produce((9, batch(80_000)), timeout_ms=60_000), 9)
    silent.send_bytes(refused[:50_000])
    assert world.gateway.memory.is_full
    silent._asked.append((ApiKey.PRODUCE, 9))
    silent.send_bytes(refused[50_000:])
    assert len(silent.received()) == 1, "answered at once: there is no such partition"
    link.take().reply([(0, -1, 0)])
    assert held(world) == 0
    for one in (*others, *others):
        one.send_bytes(whole[: 60_000 if not one.connection.has_part else 1])
    assert world.gateway.memory.is_full
    assert [one.transport.reading for one in others].count(True) == 1, "no more than one"


@in_world(limited)
async def test_announced_request_size_holds_no_memory(world: World) -> None:
    for _ in range(100):
        world.client().send_bytes((1 << 20).to_bytes(4, "big") + bytes(2))
    assert held(world) == 600
    assert (await world.client().ask(DescribeClusterRequest(), 0)).error_code == 0


@in_world(limited)
async def test_answers_that_nobody_reads_count_until_they_are_sent(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = DescribeClusterResponse(error_message="x" * 30_000)
    monkeypatch.setattr(actor, "handler_of", lambda _key: lambda *_: large)
    client, other = world.client(), world.client()
    client.connection.pause_writing()
    for _ in range(4):
        client.send(DescribeClusterRequest(), 0)
    assert held(world) > BOUND
    assert not is_open(client)
    other.send_bytes(bytes([0, 0]))
    assert other.transport.reading, "it holds the beginning of a request, and may finish it"
    client.transport.written.clear()
    client.connection.resume_writing()
    assert is_open(client)
    assert held(world) == 2


@in_world(limited)
async def test_an_answer_counts_while_one_before_it_is_waited_for(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await served(world)
    client = world.client()
    client.send(produce((0, batch(10)), timeout_ms=60_000), 9)
    large = DescribeClusterResponse(error_message="x" * 30_000)
    monkeypatch.setattr(actor, "handler_of", lambda _key: lambda *_: large)
    for _ in range(10):
        client.send(DescribeClusterRequest(), 0)
    assert held(world) > BOUND
    assert not is_open(client)
    link.take().reply([(0, -1, 0)])
    assert is_open(client)
    assert held(world) == 0
    assert len(client.received()) == 11


@in_world(limited)
async def test_connections_that_end_leave_nothing_behind(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await served(world)
    clients = [world.client() for _ in range(4)]
    clients[0].send_bytes(bytes([0, 0, 9, 0, 1]))
    clients[1].send(produce((0, batch(10_000)), timeout_ms=60_000), 9)
    clients[2].connection.pause_writing()
    await clients[2].ask(DescribeClusterRequest(), 0)
    clients[3].send_bytes(frame(DescribeClusterRequest(), 0)[:-1] + b"\xff\xff")  # refused
    for client in clients:
        client.connection.connection_lost(None)
    assert held(world) > 10_000, "the batch is still on its way"
    link.take().reply([(0, -1, 0)])
    await settle()
    assert held(world) == 0


def test_a_request_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    async def scenario(world: World) -> None:
        monkeypatch.setattr(actor, "handler_of", lambda _key: broken)
        client = world.client()
        client.send(MetadataRequest(), 9)
        assert client.transport.closed
        client.connection.connection_lost(None)
        assert held(world) == 0

    limited(scenario)


@in_world(run)
async def test_without_a_bound_nothing_stops(world: World) -> None:
    await served(world)
    clients: list[FakeClient] = [world.client() for _ in range(5)]
    for client in clients:
        client.send(produce((0, batch(900_000)), timeout_ms=60_000), 9)
    assert all(client.transport.reading for client in clients)
    await asyncio.sleep(0)


def joining(size: int, member_id: str = "") -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(size))
    return JoinGroupRequest(
        group_id="g", member_id=member_id, protocol_type="consumer", protocols=[protocol]
    )


async def coordinator(world: World) -> FakeLink:
    await world.brokers(1)
    link = world.link("coordinator")
    await world.gateway.apply_coordinator(GROUP, "coordinator")
    return link


@pytest.mark.parametrize("size", [1_000, 90_000])
@in_world(limited)
async def test_members_waiting_in_a_rebalance_do_not_block_other_clients(
    world: World, *, size: int
) -> None:
    """A rebalance may take minutes, and requests that wait in it do not count, as in Kafka."""

    link = await coordinator(world)
    members = [world.client() for _ in range(200_000 // size)]
    assignment = SyncGroupRequestAssignment(member_id="m", assignment=bytes(size))
    syncing = SyncGroupRequest(group_id="g", assignments=[assignment])
    others = [world.client() for _ in members]
    for at, (member, other) in enumerate(zip(members, others, strict=True)):
        member.send(joining(size, f"m{at}"), 5)
        other.send(syncing, 3)
    newcomer = world.client()
    answer = await newcomer.ask(DescribeClusterRequest(), 0)
    assert (answer.error_code, is_open(newcomer)) == (0, True)
    while link.is_open and any(one.open for one in link.requests):
        link.lose()
        await settle()
    for at, (member, other) in enumerate(zip(members, others, strict=True)):
        (joined,), (synced,) = member.received(), other.received()
        assert (joined.member_id, joined.error_code) == (f"m{at}", ErrorCode.NOT_COORDINATOR)
        assert synced.error_code == ErrorCode.NOT_COORDINATOR
    assert held(world) == 0


@in_world(run)
async def test_batches_wait_for_a_replica_that_does_not_take_them(world: World) -> None:
    link = await served(world)
    link.unsent_bytes = 65 << 20
    writers = [world.client() for _ in range(3)]
    for writer in writers:
        for _ in range(2):
            writer.send(produce((0, batch(1_000)), timeout_ms=60_000), 9)
    await world.runtime.advance(1_000)
    assert link.requests == []
    link.unsent_bytes = 0
    await world.runtime.advance(100)
    while any(one.open for one in link.requests):
        link.take().reply([(0, -1, 0)])
        await world.runtime.advance(100)
    for writer in writers:
        found = [one.responses[0].partition_responses[0] for one in writer.received()]
        assert [one.error_code for one in found] == [0, 0]


@in_world(run)
async def test_requests_wait_for_a_coordinator_that_does_not_take_them(world: World) -> None:
    """One client may send it more than it takes at once: others are not refused for that."""

    link = await coordinator(world)
    link.unsent_bytes = 65 << 20
    clients = [world.client() for _ in range(3)]
    for client in clients:
        client.send(HeartbeatRequest(group_id="g", member_id="m"), 3)
        client.send(HeartbeatRequest(group_id="g", member_id="m"), 3)
    await world.runtime.advance(1_000)
    assert link.requests == []
    assert [one.transport.reading for one in clients] == [False] * 3
    link.unsent_bytes = 0
    await world.runtime.advance(100)
    assert len(link.requests) == 6
    assert [one.transport.reading for one in clients] == [True] * 3
    link.unsent_bytes = 65 << 20
    clients[0].send(HeartbeatRequest(group_id="g", member_id="m"), 3)
    link.lose()
    await world.runtime.advance(100)
    for client in clients:
        codes = {one.error_code for one in client.received()}
        assert codes == {ErrorCode.NOT_COORDINATOR}

"""One connection: when it reads, how much, and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raylog.actors.gateway import actor, connection
from raylog.actors.gateway.connection import READ_BYTES_WHEN_FULL, UNSENT_BYTES_MAX
from raylog.wire.api import USUAL_BYTES_MAX, ApiKey, limit_of
from raylog.wire.frame import encode_request
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from raylog.wire.records import Record, encode_batch
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import FakeClient, World, run, served, topic_id
from tests.worlds.gateway.producing import produce

T = topic_id("t")
BATCH = encode_batch([Record(0, 1_000_000, b"k", b"v", [])])
WRITTEN = [(40, -1, 7)]
REQUEST = b"".join(encode_request(ApiKey.API_VERSIONS, 0, 7, "c", ApiVersionsRequest()))


def reads(client: FakeClient) -> bool:
    return client.transport.reading


def is_closed(client: FakeClient) -> bool:
    return client.transport.closed


# ---- the end ---------------------------------------------------------------------------------


@in_world(run)
async def test_half_closed_connection_gets_pending_answers(world: World) -> None:
    link = await served(world)
    client = world.client()
    for _ in range(2):
        client.send(produce((0, BATCH)), 9)
    assert client.connection.eof_received(), "the transport stays open"
    assert client.connection.is_ending
    assert not client.connection.waits_for_answer, "it may be cut off where that takes long"
    link.take().reply(WRITTEN)
    assert not is_closed(client)
    link.take().reply(WRITTEN)
    assert is_closed(client)
    assert len(client.received()) == 2


@in_world(run)
async def test_half_closed_connection_without_pending_answers_closes_at_once(world: World) -> None:
    client = world.client()
    await client.ask(ApiVersionsRequest(), 0)
    assert not client.connection.eof_received(), "the transport closes"


@in_world(run)
async def test_open_connection_stays_open_after_the_last_answer(world: World) -> None:
    client = world.client()
    await client.ask(ApiVersionsRequest(), 0)
    assert not is_closed(client)
    assert not client.connection.is_ending
    assert not client.connection.waits_for_answer


@in_world(run)
async def test_nothing_is_written_once_the_connection_closes(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(produce((0, BATCH)), 9)
    client.connection.close()
    link.take().reply(WRITTEN)
    assert client.transport.written == b""
    assert world.gateway.memory.held == 0


@in_world(run)
async def test_no_request_is_taken_of_a_connection_that_closes(world: World) -> None:
    client = world.client()
    client.send_bytes(REQUEST[:5])
    client.connection.close()
    client.send_bytes(REQUEST[5:])
    assert client.connection.requests == 0
    assert client.transport.written == b""


@in_world(run)
async def test_refused_request_sends_finished_answers_and_drops_later_ones(
    world: World,
) -> None:
    """What was written before still goes out, and answers that come later go nowhere."""

    link = await served(world)
    client = world.client()
    client.send(ApiVersionsRequest(), 0)
    client.send(produce((0, BATCH)), 9)
    client.send_bytes(bytes([0, 0, 0, 1, 0]))
    assert is_closed(client)
    assert not client.transport.aborted
    link.take().reply(WRITTEN)
    assert len(client.received()) == 1


# ---- sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("more", "closed"), [(0, False), (1, True)])
@in_world(run)
async def test_request_size_limit(world: World, *, more: int, closed: bool) -> None:
    client = world.client()
    client.send_bytes(((1 << 20) + more).to_bytes(4, "big"))
    assert is_closed(client) == closed


@pytest.mark.parametrize(("more", "closed"), [(0, False), (1, True)])
@pytest.mark.parametrize("api_key", [ApiKey.HEARTBEAT, ApiKey.METADATA])
@in_world(run)
async def test_request_size_limit_of_each_api(
    world: World, *, api_key: ApiKey, more: int, closed: bool
) -> None:
    client = world.client()
    client.connection._request_bytes_max = 1 << 30
    length = limit_of(api_key).bytes_max + more
    client.send_bytes(length.to_bytes(4, "big") + int(api_key).to_bytes(2, "big"))
    assert is_closed(client) == closed


@in_world(run)
async def test_request_of_an_unknown_api_has_the_usual_size_limit(world: World) -> None:
    client = world.client()
    length = USUAL_BYTES_MAX + 1
    unknown = 256 + int(ApiKey.METADATA)
    client.send_bytes(length.to_bytes(4, "big") + unknown.to_bytes(2, "big"))
    assert is_closed(client)


@in_world(run)
async def test_size_limit_is_checked_only_after_the_api_key_arrived(world: World) -> None:
    client = world.client()
    start = (1 << 20).to_bytes(4, "big") + int(ApiKey.HEARTBEAT).to_bytes(2, "big")
    client.send_bytes(start[:-1])
    assert not is_closed(client)
    client.send_bytes(start[-1:])
    assert is_closed(client)


# ---- reading ---------------------------------------------------------------------------------


@in_world(run)
async def test_reading_pauses_at_the_pipelined_bytes_limit(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await served(world)
    client = world.client()
    client.send(produce((0, BATCH)), 9)
    monkeypatch.setattr(connection, "PIPELINED_BYTES_MAX", 2 * world.gateway.memory.held)
    client.send(produce((0, BATCH)), 9)
    assert reads(client)
    client.send(produce((0, BATCH)), 9)
    assert not reads(client)
    link.take().reply(WRITTEN)
    assert reads(client)


@in_world(run)
async def test_queued_answer_counts_toward_the_pipelined_bytes_limit(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await served(world)
    large = DescribeClusterResponse(error_message="x" * 10_000)
    monkeypatch.setattr(connection, "PIPELINED_BYTES_MAX", 15_000)
    client = world.client()
    client.send(produce((0, BATCH)), 9)
    monkeypatch.setattr(actor, "handler_of", lambda _key: lambda *_: large)
    client.send(DescribeClusterRequest(), 0)
    assert reads(client)
    client.send(DescribeClusterRequest(), 0)
    assert not reads(client)
    link.take().reply(WRITTEN)
    assert reads(client)
    assert world.gateway.memory.held == 0


@pytest.mark.parametrize(("more", "goes_on"), [(0, True), (1, False)])
@in_world(run)
async def test_unread_answers_count_toward_the_unsent_bytes_limit(
    world: World, *, more: int, goes_on: bool
) -> None:
    client = world.client()
    await client.ask(ApiVersionsRequest(), 0)
    client.connection.pause_writing()
    client.send(ApiVersionsRequest(), 0)
    answer = len(client.transport.written)
    client.transport.written += bytes(UNSENT_BYTES_MAX - 2 * answer + more)
    client.send(ApiVersionsRequest(), 0)
    assert reads(client) == goes_on
    client.transport.written.clear()
    client.connection.resume_writing()
    assert reads(client)
    assert world.gateway.memory.held == 0


@in_world(run)
async def test_answers_read_at_once_hold_no_memory(world: World) -> None:
    client = world.client()
    client.connection.pause_writing()
    await client.ask(ApiVersionsRequest(), 0)
    assert world.gateway.memory.held > 0
    client.connection.resume_writing()
    await client.ask(ApiVersionsRequest(), 0)
    assert world.gateway.memory.held == 0


@in_world(run, queued_max_request_bytes="1008")
async def test_read_buffer_shrinks_while_memory_is_full(world: World) -> None:
    """Except of who is to finish a request."""

    await served(world)
    first, second = world.client(), world.client()
    start = (1 << 19).to_bytes(4, "big") + bytes(500)
    room = len(first.connection.get_buffer(-1))
    assert room > READ_BYTES_WHEN_FULL
    first.send_bytes(start)
    assert len(first.connection.get_buffer(-1)) > READ_BYTES_WHEN_FULL
    second.send_bytes(start)
    assert world.gateway.memory.is_full
    first.send_bytes(b"0")
    assert reads(first) != reads(second)
    rooms = {reads(one): len(one.connection.get_buffer(-1)) for one in (first, second)}
    assert rooms[False] == READ_BYTES_WHEN_FULL
    assert rooms[True] > READ_BYTES_WHEN_FULL


@in_world(run)
async def test_the_next_request_begins_when_the_one_that_takes_long_has_begun(world: World) -> None:
    client = world.client()
    for _ in range(2):
        client.connection.hold()
    client.send(ApiVersionsRequest(), 0)
    assert not reads(client)
    client.connection.release()
    assert client.received() == [], "the other one has not"
    client.connection.release()
    assert len(client.received()) == 1
    assert reads(client)


@in_world(run)
async def test_a_connection_that_is_gone_is_read_from_no_more(world: World) -> None:
    client = world.client()
    client.send_bytes(REQUEST[:7])
    client.connection.hold()
    client.send_bytes(REQUEST[7:])
    client.transport.closed = True
    client.connection.connection_lost(None)
    client.connection.release()
    client.connection.read_on()
    await asyncio.sleep(0)
    assert client.connection.requests == 0
    assert not client.connection.has_part
    assert world.gateway.memory.held == 0
    assert (await world.gateway.ping())["connections"] == 0


@in_world(run)
async def test_requests_that_come_together_are_all_handled_in_order(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.client()
    seen: list[Any] = []
    requested = world.gateway.requested

    def recording(one: Any, slot: Any, request: memoryview) -> None:
        seen.append(bytes(request[4:8]))
        requested(one, slot, request)

    monkeypatch.setattr(world.gateway, "requested", recording)
    frames = [
        b"".join(encode_request(ApiKey.API_VERSIONS, 0, at, "c", ApiVersionsRequest()))
        for at in range(5)
    ]
    client.send_bytes(b"".join(frames) + frames[0][:-1])
    assert seen == [at.to_bytes(4, "big") for at in range(5)]
    assert client.connection.has_part
    assert client.connection.part_bytes == len(frames[0]) - 1

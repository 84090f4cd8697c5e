"""Requests forwarded to a coordinator that fails: each is answered, and its connection goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.gateway.handlers.forwarded import LARGE_BODY_BYTES
from raylog.actors.names import GROUP, OFFSETS_TOPIC
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.wire.codec import encode
from raylog.wire.errors import CorruptMessage, ErrorCode
from raylog.wire.frame import encode_request, encode_response
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.wire.messages.registry import response_class
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raylog.wire.schema import layout_of
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import FakeClient, World, run
from tests.worlds.runtime import FakeLink, settle

COORDINATOR = "coordinator"
Build = Callable[[int], Any]


def join(size: int) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(size))
    return JoinGroupRequest(
        group_id="g", member_id="m", protocol_type="consumer", protocols=[protocol]
    )


def sync(size: int) -> SyncGroupRequest:
    assignment = SyncGroupRequestAssignment(member_id="m", assignment=bytes(size))
    return SyncGroupRequest(group_id="g", assignments=[assignment])


def commit(size: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=3, committed_offset=5, committed_metadata="m" * size
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id="g", topics=[topic])


REQUESTS: list[tuple[Build, int]] = [(join, 5), (sync, 3), (commit, 8)]
SIZES = [1, LARGE_BODY_BYTES + 1]


async def coordinator(world: World) -> FakeLink:
    link = world.link(COORDINATOR)
    await world.gateway.apply_coordinator(GROUP, COORDINATOR)
    return link


async def is_served(client: FakeClient) -> bool:
    """Whether the connection takes its next request."""
    answer = await client.ask(ApiVersionsRequest(), 0)
    return bool(answer.api_keys) and not client.connection.is_paused


@pytest.mark.parametrize(("build", "version"), REQUESTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (PeerLost("gone"), ErrorCode.NOT_COORDINATOR),
        (PeerTimeout("slow"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
@in_world(run)
async def test_a_coordinator_that_fails(
    world: World, *, build: Build, version: int, size: int, failure: Exception, code: ErrorCode
) -> None:
    link = await coordinator(world)
    client = world.client()
    client.send(build(size), version)
    link.take().fail(failure)
    await settle()
    (answer,) = client.received()
    if build is commit:
        (topic,) = answer.topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index) == ("t", 3)
        answer = partition
    elif build is join:
        assert answer.member_id == "m"
    assert answer.error_code == code
    assert await is_served(client)
    assert world.gateway.memory.held == 0


@pytest.mark.parametrize(("build", "version"), REQUESTS)
@pytest.mark.parametrize("size", SIZES)
@in_world(run)
async def test_an_answer_lets_the_next_request_in(
    world: World, *, build: Build, version: int, size: int
) -> None:
    link = await coordinator(world)
    client = world.client()
    request = build(size)
    client.send(request, version)
    api_key = layout_of(type(request)).api_key
    assert api_key is not None
    client.send(HeartbeatRequest(group_id="g", member_id="m"), 4)
    sent = len(link.requests)
    is_large = len(encode(request, version)) > LARGE_BODY_BYTES
    assert sent == (1 if is_large else 2), "what may be handled in parts is not overtaken"
    answer = response_class(api_key)()
    link.take().reply(None, b"".join(encode_response(api_key, version, 7, answer)))
    assert len(link.requests) == 2
    assert client.received() == [answer]


@pytest.mark.parametrize(("more", "is_held"), [(0, False), (1, True)])
@in_world(run)
async def test_from_which_size_on_a_request_holds_its_connection(
    world: World, *, more: int, is_held: bool
) -> None:
    await coordinator(world)
    client = world.client()
    rest = len(encode(sync(LARGE_BODY_BYTES), 3)) - LARGE_BODY_BYTES
    client.send(sync(LARGE_BODY_BYTES - rest + more), 3)
    assert client.connection.is_paused == is_held


@pytest.mark.parametrize(("build", "version"), REQUESTS)
@pytest.mark.parametrize("size", SIZES)
@in_world(run)
async def test_without_a_coordinator(
    world: World, *, build: Build, version: int, size: int
) -> None:
    await world.brokers(1)
    await world.topic(OFFSETS_TOPIC, 2)
    client = world.client()
    client.send(build(size), version)
    await settle()
    (answer,) = client.received()
    found = answer.topics[0].partitions[0] if build is commit else answer
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert found.error_code == (ErrorCode.REBALANCE_IN_PROGRESS if build is sync else loading)
    assert await is_served(client)
    assert world.gateway.memory.held == 0


@pytest.mark.parametrize(("build", "version"), REQUESTS)
@pytest.mark.parametrize("size", SIZES)
@in_world(run)
async def test_undecodable_request_closes_the_connection_without_a_coordinator(
    world: World, *, build: Build, version: int, size: int
) -> None:
    await world.brokers(1)
    await world.topic(OFFSETS_TOPIC, 2)
    client, other = world.client(), world.client()
    request = build(size)
    api_key = layout_of(type(request)).api_key
    assert api_key is not None
    whole = b"".join(encode_request(api_key, version, 7, "c", request))[4:]
    cut = whole[: len(whole) - 3]
    client.send_bytes(len(cut).to_bytes(4, "big") + cut)
    await settle()
    assert client.transport.closed or build is sync, "what a SyncGroup is told is always there"
    assert await is_served(other)
    assert world.gateway.memory.held == 0


@pytest.mark.parametrize(("build", "version"), REQUESTS)
@pytest.mark.parametrize("size", SIZES)
@in_world(run)
async def test_request_that_the_coordinator_cannot_decode_closes_the_connection(
    world: World, *, build: Build, version: int, size: int
) -> None:
    link = await coordinator(world)
    client = world.client()
    client.send(build(size), version)
    link.take().fail(CorruptMessage("cut"))
    await settle()
    assert client.transport.closed
    assert client.received() == []
    client.connection.connection_lost(None)
    assert world.gateway.memory.held == 0


@pytest.mark.parametrize(("build", "version"), REQUESTS)
@pytest.mark.parametrize("size", SIZES)
@in_world(run)
async def test_a_client_that_left_before_its_coordinator_failed(
    world: World, *, build: Build, version: int, size: int
) -> None:
    link = await coordinator(world)
    client = world.client()
    client.send(build(size), version)
    client.transport.close()
    client.connection.connection_lost(None)
    link.lose()
    await settle()
    assert client.received() == []
    assert world.gateway.memory.held == 0

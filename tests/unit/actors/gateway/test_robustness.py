"""Unexpected errors cost one connection, broken invariants the actor; both are logged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.gateway import actor
from raylog.actors.gateway.connection import UNSENT_BYTES_MAX
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, InvalidRequest
from raylog.wire.frame import encode_request
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.messages.produce import ProduceRequest
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import FakeClient, World, run
from tests.worlds.runtime import settle

Handler = Callable[[Any, Any], Any]


def sync_raiser(failure: BaseException) -> Handler:
    def handler(_context: Any, _request: Any) -> Any:
        raise failure

    return handler


def async_raiser(failure: BaseException) -> Handler:
    async def handler(_context: Any, _request: Any) -> Any:
        await asyncio.sleep(0)
        raise failure

    return handler


RAISERS = [sync_raiser, async_raiser]


async def good_client_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    answer = await world.client().ask(DescribeClusterRequest(), 0)
    assert answer.error_code == 0


@pytest.mark.parametrize("raiser", RAISERS)
@in_world(run)
async def test_an_unforeseen_failure_closes_that_connection_only(
    world: World,
    *,
    raiser: Callable[[BaseException], Handler],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(actor, "handler_of", lambda _key: raiser(ZeroDivisionError("a bug")))
    client = world.client()
    client.send(DescribeClusterRequest(), 2, client_id="unlucky")
    await settle()
    assert client.transport.closed
    assert client.received() == []
    assert "DESCRIBE_CLUSTER v2 of unlucky" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text
    await good_client_goes_on(world, monkeypatch)


@pytest.mark.parametrize("raiser", RAISERS)
@in_world(run)
async def test_a_broken_invariant_ends_the_actor(
    world: World, *, raiser: Callable[[BaseException], Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = AssertionError("cannot be")
    monkeypatch.setattr(actor, "handler_of", lambda _key: raiser(broken))
    world.client().send(DescribeClusterRequest(), 2)
    await settle()
    assert world.runtime.failures == [broken]
    world.runtime.failures.clear()


@pytest.mark.parametrize("raiser", RAISERS)
@in_world(run)
async def test_a_refusal_is_the_top_level_error_where_there_is_one(
    world: World, *, raiser: Callable[[BaseException], Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = raiser(InvalidRequest("nonsense"))
    monkeypatch.setattr(actor, "handler_of", lambda _key: refusal)
    client = world.client()
    answer = await client.ask(DescribeClusterRequest(), 2)
    assert answer == DescribeClusterResponse(
        error_code=ErrorCode.INVALID_REQUEST, error_message="nonsense"
    )
    answer = await client.ask(MetadataRequest(), 13)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    client.send(MetadataRequest(), 12)  # this version has no place for it
    await settle()
    assert client.transport.closed
    assert client.received() == []


@in_world(run)
async def test_an_answer_that_cannot_be_written_closes_that_connection(
    world: World, *, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    impossible = DescribeClusterResponse(controller_id=1 << 40)
    monkeypatch.setattr(actor, "handler_of", lambda _key: lambda *_: impossible)
    client = world.client()
    client.send(DescribeClusterRequest(), 2)
    await settle()
    assert client.transport.closed
    assert "cannot be written" in caplog.text
    await good_client_goes_on(world, monkeypatch)


@pytest.mark.parametrize(
    ("api_key", "version"), [(3, 99), (3, -1), (99, 0), (27, 1), (0, 2), (22, 6)]
)
@in_world(run)
async def test_unsupported_api_or_version_closes_the_connection(
    world: World, *, api_key: int, version: int
) -> None:
    client = world.client()
    header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    frame = header + b"\x00\x00\x00\x07\xff\xff\x00"
    client.send_bytes(len(frame).to_bytes(4, "big") + frame)
    await settle()
    assert client.transport.closed
    assert client.transport.written == b""


@in_world(run)
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(world: World) -> None:
    client = world.client()
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x09\xff\xff\x00"
    client.send_bytes(len(frame).to_bytes(4, "big") + frame)
    written = bytes(client.transport.written)
    assert written[4:8] == b"\x00\x00\x00\x09"
    assert written[8:10] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    assert not client.transport.closed


def closed_by(client: FakeClient, data: bytes) -> bool:
    client.send_bytes(data)
    return client.transport.closed


@in_world(run)
async def test_malformed_frames_close_the_connection(world: World) -> None:
    whole = b"".join(encode_request(ApiKey.PRODUCE, 9, 1, "c", ProduceRequest()))
    assert closed_by(world.client(), b"\x7f\xff\xff\xff")
    assert closed_by(world.client(), b"\xff\xff\xff\xff")
    assert closed_by(world.client(), b"\x00\x00\x00\x00")
    cut = (len(whole) - 8).to_bytes(4, "big") + whole[4:-4]
    assert closed_by(world.client(), cut)
    await good_client_goes_on(world, pytest.MonkeyPatch())


@in_world(run)
async def test_a_frame_may_come_in_pieces(world: World) -> None:
    client = world.client()
    client.send(ApiVersionsRequest(), 0)
    (expected,) = client.received()
    client._asked.append((ApiKey.API_VERSIONS, 0))
    for byte in b"".join(encode_request(ApiKey.API_VERSIONS, 0, 7, "c", ApiVersionsRequest())):
        client.send_bytes(bytes([byte]))
    assert client.received() == [expected]


def is_read(client: FakeClient) -> bool:
    return client.transport.reading


@in_world(run)
async def test_reading_pauses_while_a_client_leaves_answers_unread(world: World) -> None:
    client = world.client()
    client.transport.written += bytes(UNSENT_BYTES_MAX)
    client.connection.pause_writing()
    assert is_read(client), "a usual answer to Fetch is on its way"
    client.transport.written += b"0"
    client.connection.pause_writing()
    assert not is_read(client)
    client.transport.written.clear()
    client.connection.resume_writing()
    assert is_read(client)

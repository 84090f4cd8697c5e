"""Connections are accepted up to the configured number and rate; others wait."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from raylog.actors.common_messages import RouteUpdate
from raylog.actors.endpoints import Endpoint
from raylog.actors.gateway.acceptor import PAUSE_MS
from raylog.actors.metadata.records import ConfigChanged
from raylog.wire.api import ApiKey
from raylog.wire.frame import encode_request
from raylog.wire.messages.api_versions import ApiVersionsRequest
from tests.worlds.decorators import Fixture, in_world
from tests.worlds.gateway.actor import World, run
from tests.worlds.runtime import settle

REQUEST = b"".join(encode_request(ApiKey.API_VERSIONS, 0, 7, "c", ApiVersionsRequest()))
Scenario = Callable[[World, int], Awaitable[None]]


def listening(scenario: Scenario, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    """Run a scenario with a gateway that serves a port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]

    async def serving(world: World) -> None:
        monkeypatch.setattr(world.gateway, "_listening", [Endpoint("PLAINTEXT", "127.0.0.1", port)])
        await world.gateway.start()
        await world.brokers(1)
        await world.gateway.apply_routes(RouteUpdate())
        try:
            await scenario(world, port)
        finally:
            await world.gateway.stop()
            for client in Client.all_of_them:
                client.answer.cancel()
                client.writer.close()
            Client.all_of_them.clear()
            await quiet()

    run(serving, **settings)


class Client:
    """A connection that has sent a request."""

    all_of_them: ClassVar[list[Client]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.all_of_them.append(self)
        self.answer = asyncio.ensure_future(reader.read(4))

    @classmethod
    async def connect(cls, port: int) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.writer.write(REQUEST)
        return client

    async def is_served(self) -> bool:
        return len(await asyncio.wait_for(asyncio.shield(self.answer), 10)) == 4


async def quiet() -> None:
    """Let everything happen that can happen without time going by."""
    for _ in range(20):
        await asyncio.sleep(0.005)
        await settle()


@in_world(listening, Fixture("monkeypatch"), max_connections="2")
async def test_clients_beyond_the_limit_wait_until_others_leave(world: World, port: int) -> None:
    first, second = await Client.connect(port), await Client.connect(port)
    assert await first.is_served()
    assert await second.is_served()
    third, fourth = await Client.connect(port), await Client.connect(port)
    await quiet()
    assert not third.answer.done(), "it waits, and is not turned away"
    first.writer.close()
    assert await third.is_served()
    await quiet()
    assert not fourth.answer.done()
    await world.apply(ConfigChanged(4, "", "max.connections", "3"))
    await world.runtime.advance(1_000)
    assert await fourth.is_served(), "the limit was raised"
    assert len(world.gateway.connections) == 3


@in_world(listening, Fixture("monkeypatch"), max_connection_creation_rate="2")
async def test_connections_come_no_faster_than_allowed(world: World, port: int) -> None:
    await world.runtime.advance(60_000)
    clients = [await Client.connect(port) for _ in range(5)]
    await quiet()
    assert sum(one.answer.done() for one in clients) == 2, "what a second allows, at once"
    for served in (3, 4, 5):
        await world.runtime.advance(500)
        await quiet()
        assert sum(one.answer.done() for one in clients) == served
    assert all([await one.is_served() for one in clients])


def test_connections_that_break_while_they_are_accepted_take_nobodys_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(_protocol: Any, accepted: socket.socket) -> None:
        accepted.close()
        raise ConnectionResetError

    async def scenario(world: World, port: int) -> None:
        with monkeypatch.context() as breaking:
            breaking.setattr(asyncio.get_running_loop(), "connect_accepted_socket", broken)
            for _ in range(2):
                reset = await Client.connect(port)
                await asyncio.wait({reset.answer}, timeout=60)
                assert reset.answer.exception() is not None or not reset.answer.result()
        assert await (await Client.connect(port)).is_served()

    listening(scenario, monkeypatch, max_connections="2")


@in_world(listening, Fixture("monkeypatch"))
async def test_many_at_once_are_all_served(world: World, port: int) -> None:
    clients = [await Client.connect(port) for _ in range(200)]
    assert all([await one.is_served() for one in clients])
    assert len(world.gateway.connections) == 200
    for one in clients:
        one.writer.close()
    await quiet()
    assert len(world.gateway.connections) == 0


def test_a_port_that_is_given_up_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = []

    async def scenario(world: World, port: int) -> None:
        ports.append(port)
        assert await (await Client.connect(port)).is_served()

    listening(scenario, monkeypatch, max_connections="1")
    socket.create_server(("127.0.0.1", ports[0])).close()


def test_while_nobody_has_room_the_port_is_not_looked_at_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World, port: int) -> None:
        looks = 0
        has_room = world.gateway.connections.has_room

        def counted(listener: str, resume: Callable[[], None]) -> bool:
            nonlocal looks
            looks += 1
            return has_room(listener, resume)

        monkeypatch.setattr(world.gateway.connections, "has_room", counted)
        assert await (await Client.connect(port)).is_served()
        await Client.connect(port)
        await quiet()
        assert looks <= 3

    listening(scenario, monkeypatch, max_connections="1")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_accept_is_retried_when_the_system_is_out_of_resources(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World, port: int) -> None:
        looks = 0

        def scarce(_listener: socket.socket) -> Any:
            nonlocal looks
            looks += 1
            raise OSError(number, "scarce")

        with monkeypatch.context() as full:
            full.setattr(socket.socket, "accept", scarce)
            waiting = await Client.connect(port)
            await quiet()
            assert looks == 1, "and not at once again"
        await world.runtime.advance(PAUSE_MS - 1)
        await quiet()
        assert not waiting.answer.done()
        await world.runtime.advance(1)
        assert await waiting.is_served()

    listening(scenario, monkeypatch)


def test_a_listener_that_is_broken_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World, _port: int) -> None:
        def broken(_listener: socket.socket) -> Any:
            raise OSError(errno.EINVAL, "not listening")

        (acceptor,) = world.gateway._acceptors
        with monkeypatch.context() as breaking:
            breaking.setattr(socket.socket, "accept", broken)
            with pytest.raises(OSError, match="not listening"):
                acceptor._accept()
        assert world.runtime.pending_timers() == 0, "it is not tried again in silence"

    listening(scenario, monkeypatch)

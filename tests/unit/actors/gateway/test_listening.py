"""A gateway serves its port once it can name a broker to clients: its own."""

import asyncio
import socket

import pytest

from raylog.actors.common_messages import RouteUpdate
from raylog.actors.endpoints import Endpoint
from raylog.actors.metadata.records import BrokerUnfenced
from tests.support.ports import free_port
from tests.worlds.gateway.actor import World, run


async def is_served(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.write_eof()
    assert await reader.read() == b"", "nothing was asked"
    writer.close()
    await writer.wait_closed()
    return True


def test_clients_wait_until_the_broker_is_unfenced_and_routes_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()

    async def scenario(world: World) -> None:
        monkeypatch.setattr(world.gateway, "_listening", [Endpoint("PLAINTEXT", "127.0.0.1", port)])
        await world.gateway.start()
        assert not await is_served(port)
        await world.brokers(1, 2, fenced=[1])
        await world.gateway.apply_routes(RouteUpdate())
        assert not await is_served(port)
        await world.apply(BrokerUnfenced(1, 51))
        assert await is_served(port)
        await world.gateway.stop()
        assert not await is_served(port)

    run(scenario)


def test_a_successor_waits_for_its_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()

    async def scenario(world: World) -> None:
        monkeypatch.setattr(world.gateway, "_listening", [Endpoint("PLAINTEXT", "127.0.0.1", port)])
        await world.gateway.start()
        await world.brokers(1)
        assert not await is_served(port)
        await world.gateway.apply_routes(RouteUpdate())
        assert await is_served(port)
        await world.gateway.stop()

    run(scenario)


def test_a_gateway_that_never_served_gives_its_port_back(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()

    async def scenario(world: World) -> None:
        monkeypatch.setattr(world.gateway, "_listening", [Endpoint("PLAINTEXT", "127.0.0.1", port)])
        await world.gateway.start()
        await world.gateway.stop()
        socket.create_server(("127.0.0.1", port)).close()

    run(scenario)


def test_buffers_of_connections_have_the_configured_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, int] = {}

    class Listener(socket.socket):
        def setsockopt(self, level: int, option: int, value: int) -> None:  # type: ignore[override]
            asked[option] = value
            super().setsockopt(level, option, value)

    monkeypatch.setattr("raylog.actors.gateway.actor.socket.socket", Listener)

    async def scenario(world: World) -> None:
        await world.gateway.start()
        await world.gateway.stop()

    run(scenario, socket_send_buffer_bytes="65536")
    assert asked[socket.SO_SNDBUF] == 65536
    assert socket.SO_RCVBUF not in asked


def test_a_gateway_holds_the_ports_of_all_its_listeners_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = free_port(), free_port()
    both = [Endpoint("X", "127.0.0.1", first), Endpoint("Y", "127.0.0.1", second)]

    async def scenario(world: World) -> None:
        monkeypatch.setattr(world.gateway, "_listening", both)
        with socket.create_server(("127.0.0.1", second)), pytest.raises(OSError, match="in use"):
            await world.gateway.start()
        socket.create_server(("127.0.0.1", first)).close()
        await world.gateway.start()
        await world.brokers(1)
        await world.gateway.apply_routes(RouteUpdate())
        assert await is_served(first)
        assert await is_served(second)
        await world.gateway.stop()
        assert not await is_served(second)

    run(scenario)

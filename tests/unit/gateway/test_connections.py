"""How many connections there may be, and how long a silent one stays."""

from __future__ import annotations

import pytest

from raylog.actors.metadata.records import ConfigChanged
from raylog.actors.replica.api import PRODUCE, ProduceAnswer
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.records import Record, encode_batch
from tests.support.gateway_world import World, run, settle, topic_id
from tests.support.producing import produce

T = topic_id("t")
BATCH = encode_batch([Record(0, 1_000_000, b"k", b"v", [])])
IDLE_MS = 8_000  # so the gateway looks every second


# ---- how many --------------------------------------------------------------------------------


def test_an_address_may_have_so_many_connections(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        near = [world.client("10.0.0.1") for _ in range(3)]
        far = world.client("10.0.0.2")
        assert [one.transport.closed for one in (*near, far)] == [False, False, True, False]
        assert "it has 2 connections (max.connections.per.ip)" in caplog.text
        near[2].connection.connection_lost(None)  # the refused one counts for nothing
        assert world.client("10.0.0.1").transport.closed
        near[0].connection.connection_lost(None)
        assert not world.client("10.0.0.1").transport.closed

    run(scenario, max_connections_per_ip="2")


def test_limits_may_change_while_the_broker_runs() -> None:
    async def scenario(world: World) -> None:
        assert not world.client("10.0.0.1").transport.closed
        await world.apply(ConfigChanged(4, "", "max.connections.per.ip", "1"))
        assert world.client("10.0.0.1").transport.closed
        await world.apply(ConfigChanged(4, "1", "max.connections.per.ip", "2"))
        assert not world.client("10.0.0.1").transport.closed
        await world.apply(ConfigChanged(4, "", "max.connections", "2"))
        assert world.client("10.0.0.2").transport.closed
        assert (await world.gateway.ping())["connections"] == 2

    run(scenario)


# ---- how long --------------------------------------------------------------------------------


def test_a_silent_connection_is_closed() -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        await world.runtime.advance(IDLE_MS - 1)
        assert not client.transport.closed
        await world.runtime.advance(1_001)
        assert client.transport.closed

    run(scenario, connections_max_idle_ms=str(IDLE_MS))


def test_one_that_speaks_stays() -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        for _ in range(5):
            await world.runtime.advance(IDLE_MS - 1_500)
            await client.ask(ApiVersionsRequest(), 0)
        assert not client.transport.closed

    run(scenario, connections_max_idle_ms=str(IDLE_MS))


def test_one_that_waits_for_an_answer_or_takes_its_time_to_read_stays() -> None:
    async def scenario(world: World) -> None:
        await world.brokers(1)
        await world.topic("t")
        link = await world.route("replica", (T, 0))
        client = world.client()
        client.send(produce((0, BATCH), timeout_ms=60_000), 9)
        await world.runtime.advance(3 * IDLE_MS)
        assert not client.transport.closed
        link.take(PRODUCE).reply([ProduceAnswer(0, -1, 0)])
        await world.runtime.advance(IDLE_MS - 1)
        assert not client.transport.closed
        del client.transport.written[:1]
        await world.runtime.advance(IDLE_MS - 1)
        assert not client.transport.closed
        await world.runtime.advance(2_000)
        assert client.transport.closed

    run(scenario, connections_max_idle_ms=str(IDLE_MS))


def test_without_connections_there_is_no_timer_and_with_many_there_is_one() -> None:
    async def scenario(world: World) -> None:
        assert world.runtime.pending_timers() == 0
        clients = [world.client() for _ in range(3)]
        for client in clients:
            await client.ask(ApiVersionsRequest(), 0)
        assert world.runtime.pending_timers() == 1
        for client in clients:
            client.connection.connection_lost(None)
        assert world.runtime.pending_timers() == 0

    run(scenario, connections_max_idle_ms=str(IDLE_MS))


def test_minus_one_is_for_ever() -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        assert world.runtime.pending_timers() == 0
        await world.runtime.advance(10**9)
        await settle()
        assert not client.transport.closed

    run(scenario, connections_max_idle_ms="-1")

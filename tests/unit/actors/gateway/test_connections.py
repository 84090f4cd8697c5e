"""The limit of connections, and the limit of idle time."""

from __future__ import annotations

import pytest

from raylog.actors.gateway import connections
from raylog.actors.gateway.connection import WAITING_MAX, ClientConnection
from raylog.actors.metadata.records import ConfigChanged
from raylog.actors.replica.messages import FETCH, FETCH_END, PRODUCE, ProduceAnswer
from raylog.wire.api import ApiKey
from raylog.wire.frame import encode_request
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.records import Record, encode_batch
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, served, topic_id
from tests.worlds.gateway.fetching import fetch, part
from tests.worlds.gateway.producing import produce
from tests.worlds.runtime import settle

T = topic_id("t")
BATCH = encode_batch([Record(0, 1_000_000, b"k", b"v", [])])
REQUEST = b"".join(encode_request(ApiKey.API_VERSIONS, 0, 7, "c", ApiVersionsRequest()))
IDLE_MS = 8_000  # so the gateway looks every second


# ---- how many --------------------------------------------------------------------------------


@in_world(run, max_connections_per_ip="2")
async def test_max_connections_per_ip_is_enforced(
    world: World, *, caplog: pytest.LogCaptureFixture
) -> None:
    near = [world.client("10.0.0.1") for _ in range(3)]
    far = world.client("10.0.0.2")
    assert [one.transport.closed for one in (*near, far)] == [False, False, True, False]
    assert "it has 2 connections (max.connections.per.ip)" in caplog.text
    near[2].connection.connection_lost(None)  # the refused one counts for nothing
    assert world.client("10.0.0.1").transport.closed
    near[0].connection.connection_lost(None)
    assert not world.client("10.0.0.1").transport.closed


@in_world(run)
async def test_stored_limits_of_zero_are_ignored(world: World) -> None:
    """They took 0 for either, and kept it over restarts."""

    await world.apply(ConfigChanged(4, "", "max.connections", "0"))
    await world.apply(ConfigChanged(4, "", "max.connections.per.ip", "0"))
    assert world.gateway.connections.has_room("PLAINTEXT", lambda: None)
    assert not world.client("10.0.0.1").transport.closed
    await world.apply(ConfigChanged(4, "", "max.connections.per.ip.overrides", "10.0.0.2:7"))
    assert world.client("10.0.0.1").transport.closed
    assert not world.client("10.0.0.2").transport.closed


@in_world(run)
async def test_limits_may_change_while_the_broker_runs(world: World) -> None:
    assert not world.client("10.0.0.1").transport.closed
    await world.apply(ConfigChanged(4, "", "max.connections.per.ip", "1"))
    assert world.client("10.0.0.1").transport.closed
    await world.apply(ConfigChanged(4, "1", "max.connections.per.ip", "2"))
    assert not world.client("10.0.0.1").transport.closed
    assert world.gateway.connections.has_room("PLAINTEXT", lambda: None)
    await world.apply(ConfigChanged(4, "", "max.connections", "2"))
    assert not world.gateway.connections.has_room("PLAINTEXT", lambda: None)
    assert (await world.gateway.ping())["connections"] == 2


@in_world(
    run,
    max_connections_per_ip="1",
    max_connections_per_ip_overrides="10.0.0.1:3,2001:db8::1:2, localhost:4",
)
async def test_some_addresses_may_have_limits_of_their_own(world: World) -> None:
    def admitted(host: str, count: int) -> int:
        clients = [world.client(host) for _ in range(count)]
        return sum(not one.transport.closed for one in clients)

    assert admitted("10.0.0.1", 5) == 3
    assert admitted("10.0.0.2", 5) == 1
    assert admitted("2001:db8::1", 5) == 2
    await settle()
    assert admitted("127.0.0.1", 5) == 4, "of localhost"
    await world.apply(
        ConfigChanged(4, "", "max.connections.per.ip.overrides", "10.0.0.2:2, nobody.invalid:7")
    )
    assert admitted("10.0.0.2", 5) == 1, "one beside the one that is open"
    assert admitted("10.0.0.3", 5) == 1


# ---- how long --------------------------------------------------------------------------------


@in_world(run, connections_max_idle_ms=str(IDLE_MS))
async def test_a_silent_connection_is_closed(world: World) -> None:
    client = world.client()
    await world.runtime.advance(IDLE_MS - 1)
    assert not client.transport.closed
    await world.runtime.advance(1_001)
    assert client.transport.closed


@in_world(run, connections_max_idle_ms=str(IDLE_MS))
async def test_a_silent_connection_keeps_no_memory_for_what_may_come(world: World) -> None:
    client = world.client()
    for _ in range(2):
        for _ in range(1_000):
            client.send_bytes(REQUEST)
        await world.runtime.advance(2_500)
        assert not client.connection._buffer._chunk
        client.transport.written.clear()
    assert not client.transport.closed


@pytest.mark.long
@in_world(run, connections_max_idle_ms=str(IDLE_MS))
async def test_read_buffer_of_a_quiet_connection_shrinks_after_a_burst(world: World) -> None:
    client = world.client()
    for _ in range(200):
        client.send_bytes(REQUEST * 200)
    await world.runtime.advance(10)
    much = len(client.connection._buffer._chunk)
    for _ in range(10):
        client.send_bytes(REQUEST)
        await world.runtime.advance(IDLE_MS / 40)
    assert len(client.connection._buffer._chunk) < much / 8
    assert not client.transport.closed


@in_world(run, connections_max_idle_ms=str(IDLE_MS))
async def test_active_connection_is_not_closed_as_idle(world: World) -> None:
    client = world.client()
    for _ in range(5):
        await world.runtime.advance(IDLE_MS - 1_500)
        await client.ask(ApiVersionsRequest(), 0)
    assert not client.transport.closed


@in_world(run, connections_max_idle_ms=str(IDLE_MS))
async def test_connection_with_pending_or_slowly_read_answers_is_not_idle(world: World) -> None:
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


@in_world(run, connections_max_idle_ms=str(IDLE_MS))
async def test_without_connections_there_is_no_timer_and_with_many_there_is_one(
    world: World,
) -> None:
    assert world.runtime.pending_timers(looks=True) == 0
    clients = [world.client() for _ in range(3)]
    for client in clients:
        await client.ask(ApiVersionsRequest(), 0)
    assert world.runtime.pending_timers(looks=True) == 1
    for client in clients:
        client.connection.connection_lost(None)
    assert world.runtime.pending_timers(looks=True) == 0


@in_world(run, connections_max_idle_ms=str(IDLE_MS))
async def test_idle_check_restarts_for_a_connection_after_all_others_closed(world: World) -> None:
    for _ in range(2):
        client = world.client()
        await world.runtime.advance(IDLE_MS + 1_001)
        assert client.transport.aborted
        client.connection.connection_lost(None)


@in_world(run, connections_max_idle_ms="-1")
async def test_idle_limit_of_minus_one_never_closes_a_connection(world: World) -> None:
    client = world.client()
    await world.runtime.advance(10**7)
    await settle()
    assert not client.transport.closed


# ---- connections that are to end ---------------------------------------------------------------


def test_many_that_fall_silent_together_are_cut_off_some_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "CUT_OFF_AT_ONCE", 3)

    async def scenario(world: World) -> None:
        clients = [world.client() for _ in range(10)]
        seen = []
        for _ in range(IDLE_MS // 10):
            await world.runtime.advance(20)
            seen.append(sum(one.transport.aborted for one in clients))
            for one in clients:
                if one.transport.aborted:
                    one.connection.connection_lost(None)
        assert list(dict.fromkeys(seen)) == [0, 3, 6, 9, 10]

    run(scenario, connections_max_idle_ms=str(IDLE_MS))


def test_many_connections_are_looked_at_some_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of idle ones hold up the requests of others for some ms at a time."""
    monkeypatch.setattr(connections, "LOOKED_AT_ONCE", 3)
    ahead: list[int] = []
    look_at = connections.Connections._look_at

    def noted(self: connections.Connections, rest: list[ClientConnection]) -> None:
        ahead.append(len(rest))
        look_at(self, rest)
        if len(ahead) == 1:
            rest[-1].connection_lost(None)

    monkeypatch.setattr(connections.Connections, "_look_at", noted)

    async def scenario(world: World) -> None:
        clients = [world.client() for _ in range(10)]
        while len(ahead) < 4:
            await world.runtime.advance(20)
        assert ahead[:4] == [10, 7, 4, 1]
        await world.runtime.advance(2 * IDLE_MS)
        assert sum(one.transport.closed for one in clients) >= 9

    run(scenario, connections_max_idle_ms=str(IDLE_MS))


@in_world(run, connections_max_idle_ms=str(IDLE_MS))
async def test_idle_client_that_does_not_read_is_aborted(world: World) -> None:
    client = world.client()
    await client.ask(ApiVersionsRequest(), 0)
    client.transport.written += bytes(100)
    await world.runtime.advance(2 * IDLE_MS)
    assert client.transport.aborted, "closed only, it would wait until these are read"


@in_world(run, connections_max_idle_ms="-1")
async def test_client_that_broke_the_protocol_and_does_not_read_is_aborted(world: World) -> None:
    client = world.client()
    client.transport.written += bytes(100)
    client.send_bytes(bytes([0, 0, 0, 1, 0]))
    assert client.transport.closed
    assert not client.transport.aborted, "earlier answers still go out"
    await world.runtime.advance(80_000)
    assert client.transport.aborted


@in_world(run, connections_max_idle_ms="-1")
async def test_half_closed_connection_is_aborted_before_its_long_poll_ends(world: World) -> None:
    await served(world)
    client, other = world.client(), world.client()
    for one in (client, other):
        one.send(fetch((0, 0), max_wait_ms=2**31 - 1), 13)
    assert client.connection.eof_received(), "answers may still come"
    await world.runtime.advance(80_000)
    assert client.transport.aborted
    assert not other.transport.closed, "it may wait for as long as it likes"


@in_world(run)
async def test_a_long_poll_ends_with_its_connection(world: World) -> None:
    link = await served(world)
    client = world.client()
    client.send(fetch((0, 0), max_wait_ms=2**31 - 1), 13)
    asked = link.take(FETCH)
    client.connection.connection_lost(None)
    ended = link.take(FETCH_END)
    assert ended.header[1] is False, "the replica is to answer at once"
    asked.reply([part()])
    ended.reply()
    assert world.runtime.pending_timers() == 0, "nothing waits for 24 days"


@in_world(run)
async def test_long_polls_of_a_connection_are_limited(world: World) -> None:
    link = await served(world)
    client = world.client()
    for _ in range(20):
        client.send(fetch((0, 0), max_wait_ms=60_000), 13)
    assert link.kinds().count(FETCH) == WAITING_MAX
    assert not client.transport.reading
    link.take(FETCH).reply([part(0, end=1)])
    await settle()
    assert link.kinds().count(FETCH) == WAITING_MAX + 1, "the next one"
    for _ in range(20):
        for request in [one for one in link.requests if one.open]:
            request.reply([part(0)] if request.kind == FETCH else None)
        await world.runtime.advance(60_000)
    assert len(client.received()) == 20
    assert client.transport.reading


# ---- parts of requests -------------------------------------------------------------------------


def test_a_client_that_rests_within_a_request_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        half, idle, slow = world.client(), world.client(), world.client()
        half.send_bytes(bytes([0, 0, 1, 0, 0, 18]))
        slow.send_bytes((1 << 20).to_bytes(4, "big"))
        for _ in range(7):
            await world.runtime.advance(10_000)
            slow.send_bytes(bytes(50_000))
        assert half.transport.closed
        assert "6 bytes of a request came in" in caplog.text
        assert not idle.transport.closed
        assert not slow.transport.closed, "5 kB a second are slow, and no rest"
        for _ in range(20):
            await world.runtime.advance(10_000)
            slow.send_bytes(bytes(10))
        assert slow.transport.closed, "a byte a second keeps nothing open"

    caplog.set_level("INFO")
    run(scenario)


@pytest.mark.parametrize(("came", "closed"), [(240_000, False), (239_999, True)])
@in_world(run)
async def test_minimum_rate_of_an_incoming_request(
    world: World, *, came: int, closed: bool
) -> None:
    """4 bytes a millisecond, of each minute."""

    client = world.client()
    client.send_bytes((1 << 20).to_bytes(4, "big") + bytes(came - 4))
    await world.runtime.advance(59_999)
    assert not client.transport.closed
    await world.runtime.advance(1)
    assert client.transport.closed == closed
    await world.runtime.advance(50_000)
    client.send_bytes(bytes(came - 1))
    await world.runtime.advance(10_000)
    assert client.transport.closed, "the same of the next minute"


@in_world(run)
async def test_fast_start_of_a_request_does_not_allow_a_long_pause(world: World) -> None:
    client = world.client()
    client.send_bytes((1 << 20).to_bytes(4, "big") + bytes(900_000))
    await world.runtime.advance(150_000)
    assert client.transport.closed, "at 4 bytes a millisecond it would have 225 s"


@in_world(run)
async def test_the_time_of_a_part_begins_with_each_request(world: World) -> None:
    client = world.client()
    client.send_bytes(REQUEST[:7])
    for _ in range(20):
        await world.runtime.advance(20_000)
        client.send_bytes(REQUEST[7:] + REQUEST[:7])  # never without a part
    assert not client.transport.closed


@in_world(run, max_connections="3", listener_name_out_max_connections="1")
async def test_a_listener_may_have_a_limit_of_its_own_within_that_of_all(world: World) -> None:
    connections = world.gateway.connections
    world.client(listener="OUT")
    inside = world.client(listener="IN")
    resumed: list[str] = []
    assert not connections.has_room("OUT", lambda: resumed.append("OUT"))
    assert connections.has_room("IN", lambda: resumed.append("IN"))
    connections.comes("IN")
    assert not connections.has_room("IN", lambda: resumed.append("IN")), "three in all"
    inside.connection.connection_lost(None)
    assert resumed == ["OUT", "IN"]
    await world.apply(ConfigChanged(4, "1", "listener.name.out.max.connections", "2"))
    assert connections.has_room("OUT", lambda: None)
    await world.apply(ConfigChanged(4, "1", "listener.name.out.max.connections", "1"))
    assert not connections.has_room("OUT", lambda: None)


@in_world(run, listener_name_out_max_connections="2")
async def test_a_listener_has_room_again_for_each_that_leaves_it(world: World) -> None:
    connections = world.gateway.connections
    for _ in range(3):
        client = world.client(listener="OUT")
        connections.comes("OUT")
        assert not connections.has_room("OUT", lambda: None)
        connections.has_come("OUT")
        assert connections.has_room("OUT", lambda: None)
        client.connection.connection_lost(None)


@in_world(run, max_connection_creation_rate="4", listener_name_out_max_connection_creation_rate="1")
async def test_a_listener_may_have_a_rate_of_its_own_within_that_of_all(world: World) -> None:
    connections = world.gateway.connections
    assert connections.wait_ms("OUT") == connections.wait_ms("IN") == 0
    connections.comes("OUT")
    assert connections.wait_ms("OUT") == 1_000
    for _ in range(3):
        assert connections.wait_ms("IN") == 0
        connections.comes("IN")
    assert connections.wait_ms("IN") == 250, "four a second in all"
    await world.runtime.advance(250)
    assert connections.wait_ms("IN") == 0
    assert connections.wait_ms("OUT") == 750

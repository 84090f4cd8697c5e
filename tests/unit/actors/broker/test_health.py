"""Whether a broker is healthy: the rules, the setting, and the answers to probes."""

import asyncio
import json
from pathlib import Path

import pytest

from raylog.actors.broker.actor import BrokerActor
from raylog.actors.broker.health import Standing, address_of, reasons
from raylog.actors.broker.messages import BrokerHealth
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import NewTopic
from raylog.wire.errors import InvalidConfig
from tests.worlds.broker.recording import RecordingCluster, RecordingReplica
from tests.worlds.decorators import in_loop

SESSION_MS = 6_000
WELL = Standing(1, "running", gateways=1, partitions=3, silent_ms=500)


def test_a_broker_that_serves_lacks_nothing() -> None:
    assert reasons(WELL, SESSION_MS) == []
    assert reasons(WELL._replace(offline=2), SESSION_MS) == []  # the others are served
    assert reasons(WELL._replace(partitions=0), SESSION_MS) == []


@pytest.mark.parametrize(
    ("standing", "why"),
    [
        (WELL._replace(state="starting"), "this one is starting"),
        (WELL._replace(state="fenced"), "this one is fenced"),
        (WELL._replace(state="shutting down"), "this one is shutting down"),
        (WELL._replace(refusal="another has its id"), "another has its id"),
        (WELL._replace(gateways=0), "no gateway is running"),
        (WELL._replace(offline=3), "all 3 partitions failed"),
        (WELL._replace(silent_ms=6_000), "answered for 6,000 ms"),
    ],
)
def test_every_reason_for_being_unhealthy_is_named(standing: Standing, why: str) -> None:
    (found,) = reasons(standing, SESSION_MS)
    assert why in found


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:0", ("::1", 0)),
        (":8080", ("", 8080)),
    ],
)
def test_the_setting_is_an_address(text: str, address: tuple[str, int] | None) -> None:
    assert address_of(BrokerSettings({"health.listener": text})) == address
    assert address_of(BrokerSettings({})) is None


@pytest.mark.parametrize("text", ["8080", "h:", "h:x", "h:65536", "h:٣", "http://h:-1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="must look like host:port"):
        address_of(BrokerSettings({"health.listener": text}))


async def probe(health: BrokerHealth, path: str) -> tuple[int, dict[str, object]]:
    host, _, port = health.listener.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


@in_loop
async def test_a_probe_sees_a_broker_serve_fail_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = RecordingCluster(tmp_path, health_listener="127.0.0.1:0")
    await cluster.up()
    health: BrokerHealth = await cluster.call(0, "health")
    assert health.reasons == ()
    assert await probe(health, "/healthz") == (200, {"broker": 0, "alive": True})
    assert await probe(health, "/readyz") == (200, health.document())

    monkeypatch.setattr(RecordingReplica, "broken", "the disk fails")
    await cluster.create(NewTopic("t", num_partitions=2))
    actor = cluster.world.resident("cluster/broker/0/0").actor
    assert isinstance(actor, BrokerActor)
    await cluster.until(lambda: len(actor._machine.offline) == 2)
    status, document = await probe(health, "/readyz")
    assert (status, document["offline_partitions"], document["ready"]) == (503, 2, False)
    assert document["reasons"] == ["the log directory is offline: all 2 partitions failed"]
    assert (await probe(health, "/healthz"))[0] == 200
    monkeypatch.setattr(RecordingReplica, "broken", None)
    await cluster.until(lambda: not actor._machine.offline)
    assert (await probe(health, "/readyz"))[0] == 200

    await cluster.call(0, "shutdown")
    status, document = await probe(health, "/readyz")
    assert (status, document["state"]) == (503, "shut down")
    assert "no gateway is running: clients cannot connect" in str(document["reasons"])
    await cluster.world.stop()
    with pytest.raises(ConnectionRefusedError):
        await probe(health, "/healthz")


@in_loop
async def test_nothing_listens_unless_it_is_asked_for(tmp_path: Path) -> None:
    cluster = RecordingCluster(tmp_path)
    await cluster.up()
    health: BrokerHealth = await cluster.call(0, "health")
    assert health.listener == ""
    await cluster.down()


@in_loop
async def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    cluster = RecordingCluster(tmp_path)
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    with pytest.raises(InvalidConfig, match=f"health.listener 127.0.0.1:{port}: Address"):
        await cluster.spawn(0, **{"health.listener": f"127.0.0.1:{port}"})
    taken.close()
    await cluster.world.stop()

"""Brokers with two listeners in the simulation: clients of each get its addresses."""

from __future__ import annotations

from raylog.actors.controller.messages import NewTopic
from raylog.actors.names import CONTROLLER, broker_name
from raylog.simulation.asking import UNANSWERED, Asking
from raylog.simulation.cluster import Cluster
from raylog.simulation.loop import SimLoop, run_in_virtual_time
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.simulated_gateway import simulated_role
from raylog.simulation.world import World
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.metadata import MetadataRequest
from tests.worlds.decorators import in_world

BROKERS = 3
SETTINGS = {
    "listeners": "INTERNAL://127.0.0.1:9092,EXTERNAL://127.0.0.1:19092",
    "advertised.listeners": "EXTERNAL://kafka.example:29092,INTERNAL://127.0.0.1:9092",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
EXPECTED = {
    "INTERNAL": [(0, "127.0.0.1", 9092), (1, "127.0.0.1", 9093), (2, "127.0.0.1", 9094)],
    "EXTERNAL": [(one, "kafka.example", 29_092 + one) for one in range(BROKERS)],
}


async def brokers_seen(client: Asking) -> list[tuple[int, str, int]]:
    """The brokers that a client is told of, once all of them are back."""
    while True:
        try:
            answer = await client.ask_any(MetadataRequest(topics=[]), 12)
        except UNANSWERED:
            answer = None
        if answer is not None and len(answer.brokers) == BROKERS:
            return [(one.node_id, one.host, one.port) for one in answer.brokers]
        await client.pause()


async def coordinator(client: Asking) -> tuple[int, str, int]:
    """Where a client is told to find a group."""
    while True:
        try:
            request = FindCoordinatorRequest(coordinator_keys=["g"])
            [found] = (await client.ask_any(request, 4)).coordinators
        except UNANSWERED:
            continue
        if not found.error_code:
            return found.node_id, found.host, found.port
        await client.pause()


@in_world(run_in_virtual_time)
async def test_clients_of_each_listener_are_told_of_their_own_also_after_a_crash(
    loop: SimLoop,
) -> None:
    cluster = Cluster(World(loop, 11, simulated_role, SimRuntime), BROKERS, SETTINGS)
    await cluster.start()
    await cluster.create(NewTopic("t", 3, 3))
    clients = {
        listener: Asking(cluster, number, listener) for number, listener in enumerate(EXPECTED)
    }
    for listener, client in clients.items():
        assert await brokers_seen(client) == EXPECTED[listener]
        assert await coordinator(client) in EXPECTED[listener]
    cluster.world.kill(broker_name(cluster.plan.cluster_id, 1))
    cluster.world.kill(cluster.of_role(CONTROLLER)[0].ref.name)
    for listener, client in clients.items():
        assert await brokers_seen(client) == EXPECTED[listener]
    (image, *_) = cluster.images()
    first = [broker.endpoints[0].listener for broker in image.brokers.values()]
    assert first == ["INTERNAL"] * BROKERS

"""Samples a gateway's connections and queues, when metrics are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.actors.metrics.families import gateway as families
from raylog.actors.metrics.samples import Samples

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor

AT_ONCE = 1_000
"""Connections sampled in one turn."""


async def sample_gateway(gateway: GatewayActor, samples: Samples) -> None:
    """Sample everything that clients may be waiting for."""
    gateway.counts.forget_topics(gateway.cluster.image.topic_ids)
    in_flight = parked = paused = 0
    for number, connection in enumerate(gateway.connections, 1):
        requests, waiting = connection.in_flight
        in_flight += requests
        parked += waiting
        paused += connection.is_paused
        if number % AT_ONCE == 0:
            await gateway.runtime.sleep(0)
    for listener, count in gateway.connections.by_listener().items():
        samples.add(families.CONNECTIONS, count, listener)
    for family, figure in (
        (families.IN_FLIGHT, in_flight),
        (families.PARKED, parked),
        (families.PAUSED, paused),
        (families.HELD_BACK, len(gateway.backlog)),
        (families.MEMORY, gateway.memory.held),
        (families.FETCH_SESSIONS, len(gateway.fetch_sessions)),
        (families.SEGMENT_MAPS, len(gateway.maps)),
    ):
        samples.add(family, figure)

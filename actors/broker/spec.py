"""The spec of a Broker actor."""

from __future__ import annotations

from pathlib import Path

from raylog.actors.broker.links import read_links
from raylog.actors.config import BrokerSettings
from raylog.actors.names import BROKER, broker_name
from raylog.actors.places import Place
from raylog.actors.runtime.base import ActorSpec


def broker_spec(
    *,
    cluster_id: str,
    broker_id: int,
    data: Path,
    settings: dict[str, str],
    broker_ids: list[int],
    initial_voters: list[tuple[int, str]],
    place: Place | None = None,
) -> ActorSpec:
    """Build the spec of the Broker actor of a data directory.

    `broker_ids` are the brokers whose voters the controller may ask. `initial_voters`, as (broker
    id, directory id), are the voters of a new cluster; later the directories know them.
    """
    read = BrokerSettings(settings)
    return ActorSpec(
        name=broker_name(cluster_id, broker_id),
        role=BROKER,
        args={
            "cluster_id": cluster_id,
            "broker_id": broker_id,
            "data": str(data),
            "settings": settings,
            "broker_ids": broker_ids,
            "initial_voters": initial_voters,
            "place": place,
        },
        place=place,
        restarts=True,
        links=read_links(read),
        drain_ms=read.number("drain.timeout.ms"),
        journal=str(data),
    )

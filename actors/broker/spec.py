"""What a Broker actor is started with."""

from __future__ import annotations

from pathlib import Path

from raylog.actors.broker.links import read_links
from raylog.actors.config import BrokerSettings
from raylog.actors.names import BROKER, broker_name
from raylog.actors.runtime.base import ActorSpec, Place


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
    """The Broker actor of a data directory.

    `broker_ids` are those whose voters the controller may ask. `initial_voters`, (broker id,
    directory id), hold the metadata log of a cluster that is new; later the directories know.
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

"""Starts a wanted broker, unless it is held.

Holding a broker means writing the hold first and then stopping what is running. So a start checks
the holds again once the broker is running: one of the two sees the other, whichever comes first.
"""

from __future__ import annotations

from pathlib import Path

from raylog.actors.broker.spec import broker_spec
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.remote import Broker, call
from raylog.actors.runtime.base import ActorSpec, PeerLost, PeerTimeout, Runtime
from raylog.actors.supervisor.notes import holds_of
from raylog.actors.supervisor.rules.desired import DesiredCluster, place_of
from raylog.actors.supervisor.rules.holds import describe_holds
from raylog.wire.errors import KafkaError

END_TIMEOUT_MS = 25_000
"""How long a broker that was held while it started has to close its logs, in ms."""


async def start_unless_held(
    runtime: Runtime, desired: DesiredCluster, wanted: BrokerWanted
) -> str | None:
    """Start a broker; return why it is held, or None.

    Raises as `Runtime.spawn` does, and PeerLost or PeerTimeout if the holds cannot be read.
    """
    broker_id = wanted.broker_id
    why = await held_by(runtime, desired, broker_id)
    if why is not None:
        return why
    broker = await runtime.spawn(wanted_spec(desired, wanted))
    why = await held_by(runtime, desired, broker_id)
    if why is not None:
        for method in (Broker.shutdown, Broker.stop):
            try:
                await call(runtime, broker, method, timeout_ms=END_TIMEOUT_MS)
            except (PeerLost, PeerTimeout, KafkaError):
                break  # whoever holds it has ended it, or it is killed below
        await runtime.end_for_good(broker.name)
    return why


async def held_by(runtime: Runtime, desired: DesiredCluster, broker_id: int) -> str | None:
    """Return why a broker is held, or None."""
    return describe_holds(await holds_of(runtime, desired.cluster_id)).get(broker_id)


def wanted_spec(desired: DesiredCluster, wanted: BrokerWanted) -> ActorSpec:
    """Return the actor spec of a wanted broker."""
    return broker_spec(
        cluster_id=desired.cluster_id,
        broker_id=wanted.broker_id,
        data=Path(wanted.directory),
        settings=dict(wanted.settings),
        broker_ids=[one.broker_id for one in desired.brokers],
        initial_voters=list(desired.voters),
        place=place_of(desired.cluster_id, wanted),
    )

"""Starting a wanted broker, unless it is held.

Whoever holds a broker writes that down first and then stops what it finds. So a start looks at the
holds also when the broker is there: then one of the two sees the other, whichever came first.
"""

from __future__ import annotations

from pathlib import Path

from raylog.actors.broker.spec import broker_spec
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.runtime.base import ActorSpec, PeerLost, PeerTimeout, Runtime
from raylog.actors.supervisor.desired import DesiredCluster, place_of
from raylog.actors.supervisor.holds import holds_of, told_of
from raylog.wire.errors import KafkaError

END_TIMEOUT_MS = 25_000
"""For a broker that is held by the time that it has started to close its logs."""


async def start_unless_held(
    runtime: Runtime, desired: DesiredCluster, wanted: BrokerWanted
) -> str | None:
    """Start a broker; None, or why it is held.

    Raises as `Runtime.spawn` does, and PeerLost or PeerTimeout where nobody tells the holds.
    """
    broker_id = wanted.broker_id
    why = await held_by(runtime, desired, broker_id)
    if why is not None:
        return why
    broker = await runtime.spawn(wanted_spec(desired, wanted))
    why = await held_by(runtime, desired, broker_id)
    if why is not None:
        for method in ("shutdown", "stop"):
            try:
                await runtime.call(broker, method, timeout_ms=END_TIMEOUT_MS)
            except (PeerLost, PeerTimeout, KafkaError):
                break  # whoever holds it has ended it, or it ends as it is
        await runtime.end_for_good(broker.name)
    return why


async def held_by(runtime: Runtime, desired: DesiredCluster, broker_id: int) -> str | None:
    """Why a broker is held; None if it is not."""
    return told_of(await holds_of(runtime, desired.cluster_id)).get(broker_id)


def wanted_spec(desired: DesiredCluster, wanted: BrokerWanted) -> ActorSpec:
    """The actor of a wanted broker."""
    return broker_spec(
        cluster_id=desired.cluster_id,
        broker_id=wanted.broker_id,
        data=Path(wanted.directory),
        settings=dict(wanted.settings),
        broker_ids=[one.broker_id for one in desired.brokers],
        initial_voters=list(desired.voters),
        place=place_of(desired.cluster_id, wanted),
    )

"""Stopping and restarting brokers of a supervised cluster one at a time.

The supervisor need not run meanwhile: whoever calls acts itself, and what it leaves undone when it
ends half-way the supervisor does, from the wishes and the holds that are written first.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from raylog.actors.cluster import CALL_TIMEOUT_MS, replace_controller, stop_broker
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.names import broker_name
from raylog.actors.runtime.base import ActorGone, NodeEntry, PeerLost, PeerTimeout, Runtime
from raylog.actors.supervisor.actor import wanted_spec
from raylog.actors.supervisor.desired import DesiredCluster
from raylog.actors.supervisor.holds import Hold, carriers_of, hold, holds_of, told_of
from raylog.wire.errors import BrokerNotAvailable, KafkaError

log = logging.getLogger(__name__)
CONTROLLER_TIMEOUT_MS = 10_000


async def stop_held(
    runtime: Runtime, desired: DesiredCluster, held: Hold, *, timeout_ms: int
) -> str | None:
    """Stop a broker and keep it stopped; None, or why it did not shut down cleanly.

    The controller moves to another voter's machine first, if it is on the broker's. `timeout_ms` is
    for handing leadership over and closing the logs; then the broker is ended as it is.
    """
    await hold(runtime, desired.cluster_id, held)
    await move_controller(runtime, desired, held.broker_id)
    return await stop_broker(runtime, desired.cluster_id, held.broker_id, timeout_ms=timeout_ms)


async def restart_wanted(
    runtime: Runtime, desired: DesiredCluster, wanted: BrokerWanted, *, timeout_ms: int
) -> str | None:
    """Stop a broker and start it again; None, or why it did not shut down cleanly.

    Raises as `Runtime.spawn` does, but for a name that is taken: then the supervisor was quicker.
    Raises BrokerNotAvailable where somebody holds the broker, also while it shuts down.
    """
    broker_id = wanted.broker_id
    await _require_free(runtime, desired, broker_id)
    unclean = await stop_broker(runtime, desired.cluster_id, broker_id, timeout_ms=timeout_ms)
    await _require_free(runtime, desired, broker_id)
    try:
        await runtime.spawn(wanted_spec(desired, wanted))
    except ValueError as taken:
        log.info("the supervisor has started broker %d: %s", broker_id, taken)
    return unclean


async def _require_free(runtime: Runtime, desired: DesiredCluster, broker_id: int) -> None:
    told = told_of(await holds_of(runtime, desired.cluster_id))
    if broker_id in told:
        raise BrokerNotAvailable(f"broker {broker_id} {told[broker_id]}")


def brokers_on(desired: DesiredCluster, node: NodeEntry) -> list[int]:
    """The brokers that are for a node."""
    return [one.broker_id for one in desired.brokers if carriers_of(one, [node])]


def candidates(desired: DesiredCluster, without: Collection[int] = ()) -> list[int]:
    """Brokers that may start a controller: voters."""
    known = {one.broker_id for one in desired.brokers}
    return [one for one, _ in desired.voters if one in known and one not in without]


async def move_controller(runtime: Runtime, desired: DesiredCluster, broker_id: int) -> None:
    """Have the controller run elsewhere than a broker; where that fails others start one later."""
    others = candidates(desired, {broker_id})
    name = broker_name(desired.cluster_id, broker_id)
    try:
        controller: str = await runtime.call(name, "controller", timeout_ms=CALL_TIMEOUT_MS)
        here = (await runtime.find(name)).node_id
        if others and (await runtime.find(controller)).node_id == here:
            await replace_controller(
                runtime, desired.cluster_id, others, timeout_ms=CONTROLLER_TIMEOUT_MS
            )
    except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
        log.warning("the controller is not moved away from broker %d: %s", broker_id, failure)

"""Stops and restarts brokers of a supervised cluster one at a time.

The supervisor need not be running: the caller does the work. If the caller dies half-way, the
supervisor finishes it, since the wanted state and the holds are written first.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - a deadline for an actor that is looked for
import logging
from collections.abc import Collection
from dataclasses import dataclass

from raylog.actors.cluster import CALL_TIMEOUT_MS, LOOK_S, replace_controller, stop_broker
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.names import broker_name, controller_name, owner_of
from raylog.actors.places import NodeEntry
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime
from raylog.actors.supervisor.controllers import by_controller
from raylog.actors.supervisor.notes import hold, holds_of
from raylog.actors.supervisor.rules.desired import DesiredCluster
from raylog.actors.supervisor.rules.holds import Hold, carriers_of
from raylog.actors.supervisor.starting import held_by, start_unless_held
from raylog.wire.errors import BrokerNotAvailable, KafkaError

log = logging.getLogger(__name__)
CONTROLLER_TIMEOUT_MS = 10_000
FIND_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class Stopped:
    """The result of stopping a broker."""

    unclean: str | None = None
    """Why it did not shut down cleanly, or None."""
    left: tuple[str, ...] = ()
    """Names of its actors that are still running."""


async def stop_held(
    runtime: Runtime, desired: DesiredCluster, held: Hold, *, timeout_ms: int
) -> Stopped:
    """Stop a broker and all actors that it has started, and keep it stopped.

    If the controller runs on the broker's machine, it moves to another voter's first. `timeout_ms`
    is for handing over leadership and closing the logs; then the broker is killed. Under load it
    may start actors until its end, such as a controller: remaining ones are ended until none are
    found or the time is up.
    """
    deadline_ms = runtime.monotonic_ms() + timeout_ms
    broker_id = held.broker_id
    await hold(runtime, desired.cluster_id, held)
    await move_controller(runtime, desired, broker_id)
    unclean = await stop_broker(runtime, desired.cluster_id, broker_id, timeout_ms=timeout_ms)
    while left := await _left_of(runtime, desired, broker_id):
        log.warning("broker %d has stopped, but these still run: %s", broker_id, ", ".join(left))
        await _end_left(runtime, desired, broker_id)
        if runtime.monotonic_ms() >= deadline_ms:
            return Stopped(unclean, tuple(await _left_of(runtime, desired, broker_id)))
        await runtime.sleep(LOOK_S)
    return Stopped(unclean)


async def _left_of(runtime: Runtime, desired: DesiredCluster, broker_id: int) -> list[str]:
    """Return a stopped broker's actors: its own, and controllers on a node that only it uses."""
    cluster_id = desired.cluster_id
    own = controller_name(cluster_id)
    names = await runtime.names(f"{cluster_id}/")
    left = {one for one in names if owner_of(one) == broker_id}
    nodes = await _lone_nodes(runtime, desired, broker_id)
    for name in names:
        if name.startswith(own):
            # Another broker may have started a rival under the same name.
            where = await _node_of(runtime, name)
            starts = not where and name.startswith(f"{own}/{broker_id}.")
            if starts or where in nodes:
                left.add(name)
    return sorted(left)


async def _lone_nodes(runtime: Runtime, desired: DesiredCluster, broker_id: int) -> set[str]:
    """Return the ids of nodes that are for a broker and no other broker that is not held."""
    holds = await holds_of(runtime, desired.cluster_id)
    live = await runtime.nodes()
    nodes: dict[bool, set[str]] = {True: set(), False: set()}
    for one in desired.brokers:
        is_other = one.broker_id != broker_id
        if not is_other or one.broker_id not in holds:
            nodes[is_other].update(node.node_id for node in carriers_of(one, live))
    return nodes[False] - nodes[True]


async def _node_of(runtime: Runtime, name: str) -> str:
    """Return the node id of an actor, or "" if it does not tell, for example while it starts."""
    try:
        async with asyncio.timeout(FIND_TIMEOUT_MS / 1000):
            return (await runtime.find(name)).node_id
    except (ActorGone, TimeoutError):
        return ""


async def _end_left(runtime: Runtime, desired: DesiredCluster, broker_id: int) -> None:
    """End the actors of a stopped broker; the controller moves near another voter."""
    await move_controller(runtime, desired, broker_id)
    for name in await _left_of(runtime, desired, broker_id):
        if name == broker_name(desired.cluster_id, broker_id):
            await stop_broker(runtime, desired.cluster_id, broker_id, timeout_ms=CALL_TIMEOUT_MS)
        else:
            await runtime.end_for_good(name)


async def restart_wanted(
    runtime: Runtime, desired: DesiredCluster, wanted: BrokerWanted, *, timeout_ms: int
) -> str | None:
    """Stop a broker and start it again; return why it did not shut down cleanly, or None.

    Raises as `Runtime.spawn` does, except for a name that is taken, which means that the supervisor
    was quicker. Raises BrokerNotAvailable if the broker is held, also if that happens while it
    shuts down.
    """
    broker_id = wanted.broker_id
    held = await held_by(runtime, desired, broker_id)
    unclean = None
    if held is None:
        unclean = await stop_broker(runtime, desired.cluster_id, broker_id, timeout_ms=timeout_ms)
        try:
            held = await start_unless_held(runtime, desired, wanted)
        except ValueError as taken:
            log.info("the supervisor has started broker %d: %s", broker_id, taken)
    if held is not None:
        raise BrokerNotAvailable(f"broker {broker_id} {held}")
    return unclean


def brokers_on(desired: DesiredCluster, node: NodeEntry) -> list[int]:
    """Return the brokers that are for a node."""
    return [one.broker_id for one in desired.brokers if carriers_of(one, [node])]


def candidates(desired: DesiredCluster, without: Collection[int] = ()) -> list[int]:
    """Return the brokers that may start a controller: the voters."""
    known = {one.broker_id for one in desired.brokers}
    return [one for one, _ in desired.voters if one in known and one not in without]


async def move_controller(runtime: Runtime, desired: DesiredCluster, broker_id: int) -> None:
    """Move the controller away from a broker's node.

    If that fails, another one is started later.
    """
    cluster_id = desired.cluster_id

    async def node_of(controller: str) -> str:
        found = await _node_of(runtime, controller)
        if not found:
            raise PeerLost(f"{controller} does not answer")
        return found

    try:
        others = candidates(desired, {broker_id, *await holds_of(runtime, cluster_id)})
        if not others:
            return
        wanted = [one for one in desired.brokers if one.broker_id == broker_id]
        live = await runtime.nodes()
        nodes = {node.node_id for one in wanted for node in carriers_of(one, live)}
        if await by_controller(runtime, cluster_id, [broker_id, *others], node_of) in nodes:
            await replace_controller(runtime, cluster_id, others, timeout_ms=CONTROLLER_TIMEOUT_MS)
    except (PeerLost, PeerTimeout, KafkaError) as failure:
        log.warning("the controller was not moved away from broker %d: %s", broker_id, failure)

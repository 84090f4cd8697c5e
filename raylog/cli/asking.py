"""Calls the actors of a cluster on Ray, for commands that change the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from raylog.cli.failures import CommandFailed, last_line
from raylog.cli.progress import Progress
from raylog.cli.ray_cluster import described

if TYPE_CHECKING:
    from raylog.actors.metadata.records import BrokerWanted
    from raylog.actors.runtime.base import Runtime
    from raylog.actors.supervisor.rules.desired import DesiredCluster
    from raylog.client import BlockingClient

T = TypeVar("T")
ASK_MS = 10_000

RayAddress = Annotated[
    str,
    typer.Option(
        "--address",
        envvar="RAYLOG_RAY_ADDRESS",
        metavar="HOST:PORT|auto",
        help="Address of the Ray cluster; auto: the cluster that this machine is a node of.",
    ),
]


def wanted_of(desired: DesiredCluster, broker: int) -> BrokerWanted:
    """Return the wanted broker with an id. Raises BadParameter if there is none."""
    wanted = desired.broker(broker)
    if wanted is None:
        known = ", ".join(str(one.broker_id) for one in desired.brokers)
        raise typer.BadParameter(f"expected one of the brokers {known}, found {broker}")
    return wanted


def client_of(desired: DesiredCluster, progress: Progress) -> BlockingClient:
    """Return a client of the brokers that answer. Raises CommandFailed if none does."""
    import asyncio

    from raylog.client import BlockingClient

    progress.tell("asking the brokers")
    statuses = asyncio.run(described(desired))
    if not statuses:
        raise CommandFailed(f"no broker of cluster {desired.cluster_id} answers")
    return BlockingClient([one.bootstrap for one in statuses])


def ask_actors(desired: DesiredCluster, ask: Callable[[Runtime], Awaitable[T]]) -> T:
    """Run `ask`. Raises CommandFailed if an actor refuses, is gone or does not answer in time."""
    import asyncio

    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.actors.runtime.ray import RayRuntime
    from raylog.wire.errors import KafkaError

    async def asked() -> T:
        return await ask(RayRuntime.of_driver(desired.secret_source))

    try:
        return asyncio.run(asked())
    except (PeerLost, PeerTimeout, KafkaError) as failure:
        raise CommandFailed(last_line(failure)) from failure


async def ask_controller(
    runtime: Runtime, desired: DesiredCluster, method: str, *args: object
) -> object:
    """Call a method of the controller. Raises PeerLost, or InvalidRequest if it refuses."""
    from raylog.actors.supervisor.controllers import by_controller

    return await by_controller(
        runtime,
        desired.cluster_id,
        [one.broker_id for one in desired.brokers],
        lambda controller: runtime.call(controller, method, *args, timeout_ms=ASK_MS),
    )

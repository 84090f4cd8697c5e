"""Restarts the parts of a cluster on Ray, from any machine of that Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from raylog.cli.asking import ask_actors
from raylog.cli.failures import CommandFailed
from raylog.cli.progress import Progress
from raylog.cli.ray_cluster import (
    cluster_to_change,
    on_ray,
    record_of,
    the_cluster,
    until_ready,
)
from raylog.cli.restarting import Restarts

if TYPE_CHECKING:
    from raylog.actors.runtime.base import Runtime
    from raylog.actors.supervisor.rules.desired import DesiredCluster


@contextmanager
def restarting_on_ray(address: str, data: Path, progress: Progress) -> Iterator[Restarts]:
    """Yield functions that restart the parts of a cluster; they, too, raise CommandFailed."""
    with on_ray(address):
        desired = cluster_to_change(address, data)
        bootstrap = record_of(address, desired).bootstrap
        if not bootstrap:
            raise CommandFailed(
                f"no broker of cluster {desired.cluster_id} answers",
                f"Check with: raylog status --address {address}",
            )

        def one(broker_id: int, timeout_s: float) -> str | None:
            return _restart(the_cluster(address, data), broker_id, timeout_s, progress)

        yield Restarts(
            [one.broker_id for one in desired.brokers],
            bootstrap,
            one,
            lambda: ask_actors(desired, lambda runtime: _restart_others(runtime, desired)),
            f"--address {address}",
            lambda: _held(desired),
        )


def _held(desired: DesiredCluster) -> dict[int, str]:
    from raylog.actors.supervisor.notes import holds_of
    from raylog.actors.supervisor.rules.holds import describe_holds

    return describe_holds(
        ask_actors(desired, lambda runtime: holds_of(runtime, desired.cluster_id))
    )


def _restart(
    desired: DesiredCluster, broker_id: int, timeout_s: float, progress: Progress
) -> str | None:
    from raylog.actors.supervisor.rolling import restart_wanted

    wanted = desired.broker(broker_id)
    if wanted is None:
        raise CommandFailed(f"broker {broker_id} no longer belongs to the cluster")
    timeout_ms = round(1_000 * timeout_s)
    unclean = ask_actors(
        desired, lambda runtime: restart_wanted(runtime, desired, wanted, timeout_ms=timeout_ms)
    )
    ask_actors(desired, lambda runtime: until_ready(runtime, desired, [wanted], progress.tell))
    return unclean


async def _restart_others(runtime: Runtime, desired: DesiredCluster) -> None:
    """Restart the controller and the supervisor."""
    from raylog.actors.cluster import replace_controller
    from raylog.actors.names import supervisor_name
    from raylog.actors.runtime.ending import end_and_free
    from raylog.actors.supervisor.actor import ensure_supervisor
    from raylog.actors.supervisor.rolling import candidates

    await replace_controller(runtime, desired.cluster_id, candidates(desired))
    await end_and_free(runtime, supervisor_name(desired.cluster_id))
    await ensure_supervisor(runtime, desired.cluster_id, desired.brokers)

"""The commands `raylog brokers add`, `replace`, `remove` and `drain`.

The first three are for clusters on Ray: they change the wanted brokers in the metadata, and the
supervisor acts on them. All can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.asking import RayAddress, ask_actors, ask_controller, client_of, wanted_of
from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_DATA, Bootstrap, Data
from raylog.cli.output import confirm, counted, print_done
from raylog.cli.progress import Progress
from raylog.cli.ray_cluster import cluster_to_change, on_ray, surveyed, until_ready

if TYPE_CHECKING:
    from raylog.actors.metadata.records import BrokerUnwanted, BrokerWanted
    from raylog.actors.runtime.base import Runtime
    from raylog.actors.supervisor.rules.desired import DesiredCluster
    from raylog.client import BlockingClient

_KNOWN_MS = 30_000
"""How long the supervisor may take to learn of a change. It checks every 2 s."""

Broker = Annotated[int, typer.Argument(metavar="BROKER", min=0, help="Broker id.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def add(
    address: RayAddress = "auto",
    data: Data = DEFAULT_DATA,
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65_535, help="Port of the new brokers.")
    ] = 9092,
    racks: Annotated[
        str | None,
        typer.Option("--racks", metavar="A,B", help="Racks of the new brokers, in turn."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow access from other machines.")
    ] = False,
) -> None:
    """Start brokers on the new nodes of the Ray cluster.

    If brokers run on labelled nodes (raylog-broker=ID), only new nodes with
    such a label get one. The new brokers hold no replicas: move some there with
    `raylog rebalance`.
    """
    from raylog.actors.supervisor.placing import PlacementAsked, placed
    from raylog.wire.errors import KafkaError

    with on_ray(address), Progress() as progress:
        desired = cluster_to_change(address, data)
        first = desired.brokers[0]
        asked = PlacementAsked(
            data=str(Path(first.directory).parent),
            port=port,
            first_broker_id=max(one.broker_id for one in desired.brokers) + 1,
            racks=tuple(racks.split(",")) if racks else (),
            settings=_common(first),
            insecure=insecure,
            cpus=first.cpus,
            memory_bytes=first.memory_bytes,
        )
        nodes = surveyed(asked.data, desired.secret_source)
        carried = [one.labels.items() for one in desired.brokers]
        free = [
            one for one in nodes if not any(labels <= one.node.labels.items() for labels in carried)
        ]
        try:
            new = placed(asked, free, ()) if free else []
        except KafkaError as refused:
            raise CommandFailed(str(refused)) from refused
        if not new:
            raise CommandFailed(
                "every node already has a broker",
                "Start a Ray node with --labels raylog-broker=ID on another machine",
            )
        ask_actors(desired, lambda runtime: _want(runtime, desired, new))
        ask_actors(desired, lambda runtime: until_ready(runtime, desired, new, progress.tell))
    print_done(
        f"{counted(len(new), 'broker')} added: {', '.join(str(one.broker_id) for one in new)}. "
        f"They hold no replicas yet; next: raylog rebalance --address {address}"
    )


def _common(broker: BrokerWanted) -> dict[str, str]:
    """Return a broker's settings without those that are specific to it."""
    own = ("listeners", "advertised.listeners", "broker.rack")
    return {key: value for key, value in broker.settings.items() if key not in own}


def replace(
    broker: Broker, address: RayAddress = "auto", data: Data = DEFAULT_DATA, yes: Yes = False
) -> None:
    """Replace a broker's lost disk: start the broker on an empty directory.

    The broker then copies its replicas to the new directory. The lost directory
    is never used again, even if the disk comes back. Refused if the broker is
    live, or if it may hold the only copy of a record.
    """
    from raylog.actors.supervisor.notes import release

    with on_ray(address), Progress() as progress:
        desired = cluster_to_change(address, data)
        wanted = wanted_of(desired, broker)
        if wanted.directory_id:
            confirm(
                f"Give up the directory {wanted.directory_id} of broker {broker} for good?", yes=yes
            )
            progress.tell("asking the controller")
            ask_actors(
                desired, lambda runtime: _replace(runtime, desired, broker, wanted.directory_id)
            )
        ask_actors(desired, lambda runtime: release(runtime, desired.cluster_id, broker))
        ask_actors(desired, lambda runtime: until_ready(runtime, desired, [wanted], progress.tell))
    print_done(f"broker {broker} serves and copies its replicas")


async def _replace(
    runtime: Runtime, desired: DesiredCluster, broker: int, directory_id: str
) -> None:
    from raylog.wire.errors import InvalidRequest

    try:
        await ask_controller(runtime, desired, "replace_broker", broker, directory_id)
    except InvalidRequest as refused:
        raise CommandFailed(
            str(refused),
            "If it holds the only copies, bring the disk back, or start the brokers that have "
            "other copies. If those are lost for good, delete these topics, or reassign them",
        ) from refused


def remove(
    broker: Broker, address: RayAddress = "auto", data: Data = DEFAULT_DATA, yes: Yes = False
) -> None:
    """Stop and unregister a broker that holds no replicas; its data directory stays."""
    with on_ray(address), Progress() as progress:
        desired = cluster_to_change(address, data)
        if [one.broker_id for one in desired.brokers] == [broker]:
            raise CommandFailed(
                f"broker {broker} is the last one",
                f"Stop the cluster: raylog down --address {address}",
            )
        with client_of(desired, progress) as client:
            held = [one for one in client.describe_partitions().values() if broker in one.replicas]
            if held:
                raise CommandFailed(
                    f"broker {broker} holds {counted(len(held), 'partition')}",
                    f"Move them first: raylog brokers drain {broker}",
                )
            confirm(f"Stop and unregister broker {broker}?", yes=yes)
            progress.tell(f"stopping broker {broker}")
            _give_up_vote(client, broker)
            ask_actors(desired, lambda runtime: _end(runtime, desired, broker))
            if any(one.broker_id == broker for one in client.describe_cluster().brokers):
                client.unregister_broker(broker)
    print_done(f"broker {broker} is removed")


def _give_up_vote(client: BlockingClient, broker: int) -> None:
    voters = client.describe_quorum().voters
    for one in voters:
        if one.broker_id == broker:
            if len(voters) == 1:
                raise CommandFailed(
                    f"broker {broker} is the only voter",
                    "Add another voter first: raylog quorum add BROKER",
                )
            client.remove_voter(broker, one.directory_id)


def drain(
    broker: Broker,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            min=1,
            metavar="BYTES/S",
            help="Bytes per second that each broker may copy for the moves, in and out. The "
            "throttle is removed at the end.",
        ),
    ] = None,
) -> None:
    """Move all replicas of a broker to other live brokers, and wait for the moves.

    The least loaded brokers get the replicas, a few at a time. After Ctrl-C,
    moves that have begun continue: see `raylog rebalance --status` and --cancel.
    """
    from raylog.cli.rebalance import drain_broker

    with connect(bootstrap) as client:
        drain_broker(client, broker, throttle)


# ---- calls to actors ---------------------------------------------------------------------


async def _want(
    runtime: Runtime,
    desired: DesiredCluster,
    changes: Sequence[BrokerWanted | BrokerUnwanted],
) -> None:
    """Change the wanted brokers in the metadata, from which the supervisor copies them."""
    await ask_controller(runtime, desired, "want_brokers", list(changes))


async def _until_unwanted(runtime: Runtime, desired: DesiredCluster, broker: int) -> None:
    """Wait until the supervisor knows of the removal, so that it does not restart the broker.

    Raises PeerTimeout after 30 s.
    """
    from raylog.actors.runtime.base import PeerTimeout
    from raylog.actors.supervisor.rules.desired import read_desired

    deadline_ms = runtime.monotonic_ms() + _KNOWN_MS
    while True:
        contents = await runtime.kv_get(desired.key)
        if contents is None or read_desired(contents, desired.key).broker(broker) is None:
            return
        if runtime.monotonic_ms() > deadline_ms:
            raise PeerTimeout(
                f"the supervisor has not learned of the removal of broker {broker} within 30 s"
            )
        await runtime.sleep(0.2)


async def _end(runtime: Runtime, desired: DesiredCluster, broker: int) -> None:
    """Remove a broker from the wanted ones, shut it down, and release its share of the node."""
    import asyncio

    from raylog.actors.cluster import stop_broker
    from raylog.actors.metadata.records import BrokerUnwanted
    from raylog.actors.runtime import ray_places
    from raylog.actors.supervisor.rolling import move_controller
    from raylog.actors.supervisor.rules.desired import share_name

    await _want(runtime, desired, [BrokerUnwanted(broker)])
    await _until_unwanted(runtime, desired, broker)
    await move_controller(runtime, desired, broker)
    unclean = await stop_broker(runtime, desired.cluster_id, broker)
    if unclean is not None:
        print_done(f"broker {broker} did not shut down cleanly: {unclean}")
    await asyncio.to_thread(ray_places.release, share_name(desired.cluster_id, broker))

"""`raylog brokers add`, `replace`, `remove`: which brokers of a cluster on a Ray shall run where.

Each changes what the metadata says, and the supervisor acts. All may be repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from raylog.cli.failures import CommandFailed, last_line
from raylog.cli.options import DEFAULT_DATA, Data
from raylog.cli.output import counted, print_done
from raylog.cli.progress import Progress
from raylog.cli.ray_cluster import described, on_ray, surveyed, the_cluster, until_ready

if TYPE_CHECKING:
    from raylog.actors.metadata.records import BrokerUnwanted, BrokerWanted
    from raylog.actors.runtime.base import Runtime
    from raylog.actors.supervisor.desired import DesiredCluster
    from raylog.client import BlockingClient, PartitionReplicas

T = TypeVar("T")
_ASK_MS = 10_000
_KNOWN_MS = 30_000
"""Until the supervisor must know of a change; it looks every 2 s."""
_NAMED_MAX = 3

RayAddress = Annotated[
    str,
    typer.Option(
        "--address",
        envvar="RAYLOG_RAY_ADDRESS",
        metavar="HOST:PORT|auto",
        help="Of the Ray that the cluster is on.",
    ),
]
Broker = Annotated[int, typer.Argument(metavar="BROKER", min=0, help="Its id.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def add(
    address: RayAddress = "auto",
    data: Data = DEFAULT_DATA,
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65_535)] = 9092,
    racks: Annotated[
        str | None,
        typer.Option("--racks", metavar="A,B", help="Racks of the new brokers, in turn."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow access from other machines.")
    ] = False,
) -> None:
    """Start brokers on nodes that have been labelled since, or on every new node if none is.

    They hold nothing yet: move partitions there with raylog topics reassign.
    """
    from raylog.actors.supervisor.placing import PlacementAsked, placed
    from raylog.wire.errors import KafkaError

    with on_ray(address), Progress() as progress:
        desired = the_cluster(address, data)
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
                "every node has its broker",
                "Start a Ray node with --labels raylog-broker=ID on another machine",
            )
        _run(desired, lambda runtime: _want(runtime, desired, new))
        _run(desired, lambda runtime: until_ready(runtime, desired, new, progress.tell))
    print_done(
        f"{counted(len(new), 'broker')} more: {', '.join(str(one.broker_id) for one in new)}"
    )


def _common(broker: BrokerWanted) -> dict[str, str]:
    """A broker's settings that are not its own alone."""
    own = ("listeners", "advertised.listeners", "broker.rack")
    return {key: value for key, value in broker.settings.items() if key not in own}


def replace(
    broker: Broker, address: RayAddress = "auto", data: Data = DEFAULT_DATA, yes: Yes = False
) -> None:
    """Begin with an empty directory for a broker whose disk is lost; its replicas are copied there.

    The lost directory is never taken again. Refused while the broker is live, and
    where it may hold the only copy of a record.
    """
    with on_ray(address), Progress() as progress:
        desired = the_cluster(address, data)
        wanted = _wanted(desired, broker)
        with _client(desired, progress) as client:
            live = {one.broker_id for one in client.describe_cluster().brokers if not one.is_fenced}
            if broker in live:
                raise CommandFailed(f"broker {broker} is live: there is nothing to replace")
            _require_copies(broker, client.describe_partitions().values())
        if wanted.directory_id:
            _confirm(f"Give up the directory {wanted.directory_id} of broker {broker}?", yes=yes)
            given_up = (*wanted.replaced, wanted.directory_id)
            new = wanted._replace(directory_id="", replaced=given_up)
            _run(desired, lambda runtime: _want(runtime, desired, [new]))
        _run(desired, lambda runtime: until_ready(runtime, desired, [wanted], progress.tell))
    print_done(f"broker {broker} serves, and copies its replicas")


def _require_copies(broker: int, partitions: Iterable[PartitionReplicas]) -> None:
    """Raise CommandFailed where nobody else holds all that is committed."""
    only = [
        f"{one.topic}:{one.partition}"
        for one in partitions
        if broker in one.replicas and not ({*one.isr, *(one.elr or ())} - {broker})
    ]
    if only:
        more = "" if len(only) <= _NAMED_MAX else f" and {len(only) - _NAMED_MAX} more"
        raise CommandFailed(
            f"no other broker is known to hold all of {', '.join(only[:_NAMED_MAX])}{more}",
            "Bring the disk back, or start the brokers that have other copies. If they are lost "
            "for good, delete these topics, or reassign them to other brokers",
        )


def remove(
    broker: Broker, address: RayAddress = "auto", data: Data = DEFAULT_DATA, yes: Yes = False
) -> None:
    """Stop a broker that holds nothing more, and forget it; its directory stays on its disk."""
    with on_ray(address), Progress() as progress:
        desired = the_cluster(address, data)
        if [one.broker_id for one in desired.brokers] == [broker]:
            raise CommandFailed(
                f"broker {broker} is the last one", f"Stop all: raylog down --address {address}"
            )
        with _client(desired, progress) as client:
            held = [one for one in client.describe_partitions().values() if broker in one.replicas]
            if held:
                raise CommandFailed(
                    f"broker {broker} holds {counted(len(held), 'partition')}",
                    f"Move them first: raylog brokers drain {broker}",
                )
            _confirm(f"Stop broker {broker} and forget it?", yes=yes)
            progress.tell(f"stopping broker {broker}")
            _give_up_vote(client, broker)
            _run(desired, lambda runtime: _end(runtime, desired, broker))
            if any(one.broker_id == broker for one in client.describe_cluster().brokers):
                client.unregister_broker(broker)
    print_done(f"broker {broker} is removed")


def _give_up_vote(client: BlockingClient, broker: int) -> None:
    voters = client.describe_quorum().voters
    for one in voters:
        if one.broker_id == broker:
            if len(voters) == 1:
                raise CommandFailed(
                    f"broker {broker} has the only vote on metadata",
                    "Have another one vote first: raylog quorum add BROKER",
                )
            client.remove_voter(broker, one.directory_id)


def drain(
    broker: Broker,
    bootstrap: Annotated[
        str,
        typer.Option(
            "--bootstrap", "-b", envvar="RAYLOG_BOOTSTRAP", metavar="HOST:PORT", help="Ask first."
        ),
    ] = "127.0.0.1:9092",
    throttle: Annotated[
        int | None,
        typer.Option("--throttle", min=1, metavar="BYTES", help="As of raylog topics reassign."),
    ] = None,
) -> None:
    """Move all replicas of a broker to the other live ones, and wait until they are there."""
    from raylog.cli.reassign import reassign
    from raylog.client import BlockingClient

    with BlockingClient(bootstrap) as client:
        cluster = client.describe_cluster()
        others = [
            one.broker_id
            for one in cluster.brokers
            if not one.is_fenced and one.broker_id != broker
        ]
        held = [
            f"{one.topic}:{one.partition}"
            for one in client.describe_partitions().values()
            if broker in one.replicas
        ]
    if not held:
        print_done(f"broker {broker} holds nothing")
        return
    reassign(
        topics=held,
        brokers=",".join(map(str, others)),
        execute=True,
        wait=True,
        throttle=throttle,
        bootstrap=bootstrap,
    )


# ---- asking ------------------------------------------------------------------------------


def _wanted(desired: DesiredCluster, broker: int) -> BrokerWanted:
    wanted = desired.broker(broker)
    if wanted is None:
        known = ", ".join(str(one.broker_id) for one in desired.brokers)
        raise typer.BadParameter(f"expected one of the brokers {known}, found {broker}")
    return wanted


def _confirm(question: str, *, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def _client(desired: DesiredCluster, progress: Progress) -> BlockingClient:
    """A client of the brokers that answer; raises CommandFailed."""
    import asyncio

    from raylog.client import BlockingClient

    progress.tell("asking the brokers")
    statuses = asyncio.run(described(desired))
    if not statuses:
        raise CommandFailed(f"no broker of cluster {desired.cluster_id} answers")
    return BlockingClient([one.bootstrap for one in statuses])


def _run(desired: DesiredCluster, ask: Callable[[Runtime], Awaitable[T]]) -> T:
    """Ask actors; raises CommandFailed for what they refuse, and where they are gone."""
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


async def _want(
    runtime: Runtime,
    desired: DesiredCluster,
    changes: Sequence[BrokerWanted | BrokerUnwanted],
) -> None:
    """Change what is wanted in the metadata; the supervisor copies it for itself."""
    controller = await _controller(runtime, desired)
    await runtime.call(controller, "want_brokers", list(changes), timeout_ms=_ASK_MS)


async def _controller(runtime: Runtime, desired: DesiredCluster) -> str:
    """The name of the controller, as the first broker knows it that answers; raises PeerLost."""
    from raylog.actors.names import broker_name
    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.wire.errors import KafkaError

    failure: Any = None
    for one in desired.brokers:
        try:
            name: str = await runtime.call(
                broker_name(desired.cluster_id, one.broker_id), "controller", timeout_ms=_ASK_MS
            )
        except (PeerLost, PeerTimeout, KafkaError) as lost:
            failure = lost
        else:
            return name
    raise PeerLost(f"no broker answers: {failure}")


async def _until_unwanted(runtime: Runtime, desired: DesiredCluster, broker: int) -> None:
    """Wait until the supervisor knows, or it would start the broker again; raises PeerTimeout."""
    from raylog.actors.runtime.base import PeerTimeout
    from raylog.actors.supervisor.desired import read_desired

    deadline_ms = runtime.monotonic_ms() + _KNOWN_MS
    while True:
        contents = await runtime.kv_get(desired.key)
        if contents is None or read_desired(contents, desired.key).broker(broker) is None:
            return
        if runtime.monotonic_ms() > deadline_ms:
            raise PeerTimeout(f"the supervisor has not heard of broker {broker} within 30 s")
        await runtime.sleep(0.2)


async def _end(runtime: Runtime, desired: DesiredCluster, broker: int) -> None:
    """Have a broker unwanted, shut it down, end it, give its share of its node back."""
    import asyncio

    from raylog.actors.cluster import stop_broker
    from raylog.actors.metadata.records import BrokerUnwanted
    from raylog.actors.runtime import ray_places
    from raylog.actors.supervisor.desired import share_name

    await _want(runtime, desired, [BrokerUnwanted(broker)])
    await _until_unwanted(runtime, desired, broker)
    unclean = await stop_broker(runtime, desired.cluster_id, broker)
    if unclean is not None:
        print_done(f"broker {broker} did not shut down cleanly: {unclean}")
    await asyncio.to_thread(ray_places.release, share_name(desired.cluster_id, broker))

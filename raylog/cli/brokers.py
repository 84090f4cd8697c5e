"""The command group `raylog brokers`, with its commands `list` and `unregister`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.acting import Facts, acting
from raylog.cli.brokers_on_ray import add, drain, remove, replace
from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.holding import start, stop
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import confirm, counted, print_done, print_rows
from raylog.cli.restarting import restart

if TYPE_CHECKING:
    from raylog.client import ClusterDescription, PartitionReplicas

app = typer.Typer(
    no_args_is_help=True,
    help="List, restart, stop, start, add, drain, replace and remove brokers.",
)
app.command()(acting(restart))
for command in (stop, start, add, drain, replace, remove):
    app.command()(acting(command))


@app.command(name="list")
def list_brokers(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List brokers, with the number of partitions that they lead and hold.

    A fenced broker has sent no heartbeat for a while, or is not ready yet.
    """
    with connect(bootstrap) as client:
        rows = _rows(client.describe_cluster(), list(client.describe_partitions().values()))
    columns = ["broker#", "state", "address", "rack", "leads#", "holds#", "not in sync#"]
    print_rows(columns, rows, as_json=as_json)


def _rows(
    cluster: ClusterDescription, partitions: list[PartitionReplicas]
) -> list[dict[str, object]]:
    """Return a row for each broker that is registered or still has replicas."""
    led = Counter(one.leader for one in partitions)
    held = Counter(broker for one in partitions for broker in one.replicas)
    behind = Counter(
        broker for one in partitions for broker in one.replicas if broker not in one.isr
    )
    known = {broker.broker_id: broker for broker in cluster.brokers}
    rows: list[dict[str, object]] = []
    for broker_id in sorted({*known, *held}):
        broker = known.get(broker_id)
        state = "unregistered"
        if broker is not None:
            state = "fenced" if broker.is_fenced else "live"
        rows.append(
            {
                "broker": broker_id,
                "state": state,
                "address": f"{broker.host}:{broker.port}" if broker else None,
                "rack": broker.rack if broker else None,
                "leads": led[broker_id],
                "holds": held[broker_id],
                "behind": behind[broker_id],
            }
        )
    return rows


def _live(cluster: ClusterDescription) -> set[int]:
    return {broker.broker_id for broker in cluster.brokers if not broker.is_fenced}


@app.command()
@acting
def unregister(
    broker: Annotated[int, typer.Argument(metavar="BROKER", min=0, help="Broker id.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> Facts:
    """Remove the registration of a broker that will not come back.

    Its replicas stay assigned to it: reassign them. Refused for a broker that
    runs, because it would register again.
    """
    confirm(f"Unregister broker {broker}?", yes=yes)
    with connect(bootstrap) as client:
        if broker in _live(client.describe_cluster()):
            raise CommandFailed(
                f"broker {broker} is live: it would register again",
                "Stop it first; see docs/operations.md, Removing a broker",
            )
        client.unregister_broker(broker)
        held = [one.key for one in client.describe_partitions().values() if broker in one.replicas]
    print_done(f"broker {broker} is unregistered")
    if held:
        print_done(
            f"{counted(len(held), 'partition')} still assigned to it; move them with: raylog "
            f"topics reassign --topic {held[0].topic} --brokers …"
        )
    return {"broker": broker, "still_assigned": [str(key) for key in held]}

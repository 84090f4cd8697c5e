"""`raylog rebalance`: spread bytes, replicas and leaders evenly over the brokers."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_DATA, Address, Data, Json
from raylog.cli.output import confirm, counted, human_bytes, print_done, print_json, print_table
from raylog.cli.replica_options import parse_live_brokers

if TYPE_CHECKING:
    from raylog.cli.layouts import Surveyed
    from raylog.cli.reassignment import Plan
    from raylog.client import BlockingClient, TopicPartition

Row = dict[str, object]

Server = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        envvar="RAYLOG_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Bootstrap servers, separated by commas. Default: those of the cluster on --data, "
        f"otherwise {DEFAULT_BOOTSTRAP}.",
    ),
]
Status = Annotated[
    bool,
    typer.Option(
        "--status",
        help="Show all current moves, of this command and of others, and change nothing.",
    ),
]
Cancel = Annotated[
    bool,
    typer.Option(
        "--cancel",
        help="Cancel all current moves, of this command and of others, and remove throttles. "
        "Replicas that have already moved stay.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and exit.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Throttle = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=1,
        metavar="BYTES/S",
        help="Bytes per second that each broker may copy for the moves, in and out. Clients are "
        "not slowed down. The throttle is removed at the end. Default: no limit.",
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topics",
        metavar="PATTERN",
        help="Move only partitions of these topics, such as 'orders-*'. Others stay and count as "
        "load. Repeatable.",
    ),
]
Excluded = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude-topics",
        metavar="PATTERN",
        help="Do not move partitions of these topics; they count as load. Repeatable.",
    ),
]
Brokers = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        metavar="0,1,2",
        help="Balance only these brokers; others keep their replicas. Default: all live brokers.",
    ),
]
MovesMax = Annotated[
    int | None,
    typer.Option(
        "--max-moves",
        min=1,
        metavar="N",
        help="Copy at most N partitions, the most useful first. Run the command again for the "
        "rest.",
    ),
]


def rebalance(
    data: Data = DEFAULT_DATA,
    address: Address = None,
    bootstrap: Server = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    throttle: Throttle = None,
    topics: Topics = None,
    exclude_topics: Excluded = None,
    brokers: Brokers = None,
    moves_max: MovesMax = None,
    status: Status = False,
    cancel: Cancel = False,
    as_json: Json = False,
) -> None:
    """Spread bytes, replicas and leaders evenly over the brokers, while they serve.

    Shows the plan and asks for confirmation. The goals of the plan, the most
    important first: replicas of a partition in different racks; bytes of each
    broker within 10 % of the mean, as far as the sizes of partitions allow; the
    same number of replicas, then of preferred leaders, on each broker; few bytes
    to copy.

    A broker takes part in five moves at a time. After Ctrl-C, moves that have
    begun continue, and no more begin: run the command again for the rest.

    raylog rebalance --dry-run

    raylog rebalance --throttle 50000000
    """
    if sum((dry_run, status, cancel)) > 1:
        raise typer.BadParameter("give one of --dry-run, --status and --cancel")
    if as_json and not (dry_run or status or cancel or yes):
        raise typer.BadParameter("--json needs --dry-run, --yes, --status or --cancel")
    changes = not (status or dry_run)
    with connect(_brokers_of(data, address, bootstrap, changes=changes)) as client:
        if status:
            _status(client, as_json=as_json)
        elif cancel:
            _cancel(client, as_json=as_json)
        else:
            found = _survey(client)
            chosen = _chosen(found, brokers)
            fixed = _fixed(found, topics, exclude_topics)
            plan = _plan(found, chosen, fixed, moves_max)
            if dry_run or not as_json:
                _show(found, plan, chosen, as_json=as_json)
            if not dry_run:
                _rebalance(client, found, plan, throttle, yes=yes, as_json=as_json)


def _brokers_of(
    data: Path, address: str | None, bootstrap: str | None, *, changes: bool
) -> list[str]:
    """Return bootstrap servers: as given, or those of the cluster on Ray or on a directory."""
    from raylog.cluster_record import read_record

    if bootstrap is not None:
        return bootstrap.split(",")
    if address is not None:
        from raylog.cli.ray_cluster import cluster_to_change, on_ray, record_of, the_cluster

        with on_ray(address):
            desired = (cluster_to_change if changes else the_cluster)(address, data)
            record = record_of(address, desired)
        if not record.bootstrap:
            raise CommandFailed(f"no broker of cluster {record.cluster_id} answers")
        return record.bootstrap
    noted = read_record(data.absolute() / "run")
    return noted.bootstrap if noted is not None else [DEFAULT_BOOTSTRAP]


# ---- planning ----------------------------------------------------------------------------


def _survey(client: BlockingClient) -> Surveyed:
    from raylog.cli.layouts import survey

    return survey(client)


def _chosen(found: Surveyed, brokers: str | None) -> list[int]:
    """Return the brokers to balance; raises CommandFailed if one is not live."""
    live = found.live
    if brokers is None:
        holding = {one for held in found.partitions.values() for one in held.replicas}
        silent = sorted(holding - {*live})
        if silent:
            named = ", ".join(map(str, silent))
            raise CommandFailed(
                f"broker {named} holds replicas but does not answer, so their sizes are not "
                "known and no plan can be made",
                "Start it, or leave it out and name the others: --brokers "
                f"{','.join(map(str, live))}",
            )
        return [one for one in live if one not in found.emptied]
    return sorted(parse_live_brokers(brokers, live))


def _fixed(
    found: Surveyed, topics: list[str] | None, excluded: list[str] | None
) -> set[TopicPartition]:
    """Return the partitions that stay: not selected, excluded, or already moving."""
    names = {key.topic for key in found.partitions}
    for pattern in topics or ():
        if not fnmatch.filter(names, pattern):
            raise CommandFailed(
                f"no topic matches {pattern!r}", "List the topics with: raylog topics list"
            )
    stay = {
        name
        for name in names
        if (topics and not _matches(name, topics)) or _matches(name, excluded or ())
    }
    return {key for key in found.partitions if key.topic in stay or key in found.moving}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _plan(
    found: Surveyed, chosen: list[int], fixed: set[TopicPartition], moves_max: int | None
) -> Plan:
    from raylog.cli.rebalance_plan import Layout, rebalanced

    replicas = {key: one.replicas for key, one in found.partitions.items()}
    return rebalanced(Layout(replicas, found.sizes, found.racks, chosen, fixed), moves_max)


def _copied_bytes(found: Surveyed, plan: Plan) -> int:
    return sum(
        found.sizes.get(key, 0) * len({*new} - {*found.partitions[key].replicas})
        for key, new in plan.items()
    )


def _rows(found: Surveyed, plan: Plan, chosen: list[int]) -> list[Row]:
    """Return a row for each broker, with its load before and after the plan."""
    from raylog.cli.rebalance_plan import loads_of

    replicas = {key: one.replicas for key, one in found.partitions.items()}
    brokers = [one.broker_id for one in found.brokers]
    now = loads_of(replicas, found.sizes, brokers)
    then = loads_of({**replicas, **plan}, found.sizes, brokers)
    return [
        {
            "broker": before.broker,
            "rack": found.racks.get(before.broker),
            "evened_out": before.broker in chosen,
            "replicas": [before.replicas, after.replicas],
            "leaders": [before.leaders, after.leaders],
            "bytes": [before.size_bytes, after.size_bytes],
        }
        for before, after in zip(now, then, strict=True)
    ]


def _show(found: Surveyed, plan: Plan, chosen: list[int], *, as_json: bool) -> None:
    rows = _rows(found, plan, chosen)
    copying = [key for key in plan if {*plan[key]} != {*found.partitions[key].replicas}]
    if as_json:
        print_json(_document(found, plan, rows))
        return
    print_table(
        None,
        ["broker#", "rack", "replicas#", "preferred leaders#", "bytes#"],
        [
            (
                row["broker"],
                row["rack"] if row["evened_out"] else f"{row['rack'] or ''} (not changed)",
                _change(row["replicas"], str),
                _change(row["leaders"], str),
                _change(row["bytes"], human_bytes),
            )
            for row in rows
        ],
    )
    if found.moving:
        print_done(
            f"{counted(len(found.moving), 'partition')} already moving, which count as moved: "
            "raylog rebalance --status"
        )
    if not plan:
        print_done("Nothing to move: the brokers are as even as partitions allow")
        return
    print_done(
        f"{counted(len(copying), 'partition')} to move, "
        f"{human_bytes(_copied_bytes(found, plan))} to copy; {len(plan) - len(copying):,} more "
        "only get another preferred leader"
    )


def _document(found: Surveyed, plan: Plan, rows: list[Row]) -> dict[str, object]:
    from raylog.cli.reassignment import plan_document

    return {
        "brokers": rows,
        "bytes_to_copy": _copied_bytes(found, plan),
        "partitions_to_copy": sum(
            {*new} != {*found.partitions[key].replicas} for key, new in plan.items()
        ),
        "partitions_to_reorder": sum(
            {*new} == {*found.partitions[key].replicas} for key, new in plan.items()
        ),
        "plan": plan_document(plan),
    }


def _change(values: object, tell: Callable[[int], str]) -> str:
    """Format before → after, or one number if both are the same."""
    assert isinstance(values, list)
    before, after = map(tell, values)
    return before if before == after else f"{before} → {after}"


# ---- execution ---------------------------------------------------------------------------


def _rebalance(
    client: BlockingClient,
    found: Surveyed,
    plan: Plan,
    throttle: int | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Execute a plan after confirmation, and wait for its moves and for those already under way."""
    from raylog.cli.move_throttles import set_throttles
    from raylog.cli.moving import Moves

    confirm("Move them?", yes=yes or not plan)
    began_s = time.monotonic()
    under_way = {key: tuple(found.partitions[key].replicas) for key in found.moving}
    if throttle is not None and (plan or under_way):
        current = client.describe_partitions(sorted({key.topic for key in (*plan, *under_way)}))
        said = "removed at the end"
        set_throttles(client, {**under_way, **plan}, current, throttle, said)
    try:
        Moves(client, {**under_way, **plan}, found.partitions, found.sizes, under_way).run()
    except CommandFailed:
        _remove_throttles(client)  # nothing would remove them later
        raise
    _remove_throttles(client)
    if as_json:
        print_json(
            {
                "partitions": len(plan),
                "bytes_copied": _copied_bytes(found, plan),
                "seconds": round(time.monotonic() - began_s, 1),
            }
        )
    elif plan:
        print_done(
            f"{counted(len(plan), 'partition')} moved as planned in "
            f"{time.monotonic() - began_s:.0f} s"
        )


def _remove_throttles(client: BlockingClient) -> None:
    """Remove all throttles of moves, unless something still moves."""
    from raylog.cli.move_throttles import remove_throttles, throttled_brokers

    if throttled_brokers(client) and not client.list_reassignments():
        remove_throttles(client, client.metadata().topics)


def _cancel(client: BlockingClient, *, as_json: bool) -> None:
    from raylog.cli.replica_options import tell_outcomes

    moving = client.list_reassignments()
    if moving:
        outcomes = client.alter_reassignments(dict.fromkeys(moving))
        _remove_throttles(client)
        tell_outcomes(outcomes, "called off", as_json=as_json)
        return
    _remove_throttles(client)
    if as_json:
        print_json([])
    else:
        print_done("nothing moves")


def drain_broker(client: BlockingClient, broker: int, throttle: int | None) -> None:
    """Move all replicas of a broker to the other live brokers; raises CommandFailed.

    Nothing else moves. If the broker is not live, its partitions are copied from other replicas.
    """
    from raylog.cli.rebalance_plan import Layout, emptied

    found = _survey(client)
    others = [one for one in found.live if one != broker and one not in found.emptied]
    replicas = {key: one.replicas for key, one in found.partitions.items()}
    plan = emptied(Layout(replicas, found.sizes, found.racks, others), broker)
    if plan:
        print_done(
            f"{counted(len(plan), 'partition')} to move, "
            f"{human_bytes(_copied_bytes(found, plan))} to copy"
        )
    _rebalance(client, found, plan, throttle, yes=True, as_json=False)
    print_done(f"broker {broker} holds nothing")


# ---- status ------------------------------------------------------------------------------


def _status(client: BlockingClient, *, as_json: bool) -> None:
    """Print the current moves with their progress, and the throttles."""
    from raylog.cli.move_throttles import throttled_brokers
    from raylog.cli.reassign import copied_shares

    moving = client.list_reassignments()
    copied = copied_shares(client, moving)
    rates = throttled_brokers(client)
    rows: list[Row] = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "adding": list(move.adding),
            "removing": list(move.removing),
            "copied": copied[key],
        }
        for key, move in sorted(moving.items())
    ]
    if as_json:
        print_json({"moves": rows, "throttles": rates})
        return
    if rows:
        print_table(
            None,
            ["topic", "partition#", "adding", "removing", "copied#"],
            [(*list(row.values())[:-1], f"{row['copied']:.0%}") for row in rows],
        )
    share = sum(copied.values()) / len(copied) if copied else 1.0
    print_done(
        f"{counted(len(rows), 'partition')} move, {share:.0%} copied" if rows else "Nothing moves"
    )
    for broker, rate in rates.items():
        print_done(f"broker {broker} copies at most {rate:,} bytes/s for the moves")
    if rates and not rows:
        print_done("Remove these throttles with: raylog rebalance --cancel")

"""`raylog topics reassign`: move partitions to other brokers, and show the progress."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import print_done, print_json, print_table
from raylog.cli.progress import Progress
from raylog.cli.replica_options import (
    TopicsOrPartitions,
    parse_live_brokers,
    select,
    tell_outcomes,
    topics_of,
)

if TYPE_CHECKING:
    from raylog.cli.reassignment import Plan
    from raylog.client import BlockingClient, PartitionReplicas, Reassignment, TopicPartition

_POLL_S = 0.5
Row = dict[str, object]


Brokers = Annotated[
    str | None,
    typer.Option("--brokers", metavar="0,1,2", help="Spread the partitions over these brokers."),
]
ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        "--replication-factor",
        "-r",
        min=1,
        help="Replicas of each partition. Default: as many as now.",
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file",
        exists=True,
        dir_okay=False,
        help="Read the plan from a file in the JSON format of kafka-reassign-partitions.",
    ),
]
Execute = Annotated[
    bool,
    typer.Option("--execute", help="Carry the plan out. Without this the command only shows it."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan (the default).")]
Wait = Annotated[
    bool, typer.Option("--wait", help="With --execute: wait until all partitions have moved.")
]
Throttle = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=1,
        metavar="BYTES",
        help="With --execute: bytes per second that each broker may copy for the moves, in and "
        "out. Repeat with another number to change it. Clients are not slowed down. --wait, "
        "--verify and --cancel remove it once nothing moves.",
    ),
]
PreserveThrottles = Annotated[
    bool,
    typer.Option("--preserve-throttles", help="Do not remove throttles at the end."),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Show the progress of the plan, or of all moves.")
]
Cancel = Annotated[
    bool, typer.Option("--cancel", help="Cancel the moves of the plan, or all moves.")
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        dir_okay=False,
        help="Write the current assignment to a file, as a plan that restores it.",
    ),
]


def reassign(
    topics: TopicsOrPartitions = None,
    brokers: Brokers = None,
    replication_factor: ReplicationFactor = None,
    from_file: PlanFile = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    wait: Wait = False,
    throttle: Throttle = None,
    preserve_throttles: PreserveThrottles = False,
    verify: Verify = False,
    cancel: Cancel = False,
    export: Export = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move partitions to other brokers while they are in use.

    The plan comes from a file, or the command makes one from --topic and
    --brokers, which spreads the partitions evenly with as few moves as possible.
    New replicas first copy the log; old ones are removed once the new ones are in
    sync.

    raylog topics reassign -t orders --brokers 0,1,2 --execute --wait
    """
    _check_modes(execute, dry_run, verify, cancel, wait=wait, throttle=throttle)
    with connect(bootstrap) as client:
        planned = from_file is not None or brokers is not None or replication_factor is not None
        if verify or cancel:
            plan = (
                _plan(client, topics, brokers, replication_factor, from_file)[0]
                if planned
                else None
            )
            (_cancel if cancel else _verify)(client, plan, topics, as_json=as_json)
            if not preserve_throttles:
                _remove_throttles(client, plan, topics)
            return
        plan, current = _plan(client, topics, brokers, replication_factor, from_file)
        if export is not None:
            _export(export, plan, current)
        if not execute:
            _show(plan, current, as_json=as_json)
            return
        _execute(client, plan, current, throttle, as_json=as_json)
        if wait:
            _wait(client, plan)
            if not preserve_throttles:
                _remove_throttles(client, plan, None)


def _check_modes(*modes: bool, wait: bool, throttle: int | None) -> None:
    if sum(modes) > 1:
        raise typer.BadParameter("give one of --execute, --dry-run, --verify and --cancel")
    if wait and not modes[0]:
        raise typer.BadParameter("--wait needs --execute")
    if throttle is not None and not modes[0]:
        raise typer.BadParameter("--throttle needs --execute")


# ---- planning --------------------------------------------------------------------------------


def _plan(
    client: BlockingClient,
    topics: list[str] | None,
    brokers: str | None,
    replication_factor: int | None,
    from_file: Path | None,
) -> tuple[Plan, dict[TopicPartition, PartitionReplicas]]:
    """Return the requested plan, and the current replicas of its partitions."""
    from raylog.cli.reassignment import arrived, plan_moves, read_plan

    if from_file is not None:
        if topics or brokers or replication_factor:
            raise typer.BadParameter("--from-file cannot be combined with --topic, --brokers or -r")
        plan = read_plan(from_file)
        known = client.describe_partitions(sorted({key.topic for key in plan}))
        return plan, select([f"{key.topic}:{key.partition}" for key in plan], known)
    if not topics or (brokers is None and replication_factor is None):
        raise typer.BadParameter("give --from-file, or --topic with --brokers or -r")
    current = select(topics, client.describe_partitions(topics_of(topics)))
    racks = {node.node_id: node.rack for node in client.metadata([]).nodes.values()}
    wanted = sorted(racks) if brokers is None else parse_live_brokers(brokers, racks)
    chosen = {broker: racks[broker] for broker in wanted}
    settled = arrived(current, client.list_reassignments(list(current)))
    return plan_moves(settled, chosen, replication_factor), current


def _export(path: Path, plan: Plan, current: Mapping[TopicPartition, PartitionReplicas]) -> None:
    import json

    from raylog.cli.reassignment import plan_document

    before = {key: current[key].replicas for key in plan}
    path.write_text(json.dumps(plan_document(before), indent=2) + "\n")
    print_done(
        f"the current replicas are in {path}; move back with: raylog topics reassign --from-file"
    )


def _show(
    plan: Plan, current: Mapping[TopicPartition, PartitionReplicas], *, as_json: bool
) -> None:
    from raylog.cli.reassignment import moves_of, plan_document

    if as_json:
        print_json(plan_document(plan))
        return
    moves = moves_of(plan, current)
    copies = sum(len({*new} - {*current[key].replicas}) for key, new in moves.items())
    print_table(
        None,
        ["topic", "partition#", "now", "then", "leader then#"],
        [
            (key.topic, key.partition, list(current[key].replicas), list(new), new[0])
            for key, new in sorted(moves.items())
        ],
    )
    print_done(f"{len(moves)} of {len(plan)} partitions change, {copies} replicas are copied")
    print_done("Nothing was done: add --execute" if moves else "There is nothing to do")


# ---- execution -------------------------------------------------------------------------------


def _execute(
    client: BlockingClient,
    plan: Plan,
    current: Mapping[TopicPartition, PartitionReplicas],
    throttle: int | None,
    *,
    as_json: bool,
) -> None:
    from raylog.cli.move_throttles import set_throttles
    from raylog.cli.reassignment import moves_of

    moves = moves_of(plan, current)
    under_way = client.list_reassignments(list(plan))
    wanted = {key: replicas for key, replicas in plan.items() if key in moves or key in under_way}
    if not wanted:
        print_done("every partition is where the plan puts it")
        return
    if throttle is not None:
        set_throttles(client, wanted, current, throttle)
    tell_outcomes(client.alter_reassignments(wanted), "moving", as_json=as_json)


def _wait(client: BlockingClient, plan: Plan) -> None:
    """Wait until no partition of the plan moves any more, showing the progress."""
    with Progress() as progress:
        while moving := client.list_reassignments(list(plan)):
            copied = copied_shares(client, moving)
            share = sum(copied.values()) / len(copied) if copied else 1.0
            progress.tell(
                f"{len(plan) - len(moving)} of {len(plan)} partitions moved; {share:.0%} of the "
                "others is copied"
            )
            time.sleep(_POLL_S)
    print_done(f"all {len(plan)} partitions are where the plan puts them")


def _remove_throttles(client: BlockingClient, plan: Plan | None, topics: list[str] | None) -> None:
    """Remove throttles unless something still moves, because rates apply to all moves."""
    from raylog.cli.move_throttles import remove_throttles

    if client.list_reassignments():
        return
    named = topics_of(topics or ())
    remove_throttles(client, named if plan is None else [key.topic for key in plan])


def _cancel(
    client: BlockingClient, plan: Plan | None, topics: list[str] | None, *, as_json: bool
) -> None:
    moving = _moving(client, plan, topics)
    if not moving:
        print_done("nothing moves")
        return
    outcomes = client.alter_reassignments(dict.fromkeys(moving))
    tell_outcomes(outcomes, "called off", as_json=as_json)


# ---- verification ----------------------------------------------------------------------------


def _verify(
    client: BlockingClient, plan: Plan | None, topics: list[str] | None, *, as_json: bool
) -> None:
    """Print each partition's state; raises CommandFailed if one is neither in place nor moving."""
    moving = _moving(client, plan, topics)
    copied = copied_shares(client, moving)
    keys = sorted(moving if plan is None else plan)
    known = client.describe_partitions(sorted({key.topic for key in keys}))
    rows = [_standing(key, plan, known, moving.get(key), copied.get(key)) for key in keys]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            None,
            [
                "topic",
                "partition#",
                "state",
                "replicas",
                "in sync",
                "adding",
                "removing",
                "copied#",
            ],
            [
                (*others, f"{copied:.0%}" if isinstance(copied, float) else None)
                for *others, copied in map(dict.values, rows)
            ],
        )
    else:
        print_done("nothing moves")
    astray = sum(row["state"] == "elsewhere" for row in rows)
    if astray:
        raise CommandFailed(
            f"{astray} of {len(rows)} partitions neither are where the plan puts them nor move "
            "there",
            "Start the moves with --execute",
        )


def _standing(
    key: TopicPartition,
    plan: Plan | None,
    known: Mapping[TopicPartition, PartitionReplicas],
    moving: Reassignment | None,
    copied: float | None,
) -> Row:
    found = known.get(key)
    replicas = () if found is None else tuple(found.replicas)
    state = "moving" if moving else "there"
    if moving is None and plan is not None and replicas != plan[key]:
        state = "elsewhere"
    return {
        "topic": key.topic,
        "partition": key.partition,
        "state": state,
        "replicas": list(replicas),
        "isr": [] if found is None else sorted(found.isr),
        "adding": list(moving.adding) if moving else [],
        "removing": list(moving.removing) if moving else [],
        "copied": copied,
    }


def _moving(
    client: BlockingClient, plan: Plan | None, topics: list[str] | None
) -> dict[TopicPartition, Reassignment]:
    """Return the current moves: those of the plan, those of the topics, or all."""
    if plan is not None:
        return client.list_reassignments(list(plan))
    if topics:
        return client.list_reassignments(
            select(topics, client.describe_partitions(topics_of(topics)))
        )
    return client.list_reassignments()


def copied_shares(
    client: BlockingClient, moving: Mapping[TopicPartition, Reassignment]
) -> dict[TopicPartition, float]:
    """Return how much of each move's slowest new replica is copied, 0 to 1, by bytes on disk."""
    from raylog.client import TopicPartition

    if not moving:
        return {}
    sizes: dict[tuple[TopicPartition, int], int] = {}
    for directory in client.describe_log_dirs():
        for one in directory.partitions:
            key = TopicPartition(one.topic, one.partition)
            if key in moving:
                sizes[key, directory.broker_id] = one.size_bytes
    return {
        key: min((_share(sizes, key, move, broker) for broker in move.adding), default=1.0)
        for key, move in moving.items()
    }


def _share(
    sizes: Mapping[tuple[TopicPartition, int], int],
    key: TopicPartition,
    move: Reassignment,
    broker: int,
) -> float:
    whole = max((sizes.get((key, one), 0) for one in move.replicas), default=0)
    return min(1.0, sizes.get((key, broker), 0) / whole) if whole else 1.0

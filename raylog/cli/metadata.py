"""The command `raylog metadata rebuild`: rebuilds the metadata from the brokers' directories."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_DATA, Data, Json, parse_pairs
from raylog.cli.output import counted, print_done, print_json, print_table
from raylog.cli.progress import Progress

if TYPE_CHECKING:
    from raylog.actors.broker.identity import DataDirectory
    from raylog.actors.common_messages import TopicId
    from raylog.actors.metadata.found import FoundBroker, FoundReplica
    from raylog.actors.metadata.image import MetadataImage
    from raylog.actors.metadata.rebuilding import (
        Choices,
        PlannedPartition,
        PlannedTopic,
        RebuildPlan,
    )
    from raylog.actors.metadata.records import BrokerWanted
    from raylog.actors.metadata.survivors import Copy

app = typer.Typer(no_args_is_help=True, help="Rebuild lost metadata.")
_REPORT_EVERY_S = 2.0


@app.callback()
def _group() -> None:
    """Keep `rebuild` a subcommand, although it is the only one."""


Directories = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[DIRECTORY]...",
        help="The brokers' data directories, or the folder that contains them. Default: --data.",
        file_okay=False,
        exists=True,
        show_default=False,
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="ID=NAME",
        help="Full name of a topic whose directories have only the first part of it; repeatable.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="ID",
        help="Leave out the topic with this id; its directories become strays. Repeatable.",
    ),
]
AcceptMissing = Annotated[
    bool,
    typer.Option("--accept-missing", help="Let partitions without any copy start empty."),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partitions",
        metavar="TOPIC=NUMBER",
        help="Number of partitions of a topic, if it is not known; repeatable.",
    ),
]
Without = Annotated[
    list[int] | None,
    typer.Option(
        "--without",
        metavar="BROKER",
        help="A broker whose directory is lost for good, with everything that only it had; "
        "repeatable.",
    ),
]
Execute = Annotated[
    bool,
    typer.Option("--execute", help="Carry the plan out. Without this the command only shows it."),
]


@app.command()
def rebuild(
    directories: Directories = None,
    data: Data = DEFAULT_DATA,
    names: Names = None,
    exclude: Exclude = None,
    accept_missing: AcceptMissing = False,
    partitions: Partitions = None,
    without: Without = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Rebuild the metadata from the brokers' data directories; show the plan first.

    Use it if a majority of the voters has lost its directory for good. The
    cluster must be down, and the directories of all remaining brokers must be
    on this machine. The copy of a partition with the highest leader epoch leads,
    among these the longest one; the others are truncated to it. Settings of the
    cluster and of brokers are lost, unless a copy of the metadata is left. If
    they are lost, retention and compaction are off for topics without their own
    settings until you turn them on: the plan says how.
    """
    from raylog.actors.broker.rebuild import carry_out

    paths = brokers_directories(directories or [data])
    start = _command("up", paths)
    choices = _choices(
        names or [],
        exclude or [],
        partitions or [],
        accept_missing=accept_missing,
        without=without or [],
    )
    with _held(paths) as held:
        plan = _plan(held, choices, start)
        if as_json:
            print_json(_as_json(plan))
        else:
            _show(plan)
        if plan.problems:
            raise CommandFailed("the plan cannot be carried out:\n  " + "\n  ".join(plan.problems))
        if not execute:
            print_done("Nothing was changed. To carry the plan out, add --execute")
            return
        moved = carry_out(plan, held)
    for path in moved:
        print_done(f"an older copy of the metadata is kept as {path}")
    print_done(f"The metadata is rebuilt. Start the cluster with: {start}")


def brokers_directories(given: Sequence[Path]) -> list[Path]:
    """Return the brokers' directories in `given`, or inside folders in it. Raises CommandFailed."""
    from raylog.actors.broker.identity import read_identity

    found: dict[Path, None] = {}
    for one in given:
        inside = sorted(one.glob("broker-*"))
        if inside and read_identity(one) is None:
            found |= dict.fromkeys(inside)
        elif one.name.startswith("broker-") or read_identity(one) is not None:
            found[one] = None
        else:
            raise CommandFailed(
                f"{one} neither is a broker's directory nor contains one",
                "Give the cluster's data directory with --data, or the brokers' directories "
                "themselves",
            )
    return list(found)


def _command(name: str, paths: Sequence[Path]) -> str:
    """Return the command line of `up` or `down` for the cluster with these directories."""
    parents = {one.parent for one in paths}
    if parents == {DEFAULT_DATA}:
        return f"raylog {name}"
    return f"raylog {name} --data {parents.pop() if len(parents) == 1 else 'DIR'}"


def _plan(held: Sequence[DataDirectory], choices: Choices, start: str) -> RebuildPlan:
    from raylog.actors.metadata.rebuilding import plan_rebuild
    from raylog.actors.metadata.survivors import best_copy
    from raylog.wire.uuids import random_uuid, to_base64

    copies = _copies(held, start)
    best = best_copy(copies)
    metadata_id = to_base64(random_uuid(SystemRandom()))
    plan = plan_rebuild(_found(held, copies, best), choices, metadata_id, best)
    return replace(plan, wanted=_wanted(held, best))


def _wanted(held: Sequence[DataDirectory], best: MetadataImage | None) -> tuple[BrokerWanted, ...]:
    """Return where brokers are to run, from the newest of the directories' copies and `best`."""
    from raylog.actors.broker.identity import WANTED_FILE
    from raylog.actors.supervisor.rules.desired import newest, read_desired
    from raylog.wire.errors import KafkaStorageError

    copies = []
    for path in (one.path / WANTED_FILE for one in held):
        if path.exists():
            try:
                copies.append(read_desired(path.read_bytes(), str(path)))
            except KafkaStorageError as damaged:
                print_done(f"ignoring {path}: {damaged}")
    found = newest(copies)
    if best is not None and (found is None or best.offset >= found.offset):
        return tuple(best.wanted.values())
    ids = {one.identity.broker_id: one.identity.directory_id for one in held}
    return tuple(
        one._replace(directory_id=ids.get(one.broker_id, one.directory_id))
        for one in (found.brokers if found is not None else ())
    )


def _choices(
    names: Sequence[str],
    exclude: Sequence[str],
    partitions: Sequence[str],
    *,
    accept_missing: bool,
    without: Sequence[int],
) -> Choices:
    from raylog.actors.metadata.rebuilding import Choices

    return Choices(
        names={
            _topic_id(one, "--name"): name for one, name in parse_pairs(names, "--name").items()
        },
        excluded=frozenset(_topic_id(one, "--exclude") for one in exclude),
        accept_missing=accept_missing,
        partitions={
            topic: _count(text) for topic, text in parse_pairs(partitions, "--partitions").items()
        },
        without=frozenset(without),
    )


def _count(text: str) -> int:
    from raylog.actors.metadata.rebuilding import PARTITION_MAX

    if not text.isdecimal() or not 0 < int(text) <= PARTITION_MAX:
        raise typer.BadParameter(
            f"expected a number from 1 to {PARTITION_MAX}, found {text}", param_hint="--partitions"
        )
    return int(text)


def _topic_id(text: str, option: str) -> TopicId:
    from raylog.actors.common_messages import TopicId
    from raylog.wire.uuids import from_base64

    try:
        return TopicId(from_base64(text))
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong), param_hint=option) from wrong


# ---- finding -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _held(paths: Sequence[Path]) -> Iterator[list[DataDirectory]]:
    """Lock the directories, so that no broker can run on them. Raises CommandFailed."""
    from raylog.actors.broker.identity import DataDirectory, DirectoryInUse, read_identity

    with contextlib.ExitStack() as stack:
        held: list[DataDirectory] = []
        for path in paths:
            identity = read_identity(path)
            if identity is None:
                raise CommandFailed(
                    f"{path / 'meta.json'} is missing: the broker of this directory is not known",
                    "Restore the file, or write it: `raylog up` on the directory says what. "
                    "Without this directory, everything that only it has would be lost",
                )
            try:
                one = DataDirectory(path, identity, fsync=True)
            except DirectoryInUse as used:
                raise CommandFailed(
                    str(used), f"Stop the cluster first: {_command('down', paths)}"
                ) from used
            stack.callback(one.close)
            held.append(one)
        _check_together(held)
        yield held


def _check_together(held: Sequence[DataDirectory]) -> None:
    """Raise CommandFailed unless the directories belong to different brokers of one cluster."""
    first = held[0]
    seen: dict[int, Path] = {}
    for one in held:
        if one.identity.cluster_id != first.identity.cluster_id:
            raise CommandFailed(
                f"{one.path} belongs to cluster {one.identity.cluster_id}, "
                f"{first.path} to cluster {first.identity.cluster_id}"
            )
        broker_id = one.identity.broker_id
        if broker_id in seen:
            raise CommandFailed(
                f"{one.path} and {seen[broker_id]} both belong to broker {broker_id}"
            )
        seen[broker_id] = one.path


def _copies(held: Sequence[DataDirectory], start: str) -> list[Copy]:
    """Return what is left of the metadata.

    Raises CommandFailed if that is enough to start the cluster with the command `start`.
    """
    from raylog.actors.broker.survey import surviving_image
    from raylog.actors.metadata.records import MetadataCorrupt
    from raylog.actors.metadata.survivors import Copy, enough

    copies = []
    for one in held:
        image = None
        try:
            image = surviving_image(one)
        except MetadataCorrupt as damaged:
            print_done(f"ignoring {one.metadata}, which is damaged: {damaged}")
        copies.append(Copy(one.identity.broker_id, one.identity.directory_id, one.followed, image))
    left = enough(copies)
    if left:
        raise CommandFailed(
            f"the metadata is not lost, because a majority of the voters is left: {left}",
            f"Start the cluster instead: {start}",
        )
    return copies


def _found(
    held: Sequence[DataDirectory], copies: Sequence[Copy], best: MetadataImage | None
) -> list[FoundBroker]:
    from raylog.actors.broker.survey import found_broker, partition_directories, survey

    found = []
    with Progress() as progress:
        for one, copy in zip(held, copies, strict=True):
            directories = partition_directories(one)
            progress.tell(f"reading {counted(len(directories), 'partition')} in {one.path}")
            reported_at = time.monotonic()
            replicas: list[FoundReplica] = []
            for replica in survey(directories, best):
                replicas.append(replica)
                if time.monotonic() - reported_at >= _REPORT_EVERY_S:
                    reported_at = time.monotonic()
                    progress.tell(f"{one.path}: {len(replicas)} of {len(directories)} partitions")
            found.append(found_broker(one, tuple(replicas), copy.image))
    return found


# ---- showing -------------------------------------------------------------------------------------


def _show(plan: RebuildPlan) -> None:
    voters = [broker_id for broker_id, _ in plan.voters]
    print_table(
        f"Cluster {plan.cluster_id}, metadata starts at offset {plan.offset:,}",
        ["broker#", "votes", "epoch#", "partitions#"],
        [
            (
                one.broker_id,
                "yes" if one.broker_id in voters else "no",
                one.broker_epoch,
                len(one.replicas),
            )
            for one in plan.brokers
        ],
    )
    print_table(
        None,
        ["topic", "id", "partitions#", "copies#", "offsets#", "settings"],
        [_topic_row(topic) for topic in plan.topics],
    )
    notable = [
        (topic.name, *row)
        for topic in plan.topics
        for one in topic.partitions
        if (row := _partition_row(one)) is not None
    ]
    if notable:
        print_table(
            "Partitions that need attention",
            ["topic", "partition#", "leader#", "broker: epoch, log end", "note"],
            notable,
        )
    for note in plan.notes:
        print_done(f"Note: {note}")


def _topic_row(topic: PlannedTopic) -> tuple[object, ...]:
    from raylog.wire.uuids import to_base64

    settings = ", ".join(f"{key}={value}" for key, value in sorted(topic.settings.items()))
    return (
        topic.name,
        to_base64(topic.topic_id),
        len(topic.partitions),
        max(len(one.replicas) for one in topic.partitions),
        sum(one.offsets for one in topic.partitions),
        settings or "none of its own" if topic.settings_known else f"not known: {settings}",
    )


def _partition_row(one: PlannedPartition) -> tuple[object, ...] | None:
    """Return the row of a partition that needs attention; None for all others."""
    if not one.ends:
        return (one.partition, None, "", "no copy: it starts empty")
    ends = "  ".join(f"{broker}: {epoch}, {end}" for broker, (epoch, end) in one.ends.items())
    if not one.is_whole:
        note = "damaged: offline until raylog topics elect-leaders --unclean"
    elif len(set(one.ends.values())) > 1:
        note = "the others are truncated to the leader, or catch up"
    else:
        return None
    return (one.partition, one.leader, ends, note)


def _as_json(plan: RebuildPlan) -> dict[str, object]:
    from raylog.wire.uuids import to_base64

    return {
        "cluster_id": plan.cluster_id,
        "offset": plan.offset,
        "voters": [broker_id for broker_id, _ in plan.voters],
        "next_producer_id": plan.next_producer_id,
        "problems": list(plan.problems),
        "notes": list(plan.notes),
        "topics": [
            {
                "topic": topic.name,
                "id": to_base64(topic.topic_id),
                "settings": dict(topic.settings),
                "settings_known": topic.settings_known,
                "partitions": [
                    {
                        "partition": one.partition,
                        "leader": one.leader,
                        "replicas": list(one.replicas),
                        "leader_epoch": one.leader_epoch,
                        "whole": one.is_whole,
                        "copies": [
                            {"broker": broker, "last_epoch": epoch, "log_end_offset": end}
                            for broker, (epoch, end) in one.ends.items()
                        ],
                    }
                    for one in topic.partitions
                ],
            }
            for topic in plan.topics
        ],
    }

"""`raylog groups reset-offsets`: set the committed offsets of a group."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.completion import complete_groups
from raylog.cli.connecting import connect
from raylog.cli.failures import EXIT_USAGE, CommandFailed
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import print_done, print_json, print_table
from raylog.cli.replica_options import TopicsOrPartitions

if TYPE_CHECKING:
    from raylog.cli.offset_reset import Move, Target, ToTime
    from raylog.client import BlockingClient, TopicPartition

_INACTIVE = ("Empty", "Dead")
_STDOUT = Path("-")
_STOP_FIRST = "Stop its consumers first, or wait until their sessions end"


Group = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="Group id.", autocompletion=complete_groups),
]
AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="All partitions with a committed offset.")
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the first record.")]
ToLatest = Annotated[
    bool, typer.Option("--to-latest", help="To the end, so that only new records are read.")
]
ToCurrent = Annotated[
    bool, typer.Option("--to-current", help="Keep the current offsets (useful with --export).")
]
ToOneOffset = Annotated[
    int | None,
    typer.Option(
        "--to-offset", min=0, metavar="OFFSET", help="To this offset, in every partition."
    ),
]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        metavar="TIME",
        help="To the first record at or after this time: 2026-01-31T12:00 (local time), …Z (UTC), "
        "or Unix time in ms.",
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(
        "--by-duration",
        metavar="DURATION",
        help="To the first record within this period before now: PT30M, P1DT12H.",
    ),
]
ByCount = Annotated[
    int | None,
    typer.Option("--shift-by", metavar="N", help="Forward by N offsets, or back if N is negative."),
]
OffsetsFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file",
        exists=True,
        dir_okay=False,
        help="To the offsets in this file: CSV of \\[group,]topic,partition,offset, or .json.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would change (the default).")
]
Execute = Annotated[bool, typer.Option("--execute", help="Change the offsets.")]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE",
        help="Write the new offsets to a file for --from-file; - is standard output.",
    ),
]


def reset_offsets(
    group: Group,
    topics: TopicsOrPartitions = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOneOffset = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    shift_by: ByCount = None,
    from_file: OffsetsFile = None,
    dry_run: DryRun = False,
    execute: Execute = False,
    export: Export = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set the committed offsets of a group without active members.

    Without --execute, the command only shows what would change.

    Offsets outside a partition's log are moved to the nearer end of the log.
    """
    if dry_run and execute:
        raise typer.BadParameter("give --dry-run or --execute, not both")
    target = _target(
        group,
        {
            "--to-earliest": to_earliest or None,
            "--to-latest": to_latest or None,
            "--to-current": to_current or None,
            "--to-offset": to_offset,
            "--to-datetime": to_datetime,
            "--by-duration": by_duration,
            "--shift-by": shift_by,
            "--from-file": from_file,
        },
    )
    chosen = _chosen(target, topics, all_topics=all_topics)
    with connect(bootstrap) as client:
        active = _active(client, group)
        if active and execute:
            raise CommandFailed(active, _STOP_FIRST)
        moves = _plan(client, group, target, chosen)
        if execute:
            client.commit_group_offsets(group, {move.key: move.offset for move in moves})
    if export is not None and _export(moves, export):
        return
    _tell(group, moves, active, execute=execute, as_json=as_json)


def _target(group: str, given: dict[str, object]) -> Target:
    """Return the requested target; raises BadParameter unless there is exactly one."""
    from raylog.cli.offset_reset import FromFile, Place, ShiftBy, ToOffset, read_offsets

    named = {option: value for option, value in given.items() if value is not None}
    if len(named) != 1:
        found = f"found {' and '.join(named)}" if named else "found none"
        raise typer.BadParameter(f"expected one of {', '.join(given)}; {found}")
    match named.popitem():
        case ("--to-offset", int(offset)):
            return ToOffset(offset)
        case ("--shift-by", int(count)):
            return ShiftBy(count)
        case ("--from-file", Path() as path):
            return FromFile(read_offsets(path, group))
        case (option, str(text)):
            return _time(option, text)
        case (option, _):
            return Place(option.removeprefix("--to-"))


def _time(option: str, text: str) -> ToTime:
    """Parse a time, or a duration before now; raises BadParameter."""
    from raylog.cli.offset_reset import ToTime, parse_duration_ms, parse_instant

    if option == "--by-duration":
        duration_ms = parse_duration_ms(text)
        if duration_ms is None:
            raise typer.BadParameter(
                f"expected a duration such as PT30M or P1DT12H, found {text!r}", param_hint=option
            )
        return ToTime(max(0, int(time.time() * 1000) - duration_ms))
    timestamp_ms = parse_instant(text)
    if timestamp_ms is None:
        raise typer.BadParameter(
            f"expected a time such as 2026-01-31T12:00, or milliseconds, found {text!r}",
            param_hint=option,
        )
    return ToTime(max(0, timestamp_ms))  # negative ones have special meanings


def _chosen(
    target: Target, topics: list[str] | None, *, all_topics: bool
) -> list[tuple[str, list[int] | None]] | None:
    """Return topics with partitions (None: all of them); None: all with a committed offset."""
    from raylog.cli.offset_reset import FromFile, parse_partitions
    from raylog.client.cluster import indexes_by_topic

    if isinstance(target, FromFile):
        if topics or all_topics:
            raise typer.BadParameter(
                "--from-file already names the partitions: omit --topic and --all-topics"
            )
        return [(topic, some) for topic, some in indexes_by_topic(target.offsets).items()]
    if bool(topics) == all_topics:
        raise typer.BadParameter("give --topic TOPIC[:0,1] or --all-topics")
    return [parse_partitions(topic) for topic in topics] if topics else None


def _active(client: BlockingClient, group: str) -> str | None:
    """Return why the group cannot be changed now, or None. A group need not exist yet."""
    from raylog.wire.errors import GroupIdNotFound

    try:
        found = client.describe_groups([group])[group]
    except GroupIdNotFound:
        return None
    if found.state in _INACTIVE:
        return None
    members = f"{len(found.members)} active member{'' if len(found.members) == 1 else 's'}"
    return f"group {group!r} is {found.state} with {members}"


def _plan(
    client: BlockingClient,
    group: str,
    target: Target,
    chosen: list[tuple[str, list[int] | None]] | None,
) -> list[Move]:
    """Ask the brokers for what the plan needs, and return the plan."""
    from raylog.cli.offset_reset import LogRange, ToTime, plan_moves
    from raylog.client import EARLIEST, LATEST

    committed = {key: at.offset for key, at in client.group_offsets(group).items()}
    keys = _existing(client, committed) if chosen is None else _partitions(client, chosen)
    if not keys:
        raise CommandFailed(
            f"group {group!r} has no committed offsets", "Give topics with --topic TOPIC"
        )
    first = client.list_offsets(dict.fromkeys(keys, EARLIEST))
    end = client.list_offsets(dict.fromkeys(keys, LATEST))
    logs = {key: LogRange(first[key].offset, end[key].offset) for key in keys}
    found = {}
    if isinstance(target, ToTime):
        found = client.list_offsets(dict.fromkeys(keys, target.timestamp_ms))
    return plan_moves(target, logs, committed, found)


def _existing(client: BlockingClient, committed: dict[TopicPartition, int]) -> list[TopicPartition]:
    """Return the committed partitions, except those of deleted topics."""
    if not committed:
        return []
    topics = client.metadata({key.topic for key in committed}).topics
    gone = sorted({key.topic for key in committed} - set(topics))
    if gone:
        print_done(f"skipped, because they are deleted: {', '.join(gone)}")
    return [key for key in committed if key.topic in topics]


def _partitions(
    client: BlockingClient, chosen: list[tuple[str, list[int] | None]]
) -> list[TopicPartition]:
    """Return the named partitions; raises UnknownTopicOrPartition or CommandFailed."""
    from raylog.client import TopicPartition

    keys = []
    for topic, partitions in chosen:
        known = client.describe_topic(topic).partitions
        unknown = set(partitions or ()) - set(known)
        if unknown:
            raise CommandFailed(
                f"{topic} has the partitions 0 to {len(known) - 1}, found {min(unknown)}",
                exit_code=EXIT_USAGE,
            )
        keys += [TopicPartition(topic, index) for index in partitions or sorted(known)]
    return keys


def _export(moves: list[Move], path: Path) -> bool:
    """Write the new offsets; return whether they went to standard output."""
    from raylog.cli.offset_reset import offsets_text

    text = offsets_text(moves, as_json=path.suffix == ".json")
    if path == _STDOUT:
        typer.echo(text, nl=False)
        return True
    path.write_text(text)
    print_done(f"{len(moves)} offsets written to {path}")
    return False


def _tell(
    group: str, moves: list[Move], active: str | None, *, execute: bool, as_json: bool
) -> None:
    """Print the plan, or what was done."""
    rows = [
        {
            "topic": move.key.topic,
            "partition": move.key.partition,
            "current": move.current,
            "offset": move.offset,
            "asked": move.asked,
            "log_start_offset": move.log.first,
            "end_offset": move.log.end,
        }
        for move in moves
    ]
    if as_json:
        print_json({"group": group, "executed": execute, "active": active, "offsets": rows})
    else:
        print_table(
            None,
            ["topic", "partition#", "committed#", "new#", "lag then#", ""],
            [
                (*move.key, move.current, move.offset, move.log.end - move.offset, _note(move))
                for move in moves
            ],
        )
    if execute:
        print_done(f"{len(moves)} offsets of {group} set")
        return
    if active:
        print_done(f"{active}: --execute would be refused. {_STOP_FIRST}")
    print_done("nothing was changed: this shows what --execute would do")


def _note(move: Move) -> str:
    """Describe why an offset is not the requested one; "" if it is."""
    if move.offset == move.asked:
        return ""
    return f"{move.asked} is not in the log, which holds {move.log.first} to {move.log.end}"

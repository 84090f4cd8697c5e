"""The commands `raylog dlq`: list, show and replay dead letters of parallel consumers."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.acting import acting
from raylog.cli.completion import complete_topics
from raylog.cli.connecting import connect
from raylog.cli.consume import encode_line, field_of
from raylog.cli.dlq_replay import PartitionFilter, ReasonFilter, Topic, is_selected, replay
from raylog.cli.formats import (
    Format,
    KeyFormat,
    NotOfFormat,
    Readers,
    Reading,
    Registry,
    ValueFormat,
    readers,
)
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import counted, print_done, print_rows
from raylog.cli.progress import Progress

if TYPE_CHECKING:
    from raylog.cli.dlq_letters import Letter
    from raylog.client import BlockingClient
    from raylog.wire.record import Record

app = typer.Typer(
    no_args_is_help=True,
    help="List, show and replay dead letters: records that a ParallelConsumer gave up on.",
)
app.command(name="replay")(acting(replay))

_UNKNOWN = "unknown"
_SHOWN_MAX = 10
"""Maximum number of reasons, and of groups, in the table's row of a topic."""


@app.command(name="list")
def list_letters(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="Dead-letter topics. Default: all topics with names ending in .dlq.",
            autocompletion=complete_topics,
        ),
    ] = None,
    pattern: Annotated[
        str, typer.Option("--pattern", help="Pattern of topic names, with * and ?.")
    ] = "*.dlq",
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List dead-letter topics: letters by reason and group, replayed letters, the newest one.

    The command reads all letters.
    """
    with Progress() as progress, connect(bootstrap) as client:
        names = topics or [
            name for name in sorted(client.metadata().topics) if fnmatchcase(name, pattern)
        ]
        rows = [_row(client, name, progress) for name in names]
    columns = ["topic", "letters#", "replayed#", "reasons", "groups", "newest"]
    note = "" if rows else f"no topics with names like {pattern}"
    print_rows(columns, rows, as_json=as_json, cells=_cells, note=note)


def _row(client: BlockingClient, topic: str, progress: Progress) -> dict[str, object]:
    """Count the letters of one topic."""
    from raylog.cli.dlq_letters import partitions_of, progresses, read_letters

    keys = partitions_of(client, topic, None)
    reasons: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    replayed = 0
    newest_ms: int | None = None
    progress.tell(f"reading {topic}")
    for letter in read_letters(client, keys, progresses(client, keys)):
        reasons[letter.headers.reason or _UNKNOWN] += 1
        groups[letter.headers.group or _UNKNOWN] += 1
        replayed += letter.is_replayed
        if letter.record.timestamp >= 0:  # -1: the producer set none
            newest_ms = max(letter.record.timestamp, newest_ms or 0)
    return {
        "topic": topic,
        "letters": reasons.total(),
        "replayed": replayed,
        "reasons": dict(reasons.most_common()),
        "groups": dict(groups.most_common()),
        "newest": newest_ms,
    }


def _cells(row: dict[str, object]) -> list[object]:
    """Return the table cells of a row."""
    from raylog.actors.log_formatting import plain

    shown = dict(row)
    for name in ("reasons", "groups"):
        found = row[name]
        assert isinstance(found, dict)
        parts = [f"{plain(value)} {count:,}" for value, count in found.items()]
        if len(parts) > _SHOWN_MAX:  # any client can write any reason
            parts[_SHOWN_MAX:] = [f"{len(parts) - _SHOWN_MAX:,} more"]
        shown[name] = ", ".join(parts) or None
    newest = row["newest"]
    shown["newest"] = _time(newest) if isinstance(newest, int) else None
    return list(shown.values())


@app.command()
def show(
    topic: Topic,
    partitions: PartitionFilter = None,
    reasons: ReasonFilter = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Show at most this many letters.")
    ] = None,
    key_format: KeyFormat = Format.BYTES,
    value_format: ValueFormat = Format.BYTES,
    registry: Registry = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each letter as a JSON object.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the letters of a dead-letter topic: origin, reason, key and value.

    A key or value that does not have the requested format is shown as it is.
    Lines are cut after 2,000 characters, and unprintable characters are escaped;
    --json shows everything.
    """
    from raylog.cli.dlq_letters import partitions_of, progresses, read_letters

    count = 0
    with ExitStack() as opened:
        reading = readers(key_format, value_format, registry, opened)
        client = opened.enter_context(connect(bootstrap))
        keys = partitions_of(client, topic, partitions)
        letters = read_letters(client, keys, progresses(client, keys))
        chosen = (one for one in letters if is_selected(one, reasons))
        for letter in islice(chosen, limit):
            count += 1
            facts = _facts(letter, reading)
            typer.echo(encode_line(facts) if as_json else _text(letter, facts))
    if not as_json:
        print_done(counted(count, "letter"))


def _facts(letter: Letter, reading: Readers) -> dict[str, object]:
    """Return a letter as a JSON object."""
    record, headers = letter.record, letter.headers
    origin = headers.origin
    facts: dict[str, object] = {
        "topic": letter.key.topic,
        "partition": letter.key.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "original": None
        if origin is None
        else {
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
            "timestamp": origin.timestamp_ms,
        },
        "reason": headers.reason,
        "exception": headers.exception,
        "text": headers.text,
        "attempts": None if origin is None else origin.attempts,
        "first_failure": None if origin is None else origin.first_failure_ms,
        "group": headers.group,
        "replayed": letter.is_replayed,
        **_read("key", record.key, letter, record, reading.key),
        **_read("value", record.value, letter, record, reading.value),
        "headers": _headers(record),
    }
    if headers.value_left_out is not None:
        facts["value_left_out"] = headers.value_left_out
    return facts


def _read(
    name: str, data: bytes | None, letter: Letter, record: Record, read: Reading | None
) -> dict[str, object]:
    """Return a key or value in its format, or as it is if it cannot be read.

    That is often the reason why the record is here.
    """
    origin = letter.headers.origin
    topic = letter.key.topic if origin is None else origin.topic
    try:
        return field_of(name, data, topic, record, read)
    except NotOfFormat:
        return field_of(name, data, topic, record, None)


def _headers(record: Record) -> list[tuple[str, str | None]]:
    """Return the headers that the record had before it failed."""
    from raylog.client.parallel.letters import without_ours

    return [
        (name, None if value is None else value.decode("utf-8", "replace"))
        for name, value in without_ours(record.headers)
    ]


def _text(letter: Letter, facts: dict[str, object]) -> str:
    """Format a letter as lines of text. Its content is escaped, so that it cannot add lines."""
    from raylog.actors.log_formatting import plain

    record, headers = letter.record, letter.headers
    state = ", replayed" if letter.is_replayed else ""
    lines = [f"{letter.key} offset {record.offset}, {_time(record.timestamp)}{state}"]
    origin = headers.origin
    if origin is None:
        lines.append("  from: unknown; it is not a dead letter of a ParallelConsumer")
    else:
        place = f"{origin.topic}-{origin.partition} offset {origin.offset}"
        lines.append(f"  from: {place}, {_time(origin.timestamp_ms)}")
        runs = counted(origin.attempts, "attempt")
        lines.append(f"  given up by: group {headers.group or _UNKNOWN}, after {runs}")
    if headers.reason is not None:
        why = f"{headers.exception or ''}: {headers.text or ''}".strip(": ")
        lines.append(f"  reason: {headers.reason}, {why}")
    for name in ("key", "value"):
        found = facts.get(name, facts.get(f"{name}_base64"))
        shown = found if isinstance(found, str) else encode_line(found)
        lines.append(f"  {name}: {'(none)' if found is None else shown}")
    if headers.value_left_out is not None:
        lines.append(f"  the value ({headers.value_left_out:,} bytes) was too large for the letter")
    for header, value in _headers(record):
        lines.append(f"  header {header}: {'(none)' if value is None else value}")
    return "\n".join(plain(line) for line in lines)


def _time(timestamp_ms: int) -> str:
    """Format a time as local time, or as @MILLISECONDS if it is out of range."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"@{timestamp_ms}"
    return moment.isoformat(" ", "seconds")

"""The command `raylog consume`: prints records to standard output."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.completion import complete_groups, complete_topics
from raylog.cli.connecting import connect
from raylog.cli.failures import EXIT_INTERRUPTED, CommandFailed
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
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from raylog.cli.output import print_done

if TYPE_CHECKING:
    from raylog.client import BlockingClient, BlockingConsumer, ConsumedRecords, TopicPartition
    from raylog.wire.records import Record

_POLL_MS = 500
_POLL_RECORDS_MAX = 10_000
encode_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Encode a value as JSON on one line."""

Formatted = Callable[[str, int, "Record"], bytes]


def consume(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Topic to read.", autocompletion=complete_topics)
    ],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            "-f",
            metavar="earliest|latest|OFFSET|TIME",
            help="Where to start: the earliest record, the end (latest: only new records), an "
            "offset, or a time such as 2026-01-31T12:00 (local time) or @MILLISECONDS (Unix "
            "time). Default: latest.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group, and commit the offsets of printed records. "
            "--from applies only to partitions without a committed offset.",
            autocompletion=complete_groups,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="Read only this partition; repeatable."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")
    ] = None,
    until_end: Annotated[
        bool,
        typer.Option(
            "--exit", "-e", help="Stop after the last record that exists when the command starts."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each record as a JSON object.")
    ] = False,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", help="Print the key and this text before each value."
        ),
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out aborted transactions.")
    ] = False,
    key_format: KeyFormat = Format.BYTES,
    value_format: ValueFormat = Format.BYTES,
    registry: Registry = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print a topic's records, one per line, until Ctrl-C, the end (-e) or a count (-n).

    By default it prints only new records; --from earliest prints all of them.
    """
    from raylog.client import TopicPartition

    if group is not None and (partition or start not in (None, "earliest", "latest")):
        raise typer.BadParameter(
            "--group can be combined only with --from earliest or latest, and not with --partition"
        )

    with ExitStack() as opened:
        reading = readers(key_format, value_format, registry, opened)
        client = opened.enter_context(connect(bootstrap))
        view = client.describe_topic(topic)
        unknown = set(partition or ()) - set(view.partitions)
        if unknown:
            raise typer.BadParameter(
                f"{topic} has the partitions 0 to {len(view.partitions) - 1}, "
                f"found {sorted(unknown)[0]}",
                param_hint="--partition",
            )
        keys = [TopicPartition(topic, index) for index in sorted(partition or view.partitions)]
        consumer = opened.enter_context(
            _reader(client, keys, start or "latest", group, read_committed=read_committed)
        )
        ends = _ends(client, keys, read_committed=read_committed) if until_end else None
        formatted = _format(key_separator, reading, group, as_json=as_json)
        if start is None and group is None:
            print_done(
                f"{'Reading' if until_end else 'Waiting for'} new records of {topic} only. "
                "To read existing records too, add: --from earliest"
            )
        if group is not None:
            print_done(f"Joining the group {group}")
        is_quiet = until_end or (start is None and group is None)
        tell_end = None if is_quiet else _end_teller(client, consumer, topic, keys)
        try:
            _run(consumer, formatted, ends, count, tell_end)
        except KeyboardInterrupt:
            sys.stdout.flush()
            raise typer.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def _reader(
    client: BlockingClient,
    keys: list[TopicPartition],
    start: str,
    group: str | None,
    *,
    read_committed: bool,
) -> Iterator[BlockingConsumer[bytes, bytes]]:
    """Open a consumer that starts where `--from` says, or that is a member of a group."""
    from raylog.client import ConsumerSettings

    if group is None:
        consumer = client.consumer(ConsumerSettings(read_committed=read_committed))
        begin(consumer, keys, start)
    else:
        consumer = client.consumer(
            ConsumerSettings(read_committed=read_committed, group_id=group, reset=start)
        )
        consumer.subscribe([keys[0].topic])
    try:
        yield consumer
    finally:
        consumer.close()


def begin(consumer: BlockingConsumer, keys: list[TopicPartition], start: str) -> None:
    """Assign partitions, starting where `--from` says."""
    from raylog.client import EARLIEST, LATEST

    if start in ("earliest", "latest"):
        consumer.assign(dict.fromkeys(keys, EARLIEST if start == "earliest" else LATEST))
    elif start.isascii() and start.isdigit():
        consumer.assign(dict.fromkeys(keys, int(start)))
    else:
        timestamp_ms = parse_time(start)
        consumer.assign(dict.fromkeys(keys, EARLIEST))
        consumer.seek_to_timestamp(keys, timestamp_ms)


def parse_time(text: str) -> int:
    """Convert @MILLISECONDS or an ISO 8601 time (by default local) to milliseconds since 1970.

    Raises BadParameter if the text is neither.
    """
    from raylog.cli.offset_reset import parse_instant

    timestamp_ms = parse_instant(text)
    if timestamp_ms is None:
        raise typer.BadParameter(
            f"expected earliest, latest, an offset or a time, found {text!r}", param_hint="--from"
        )
    return timestamp_ms


def _ends(
    client: BlockingClient, keys: list[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    """Return the current end offset of each partition."""
    from raylog.client import LATEST

    wanted = dict.fromkeys(keys, LATEST)
    found = client.list_offsets(wanted, read_committed=read_committed)
    return {key: answer.offset for key, answer in found.items()}


def _end_teller(
    client: BlockingClient, consumer: BlockingConsumer, topic: str, keys: list[TopicPartition]
) -> Callable[[], bool]:
    """Return a function that prints a notice if all records are read; it returns whether it did."""

    def tell() -> bool:
        is_at_end = _is_past(consumer, _ends(client, keys, read_committed=False))
        if is_at_end:
            print_done(f"At the end of {topic}: waiting for new records (Ctrl-C stops)")
        return is_at_end

    return tell


def _run(
    consumer: BlockingConsumer,
    formatted: Formatted,
    ends: dict[TopicPartition, int] | None,
    count: int | None,
    tell_end: Callable[[], bool] | None,
) -> None:
    """Print records until `ends` or `count` is reached.

    If a poll finds none, call `tell_end`, until it has returned True.
    """
    left = sys.maxsize if count is None else count
    while left > 0 and not _is_past(consumer, ends):
        found = consumer.poll(_POLL_MS, min(left, _POLL_RECORDS_MAX))
        if not found and tell_end is not None and tell_end():
            tell_end = None
        left -= _print(consumer, formatted, found, left)


def _print(
    consumer: BlockingConsumer, formatted: Formatted, found: list[ConsumedRecords], most: int
) -> int:
    """Print up to `most` records; return how many. Go back to those that were not printed.

    So a group commits only printed records. Some may be printed again if the output fails.
    """
    from raylog.client import ClientError, TopicPartition

    out, count = sys.stdout.buffer, 0
    firsts = {TopicPartition(one.topic, one.partition): one.records[0].offset for one in found}
    following = dict(firsts)
    try:
        for key, group in zip(firsts, found, strict=True):
            lines, failure = _lines(formatted, key, group.records[: most - count])
            count += len(lines)
            if len(lines) < len(group.records):
                following[key] = group.records[len(lines)].offset
            else:
                del following[key]
            out.write(b"".join(lines))
            if failure is not None:
                raise failure
        out.flush()
    except OSError:
        following = firsts
        raise
    finally:
        for key, offset in following.items():
            with suppress(ClientError):  # it may be another member's by now
                consumer.seek(key, offset)
    return count


def _lines(
    formatted: Formatted, key: TopicPartition, records: list[Record]
) -> tuple[list[bytes], CommandFailed | None]:
    """Format records up to the first unreadable one; also return why that one is unreadable."""
    lines: list[bytes] = []
    for record in records:
        try:
            lines.append(formatted(key.topic, key.partition, record))
        except CommandFailed as failure:
            return lines, failure
    return lines, None


def _is_past(consumer: BlockingConsumer, ends: dict[TopicPartition, int] | None) -> bool:
    """Whether every assigned partition was read to its end; False if `ends` is None."""
    if ends is None:
        return False
    reading = consumer.assignment()
    return bool(reading) and all(consumer.position(key) >= ends.get(key, 0) for key in reading)


def _format(
    key_separator: str | None, reading: Readers, group: str | None, *, as_json: bool
) -> Formatted:
    """Return the function that formats records for printing."""
    if reading:
        separator = None if key_separator is None else key_separator.encode()
        return lambda topic, partition, record: _read_line(
            topic, partition, record, reading, separator, group, as_json=as_json
        )
    if as_json:
        return format_json
    if key_separator is None:
        return lambda topic, partition, record: (record.value or b"") + b"\n"
    separator = key_separator.encode()
    return lambda topic, partition, record: (
        (record.key or b"") + separator + (record.value or b"") + b"\n"
    )


def _read_line(
    topic: str,
    partition: int,
    record: Record,
    reading: Readers,
    separator: bytes | None,
    group: str | None,
    *,
    as_json: bool,
) -> bytes:
    """Format a record with `reading`. Raises CommandFailed if its key or value cannot be read."""
    try:
        key = field_of("key", record.key, topic, record, reading.key)
        value = field_of("value", record.value, topic, record, reading.value)
    except NotOfFormat as failure:
        following = record.offset + 1
        raise CommandFailed(
            f"{topic}-{partition}, offset {record.offset}: {failure}",
            f"Continue after it with: --partition {partition} --from {following}"
            if group is None
            else f"Continue after it with: raylog groups reset-offsets {group} "
            f"--topic {topic}:{partition} --to-offset {following} --execute",
        ) from failure
    if as_json:
        return _json_line(topic, partition, record, {**key, **value})
    line = _line_of(value, quoted=reading.value_is_json)
    if separator is not None:
        line = _line_of(key, quoted=reading.key_is_json) + separator + line
    return line + b"\n"


def field_of(
    name: str, data: bytes | None, topic: str, record: Record, read: Reading | None
) -> dict[str, object]:
    """Return a key or value as a JSON field. Raises NotOfFormat if `read` cannot read it."""
    if data is None or read is None:
        return dict(text_or_base64(name, data))
    return {name: read(topic, data, record.headers)}


def _line_of(field: dict[str, object], *, quoted: bool) -> bytes:
    """Format a key or value for a line: null as nothing, others as JSON only if `quoted`."""
    ((name, found),) = field.items()
    if name.endswith("_base64"):
        return base64.b64decode(str(found))
    if found is None:
        return b""
    return (encode_line(found) if quoted else str(found)).encode()


def format_json(topic: str, partition: int, record: Record) -> bytes:
    """Format a record as one line of JSON, which `raylog produce --json` can read."""
    key, value = text_or_base64("key", record.key), text_or_base64("value", record.value)
    return _json_line(topic, partition, record, {**key, **value})


def _json_line(topic: str, partition: int, record: Record, content: dict[str, object]) -> bytes:
    """Format a record as one line of JSON; `content` is its key and value."""
    fields: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **content,
    }
    if record.headers:
        fields["headers"] = [
            [name, None if value is None else value.decode("utf-8", "replace")]
            for name, value in record.headers
        ]
    return encode_line(fields).encode() + b"\n"


def text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    """Return a key or value as text if it is UTF-8, or else as base64."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}

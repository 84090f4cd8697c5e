"""`raylog produce`: write records from standard input or a file."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.formats import (
    PLAIN,
    Format,
    KeyFormat,
    KeySchemaFile,
    Message,
    NotOfFormat,
    Registry,
    SchemaFile,
    ValueFormat,
    Writers,
    writers,
)
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, parse_pairs
from raylog.cli.output import counted, print_done
from raylog.cli.progress import REMIND_S

if TYPE_CHECKING:
    from raylog.client import BlockingProducer

_CHUNK_BYTES = 256 * 1024
_LINGER_S = 0.05
"""How long the input may be silent before pending records are sent."""
_PROGRESS_S = 0.5
_PROGRESS_RECORDS = 4_096
_EXPECTED_JSON = (
    'expected one JSON object per line, with "value" (null: a tombstone) or "value_base64"'
)
_LINE_BYTES_MAX = 1024 * 1024 * 1024
_SHOWN_MAX = 80
_INT64 = range(-(2**63), 2**63)


class CodecName(StrEnum):
    """Compression codec of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Replicas that must have a record before it counts as written."""

    NOBODY = "0"
    LEADER = "1"
    ALL = "all"


class LineRefused(ValueError):
    """A line is not a record; the message says what was expected and found."""


class Line(NamedTuple):
    """One record as read, with its fields in the order of `BlockingProducer.send`."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []  # noqa: RUF012 - a tuple's default, never changed
    timestamp_ms: int | None = None
    partition: int | None = None


Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Topic to write to.", autocompletion=complete_topics),
]
File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="File to read instead of standard input.",
        exists=True,
        dir_okay=False,
    ),
]
KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", help="Each line is a key, this separator, and a value."),
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", help="Header of every record, as NAME=VALUE; repeatable."),
]
Partition = Annotated[
    int | None,
    typer.Option(
        "--partition", "-p", min=0, help="Partition of every record. Default: chosen by the key."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Each line is a record as `raylog consume --json` prints it.")
]
Null = Annotated[bool, typer.Option("--null", "-Z", help="Write empty values as null.")]
Compression = Annotated[CodecName, typer.Option("--codec", "-z", help="Compression codec.")]
Acknowledged = Annotated[
    Acks,
    typer.Option(
        "--acks",
        "-a",
        help="Replicas that must have a record before it is acknowledged: none (0), the leader "
        "(1), all in-sync replicas (all).",
    ),
]


def produce(
    topic: Topic,
    file: File = None,
    key_separator: KeySeparator = None,
    key: Key = None,
    header: Header = None,
    partition: Partition = None,
    as_json: AsJson = False,
    null: Null = False,
    codec: Compression = CodecName.NONE,
    acks: Acknowledged = Acks.ALL,
    key_format: KeyFormat = Format.BYTES,
    value_format: ValueFormat = Format.BYTES,
    registry: Registry = None,
    schema: SchemaFile = None,
    key_schema: KeySchemaFile = None,
    message: Message = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write records, one per line, from standard input or a file."""
    from raylog.client import Codec, ProducerSettings

    keys = [one for one in (key_separator, key) if one is not None]
    if as_json and (keys or header or null or partition is not None):
        raise typer.BadParameter(
            "with --json, give keys, headers, partitions and null values in the lines"
        )
    if len(keys) == 2 or key_separator == "":
        raise typer.BadParameter("give --key, or --key-separator with at least one character")
    fixed = Line(
        None,
        key.encode() if key is not None else None,
        [(name, value.encode()) for name, value in parse_pairs(header, "--header").items()],
        None,
        partition,
    )
    separator = key_separator.encode() if key_separator else None
    numbers = {Acks.NOBODY: 0, Acks.LEADER: 1, Acks.ALL: -1}
    settings = ProducerSettings(
        acks=numbers[acks], codec=Codec[codec.name], idempotent=acks is Acks.ALL
    )
    with ExitStack() as opened:
        writing = writers(key_format, value_format, registry, (key_schema, schema), message, opened)
        client = opened.enter_context(connect(bootstrap))
        producer = opened.enter_context(client.producer(settings))
        feed = _Feed(producer, topic)
        with _open(file) as source, feed.watched():
            for number, line in enumerate(read_lines(source, producer.flush), 1):
                try:
                    record = (
                        parse_json(line, writing)
                        if as_json
                        else parse_line(line, fixed, separator, null=null)
                    )
                    feed.send(written(record, topic, writing))
                except (LineRefused, NotOfFormat) as refused:
                    feed.finish()
                    raise CommandFailed(f"line {number}: {refused}") from refused
            feed.finish()


def written(line: Line, topic: str, writing: Writers) -> Line:
    """Return a line with key and value converted to their formats; null stays null."""
    if writing.key is not None and line.key is not None:
        line = line._replace(key=writing.key(topic, line.key))
    if writing.value is not None and line.value is not None:
        line = line._replace(value=writing.value(topic, line.value))
    return line


def parse_line(line: bytes, fixed: Line, separator: bytes | None, *, null: bool) -> Line:
    """Parse a line of the form [KEY SEPARATOR] VALUE. Raises LineRefused."""
    key = fixed.key
    value: bytes | None = line
    if separator is not None:
        key, found, value = line.partition(separator)
        if not found:
            raise LineRefused(f"expected {separator!r} after the key, found {line[:80]!r}")
    if null and not value:
        value = None
    return Line(value, key, fixed.headers, None, fixed.partition)


def parse_json(line: bytes, writing: Writers = PLAIN) -> Line:
    """Parse a record as `raylog consume --json` prints it. Only the value is required.

    Text is UTF-8. Other bytes are given as base64 in "key_base64" and "value_base64". A key or
    value with a format is given as that format's JSON. Raises LineRefused.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineRefused(f"{error}; {_EXPECTED_JSON}, found {line[:80]!r}") from error
    if not isinstance(fields, dict) or fields.keys().isdisjoint(("value", "value_base64")):
        raise LineRefused(f"{_EXPECTED_JSON}, found {line[:80]!r}")
    return Line(
        _bytes_of(fields, "value", as_json=writing.value_is_json),
        _bytes_of(fields, "key", as_json=writing.key_is_json),
        _headers_of(fields),
        _number_of(fields, "timestamp"),
        _number_of(fields, "partition"),
    )


def _number_of(fields: dict[str, object], name: str) -> int | None:
    found = fields.get(name)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or found not in _INT64:
        raise LineRefused(f'"{name}": expected a 64-bit integer, found {_shown(found)}')
    return found


def _headers_of(fields: dict[str, object]) -> list[tuple[str, bytes | None]]:
    """Return headers that are given as an object or as pairs."""
    found = fields.get("headers") or []
    pairs = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise LineRefused(
            '"headers": expected an object, or a list of [NAME, VALUE], found ' + _shown(found)
        )
    return [
        (str(name), None if value is None else _encoded(str(value), "headers"))
        for name, value in pairs
    ]


def _bytes_of(fields: dict[str, object], name: str, *, as_json: bool) -> bytes | None:
    """Return a key or value. Strings are kept, unless `as_json`; other values become JSON text."""
    import base64

    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(str(encoded), validate=True)
        except ValueError as error:
            raise LineRefused(f'"{name}_base64": {error}, found {_shown(encoded)}') from error
    found = fields.get(name)
    if found is None:
        return None
    is_text = isinstance(found, str) and not as_json
    text = str(found) if is_text else json.dumps(found, separators=(",", ":"))
    return _encoded(text, name)


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LineRefused(
            f'"{name}": expected text, found {_shown(text)} ({error.reason}); give other bytes '
            f'as "{name}_base64"'
        ) from error


def _shown(found: object) -> str:
    """Return a value as JSON, truncated."""
    text = json.dumps(found)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def read_lines(source: IO[bytes], idle: object) -> Iterator[bytes]:
    """Yield lines without line ends; call `idle` when no input has arrived for a moment.

    Takes linear time, even for input without line ends. Raises CommandFailed if a line is too long
    for any record.
    """
    assert callable(idle)
    descriptor = source.fileno()
    begun: list[bytes] = []
    begun_bytes = 0
    while True:
        if not select.select([descriptor], [], [], _LINGER_S)[0]:
            idle()
            select.select([descriptor], [], [])
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        *lines, rest = chunk.split(b"\n")
        if lines:
            begun.append(lines[0])
            lines[0] = b"".join(begun)
            begun, begun_bytes = [], 0
        for line in lines:
            yield line.removesuffix(b"\r")
        begun.append(rest)
        begun_bytes += len(rest)
        if begun_bytes > _LINE_BYTES_MAX:
            raise CommandFailed(
                f"expected lines of at most {_LINE_BYTES_MAX} bytes, found a longer one that "
                f"begins with {begun[0][:80]!r}"
            )
    if begun_bytes:
        yield b"".join(begun)


def _open(file: Path | None) -> IO[bytes]:
    """Open the input. Closing it leaves standard input open."""
    if file is not None:
        return file.open("rb")
    return os.fdopen(os.dup(sys.stdin.fileno()), "rb")


class _Feed:
    """Sends lines and reports progress."""

    def __init__(self, producer: BlockingProducer[bytes, bytes], topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._started = self._reported_at = time.monotonic()
        self._count = 0
        self._shows_progress = sys.stderr.isatty() and not sys.stdin.isatty()

    def send(self, line: Line) -> None:
        """Hand one record to the producer."""
        self._count += 1  # before `send`, which may block
        self._producer.send(self._topic, *line)
        if self._count % _PROGRESS_RECORDS == 0 and self._shows_progress:
            self._tell()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While nothing is acknowledged, print the reason every few seconds."""
        ended = threading.Event()

        def watch() -> None:
            delivered = -1
            while not ended.wait(REMIND_S):
                before, delivered = delivered, self._producer.delivered_count
                if delivered == before and delivered < self._count:
                    why = self._producer.refusal or "the broker has not answered"
                    left = counted(self._count - delivered, "record")
                    print_done(f"waiting for the acknowledgement of {left}: {why}")

        watcher = threading.Thread(target=watch, name="watcher", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()

    def finish(self) -> None:
        """Wait until all records are acknowledged, and print a summary."""
        self._producer.flush()
        seconds = time.monotonic() - self._started
        end = "\r" if self._shows_progress else ""
        count = self._producer.delivered_count
        print_done(f"{end}{counted(count, 'record')} to {self._topic} in {seconds:.1f} s")

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._reported_at >= _PROGRESS_S:
            self._reported_at = now
            rate = self._count / (now - self._started)
            typer.echo(f"\r{self._count} records, {rate:,.0f}/s", err=True, nl=False)

"""`raylog produce`: records from standard input or a file."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, parse_pairs
from raylog.cli.output import print_done

if TYPE_CHECKING:
    from raylog.client import BlockingProducer

_CHUNK_BYTES = 256 * 1024
_LINGER_S = 0.05
"""Silence of the input after which what has come so far is sent."""
_PROGRESS_S = 0.5
_PROGRESS_RECORDS = 4_096
_EXPECTED_JSON = "expected a JSON object a line"


class CodecName(StrEnum):
    """Compression of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Who must have a record before it counts as written."""

    NOBODY = "0"
    LEADER = "1"
    ALL = "all"


class Line(NamedTuple):
    """One record as it was read, in the order of `BlockingProducer.send`."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []  # noqa: RUF012 - a tuple's default, never changed
    timestamp_ms: int | None = None
    partition: int | None = None


Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Where the records go.", autocompletion=complete_topics),
]
File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="Read from here instead of standard input.", exists=True),
]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", help="What ends the key on each line.")
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")]
Header = Annotated[
    list[str] | None, typer.Option("--header", "-H", help="NAME=VALUE on every record.")
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", help="Default: by key, else in turn.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Lines are records as `raylog consume --json` prints.")
]
Null = Annotated[bool, typer.Option("--null", "-Z", help="Empty values are null.")]
Compression = Annotated[CodecName, typer.Option("--codec", "-z", help="Compression.")]
Acknowledged = Annotated[
    Acks,
    typer.Option("--acks", "-a", help="Who must have a record before it counts as written."),
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
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write records: one a line, from standard input or a file."""
    from raylog.client import BlockingClient, Codec, ProducerSettings

    if as_json and (key_separator or key):
        raise typer.BadParameter("with --json, keys are part of the lines")
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
    with BlockingClient(bootstrap) as client, client.producer(settings) as producer:
        feed = _Feed(producer, topic)
        with _open(file) as source:
            for line in read_lines(source, producer.flush):
                if as_json:
                    feed.send(parse_json(line))
                else:
                    feed.send(parse_line(line, fixed, separator, null=null))
        producer.flush()
        feed.finish()


def parse_line(line: bytes, fixed: Line, separator: bytes | None, *, null: bool) -> Line:
    """One line as a record: [KEY SEPARATOR] VALUE."""
    key = fixed.key
    value: bytes | None = line
    if separator is not None:
        key, found, value = line.partition(separator)
        if not found:
            raise CommandFailed(f"expected {separator!r} after the key, found {line[:80]!r}")
    if null and not value:
        value = None
    return Line(value, key, fixed.headers, None, fixed.partition)


def parse_json(line: bytes) -> Line:
    """A record as `raylog consume --json` prints it; only "value" is looked for, all else may lack.

    Text is UTF-8; bytes that are no text stand as base64 under "key_base64", "value_base64".
    """
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise CommandFailed(f"{error}; {_EXPECTED_JSON}, found {line[:80]!r}") from error
    if not isinstance(fields, dict):
        raise CommandFailed(f"{_EXPECTED_JSON}, found {line[:80]!r}")
    headers = fields.get("headers") or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Line(
        _bytes_of(fields, "value"),
        _bytes_of(fields, "key"),
        [(str(name), None if value is None else str(value).encode()) for name, value in pairs],
        fields.get("timestamp"),
        fields.get("partition"),
    )


def _bytes_of(fields: dict[str, object], name: str) -> bytes | None:
    """A key or value; JSON that is no string is kept as JSON text."""
    import base64

    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(str(encoded))
    found = fields.get(name)
    if found is None:
        return None
    text = found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))
    return text.encode()


def read_lines(source: IO[bytes], idle: object) -> Iterator[bytes]:
    """Lines without their ends; `idle` is called when nothing more came for a moment."""
    assert callable(idle)
    descriptor = source.fileno()
    rest = b""
    while True:
        if not select.select([descriptor], [], [], _LINGER_S)[0]:
            idle()
            select.select([descriptor], [], [])
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


def _open(file: Path | None) -> IO[bytes]:
    """The input; standard input stays open."""
    if file is not None:
        return file.open("rb")
    return os.fdopen(os.dup(sys.stdin.fileno()), "rb")


class _Feed:
    """Sends lines and tells how far it is."""

    def __init__(self, producer: BlockingProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._started = self._told = time.monotonic()
        self._count = 0
        self._shows_progress = sys.stderr.isatty() and not sys.stdin.isatty()

    def send(self, line: Line) -> None:
        """Hand one record to the producer."""
        self._producer.send(self._topic, *line)
        self._count += 1
        if self._count % _PROGRESS_RECORDS == 0 and self._shows_progress:
            self._tell()

    def finish(self) -> None:
        """Sum up."""
        seconds = time.monotonic() - self._started
        end = "\r" if self._shows_progress else ""
        count = self._producer.delivered_count
        print_done(f"{end}{count} records to {self._topic} in {seconds:.1f} s")

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told >= _PROGRESS_S:
            self._told = now
            rate = self._count / (now - self._started)
            typer.echo(f"\r{self._count} records, {rate:,.0f}/s", err=True, nl=False)

"""Formats of keys and values on the command line: text, JSON, and schemas of a registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from raylog.client.schemas.registry import SchemaRegistry
    from raylog.client.schemas.text import SchemaFormat
    from raylog.client.serializers import Headers

Reading = Callable[[str, bytes, "Headers"], object]
"""(topic, bytes of a key or value, headers) -> what json.dumps takes."""
Writing = Callable[[str, bytes], bytes]
"""(topic, text) -> bytes of a key or value."""


class Format(StrEnum):
    """How a key or value is encoded."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    JSON_SCHEMA = "json-schema"
    PROTOBUF = "protobuf"


_OF_REGISTRY = (Format.AVRO, Format.JSON_SCHEMA, Format.PROTOBUF)

KeyFormat = Annotated[Format, typer.Option("--key-format", help="Format of the keys.")]
ValueFormat = Annotated[Format, typer.Option("--value-format", help="Format of the values.")]
Registry = Annotated[
    str | None,
    typer.Option(
        "--registry",
        envvar="RAYLOG_REGISTRY",
        metavar="URL",
        help="Schema registry for avro, json-schema and protobuf: http://HOST:PORT, or with a "
        "login http://USER:PASSWORD@HOST:PORT.",
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        exists=True,
        dir_okay=False,
        help="File with the schema of the values; the command registers it. Default: the topic's "
        "latest schema.",
    ),
]
KeySchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--key-schema", exists=True, dir_okay=False, help="File with the schema of the keys."
    ),
]
Message = Annotated[
    str | None,
    typer.Option(
        "--message",
        help="Message type in the .proto schema of the values. Default: the first one.",
    ),
]


class NotOfFormat(ValueError):
    """A key or value is not in its format. The message says what was expected and found."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Functions that read keys and values; None leaves the bytes unchanged."""

    key: Reading | None = None
    value: Reading | None = None
    key_is_json: bool = False
    """Whether `key` returns JSON values, so that text is printed in quotes."""
    value_is_json: bool = False

    def __bool__(self) -> bool:
        """Whether keys or values are read."""
        return self.key is not None or self.value is not None


@dataclass(frozen=True, slots=True)
class Writers:
    """Functions that write keys and values; None leaves the bytes unchanged."""

    key: Writing | None = None
    value: Writing | None = None
    key_is_json: bool = False
    """Whether the text that `key` takes is JSON."""
    value_is_json: bool = False


PLAIN = Writers()
"""Leaves all bytes unchanged."""


def readers(key: Format, value: Format, registry: str | None, open_until: ExitStack) -> Readers:
    """Return functions that read the formats. `open_until` closes the registry's client."""
    client = _client((key, value), registry, open_until)
    return Readers(
        _reader(key, client, is_key=True),
        _reader(value, client, is_key=False),
        _is_json(key),
        _is_json(value),
    )


def _is_json(form: Format) -> bool:
    """Whether text of a format is JSON."""
    return form not in (Format.BYTES, Format.STRING)


def _reader(form: Format, client: SchemaRegistry | None, *, is_key: bool) -> Reading | None:
    if form is Format.BYTES:
        return None
    if form is Format.STRING:
        return lambda topic, data, headers: data.decode("utf-8", "replace")
    if form is Format.JSON:
        return _json_of
    assert client is not None
    from raylog.client.schemas.text import to_json

    read = to_json(cast("SchemaFormat", form.value), client, key=is_key)
    return _explained(read)


def _explained(read: Reading) -> Reading:
    from raylog.client.schemas.errors import DecodingFailed

    def reading(topic: str, data: bytes, headers: Headers) -> object:
        try:
            return read(topic, data, headers)
        except DecodingFailed as failure:
            raise NotOfFormat(str(failure)) from failure

    return reading


def _json_of(topic: str, data: bytes, headers: Headers) -> object:
    try:
        return cast(object, json.loads(data))
    except (ValueError, RecursionError) as failure:
        raise NotOfFormat(f"expected JSON, found {data[:80]!r}: {failure}") from failure


def writers(
    key: Format,
    value: Format,
    registry: str | None,
    schemas: tuple[Path | None, Path | None],
    message: str | None,
    open_until: ExitStack,
) -> Writers:
    """Return functions that write the formats; `schemas` are those of the key and the value.

    `open_until` closes the registry's client.
    """
    for form, schema, option in (
        (key, schemas[0], "--key-schema"),
        (value, schemas[1], "--schema"),
    ):
        if schema is not None and form not in _OF_REGISTRY:
            raise typer.BadParameter(f"{option} needs one of the formats {', '.join(_OF_REGISTRY)}")
    client = _client((key, value), registry, open_until)
    return Writers(
        _writer(key, client, schemas[0], None, is_key=True),
        _writer(value, client, schemas[1], message, is_key=False),
        _is_json(key),
        _is_json(value),
    )


def _writer(
    form: Format,
    client: SchemaRegistry | None,
    schema: Path | None,
    message: str | None,
    *,
    is_key: bool,
) -> Writing | None:
    if form is Format.BYTES:
        return None
    if form is Format.STRING:
        return _checked_text
    if form is Format.JSON:
        return _checked_json
    from raylog.client.schemas.errors import EncodingFailed
    from raylog.client.schemas.text import from_text

    assert client is not None
    write = from_text(cast("SchemaFormat", form.value), client, schema, message=message, key=is_key)

    def writing(topic: str, text: bytes) -> bytes:
        try:
            return write(topic, text)
        except EncodingFailed as failure:
            raise NotOfFormat(str(failure)) from failure

    return writing


def _checked_text(topic: str, text: bytes) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError as failure:
        raise NotOfFormat(f"expected UTF-8, found {text[:80]!r}") from failure
    return text


def _checked_json(topic: str, text: bytes) -> bytes:
    _json_of(topic, text, ())
    return text


def _client(
    forms: tuple[Format, Format], registry: str | None, open_until: ExitStack
) -> SchemaRegistry | None:
    """Return the registry's client; None if no format needs it."""
    if not any(form in _OF_REGISTRY for form in forms):
        return None
    if registry is None:
        raise typer.BadParameter(
            f"the formats {', '.join(_OF_REGISTRY)} need a schema registry: --registry URL"
        )
    from raylog.client.schemas.registry import SchemaRegistry

    return open_until.enter_context(SchemaRegistry(registry))

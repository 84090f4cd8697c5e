"""Values with schemas as text for the command line: one JSON document per value.

| format | JSON |
|---|---|
| Avro | Avro's own JSON encoding: a union names its branch, `{"int": 5}`; bytes are Latin-1 |
| JSON Schema | the value itself |
| Protobuf | protobuf's own JSON, with the names of the .proto file |
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from raylog.client.io import run_blocking
from raylog.client.schemas.errors import EncodingFailed, SchemaError
from raylog.client.schemas.registry import SchemaRegistry
from raylog.client.schemas.subjects import topic_name
from raylog.client.serializers import Headers

if TYPE_CHECKING:
    from google.protobuf.message import Message

SchemaFormat = Literal["avro", "json-schema", "protobuf"]
FromText = Callable[[str, bytes], bytes]
"""Converts (topic, JSON) to the bytes of a record."""
ToJson = Callable[[str, bytes, Headers], object]
"""Converts (topic, bytes of a record, headers) to what json.dumps accepts."""


def from_text(
    form: SchemaFormat,
    registry: SchemaRegistry,
    schema: Path | None,
    *,
    message: str | None = None,
    key: bool = False,
) -> FromText:
    """Return a function that writes JSON with a file's schema, which it registers, or the latest.

    `message` names a message of a .proto file; None means its first message.
    """
    if form == "protobuf":
        return _ProtobufFromText(registry, schema, message, key=key)
    if form == "avro":
        return _avro_from_text(registry, schema, key=key)
    return _json_from_text(registry, schema, key=key)


def to_json(form: SchemaFormat, registry: SchemaRegistry, *, key: bool = False) -> ToJson:
    """Return a function that reads records as JSON, by the schema that each was written with."""
    if form == "protobuf":
        return _protobuf_to_json(registry, key=key)
    if form == "avro":
        return _avro_to_json(registry, key=key)
    from raylog.client.schemas.json_schema import JsonSchemaDeserializer

    return JsonSchemaDeserializer(registry, key=key)


def _options(schema: Path | None, *, key: bool) -> dict[str, Any]:
    """Return options that register a given schema, or else use the latest one."""
    given = schema is not None
    return {"key": key, "auto_register_schemas": given, "use_latest_version": not given}


def _read(schema: Path) -> str:
    try:
        return schema.read_text()
    except (OSError, UnicodeDecodeError) as failure:
        raise SchemaError(f"expected a schema in {schema}, found none: {failure}") from failure


def _avro_from_text(registry: SchemaRegistry, schema: Path | None, *, key: bool) -> FromText:
    from fastavro import json_reader

    from raylog.client.schemas.avro import AvroSerializer, own_schema, parsed

    own = None if schema is None else own_schema(_read(schema))
    serialize: AvroSerializer[Any] = AvroSerializer(registry, own, **_options(schema, key=key))

    def write(topic: str, text: bytes) -> bytes:
        using = own or registry.latest(_subject(topic, key=key)).schema
        tree = run_blocking(parsed(registry.core, using))
        try:
            (value,) = json_reader(io.StringIO(text.decode()), tree)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as failure:
            raise EncodingFailed(
                "expected Avro's JSON encoding of one value of the schema (a union names its "
                f'branch: {{"int": 5}}), found {text[:80]!r}: {failure}'
            ) from failure
        return serialize(topic, value)

    return write


def _avro_to_json(registry: SchemaRegistry, *, key: bool) -> ToJson:
    from fastavro import json_writer

    from raylog.client.schemas.avro import AvroDeserializer, Parsed

    class AsJson(AvroDeserializer[object]):
        """Converts values to JSON by the schema they were read with."""

        def _maker(self, tree: Parsed) -> Callable[[object], object]:
            def made(value: object) -> object:
                out = io.StringIO()
                json_writer(out, tree, [value])
                return json.loads(out.getvalue())

            return made

    return AsJson(registry, key=key)


def _json_from_text(registry: SchemaRegistry, schema: Path | None, *, key: bool) -> FromText:
    from raylog.client.schemas.json_schema import JsonSchemaSerializer

    own = None if schema is None else _read(schema)
    serialize: JsonSchemaSerializer[object] = JsonSchemaSerializer(
        registry, own, **_options(schema, key=key)
    )

    def write(topic: str, text: bytes) -> bytes:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as failure:
            raise EncodingFailed(f"expected JSON, found {text[:80]!r}: {failure}") from failure
        return serialize(topic, value)

    return write


class _ProtobufFromText:
    """Writes messages from JSON; their class is created once the topic is known."""

    def __init__(
        self, registry: SchemaRegistry, schema: Path | None, message: str | None, *, key: bool
    ) -> None:
        self._registry = registry
        self._schema = schema
        self._message = message
        self._is_key = key
        self._writers: dict[str, Callable[[str, Message], bytes]] = {}
        self._kinds: dict[str, type[Message]] = {}

    def __call__(self, topic: str, text: bytes) -> bytes:
        """Return the bytes of one message."""
        from google.protobuf.json_format import Parse, ParseError

        from raylog.client.schemas.protobuf import ProtobufSerializer

        if topic not in self._writers:
            kind = self._kinds[topic] = self._kind(topic)
            self._writers[topic] = ProtobufSerializer(
                self._registry, kind, **_options(self._schema, key=self._is_key)
            )
        try:
            message = Parse(text, self._kinds[topic]())
        except (ParseError, ValueError, RecursionError) as failure:
            raise EncodingFailed(
                f"expected JSON of the message {self._kinds[topic].DESCRIPTOR.full_name}, found "
                f"{text[:80]!r}: {failure}"
            ) from failure
        return self._writers[topic](topic, message)

    def _kind(self, topic: str) -> type[Message]:
        from google.protobuf.message_factory import GetMessageClass

        from raylog.client.schemas.protobuf_files import file_of, from_path, message_named

        if self._schema is not None:
            file = from_path(self._schema)
        else:
            core = self._registry.core
            latest = run_blocking(core.latest(_subject(topic, key=self._is_key), "serialized"))
            file = run_blocking(file_of(core, latest.schema))
        return GetMessageClass(message_named(file, self._message))


def _protobuf_to_json(registry: SchemaRegistry, *, key: bool) -> ToJson:
    from google.protobuf.json_format import MessageToDict

    from raylog.client.schemas.protobuf import ProtobufDeserializer

    deserialize: ProtobufDeserializer[Message] = ProtobufDeserializer(registry, key=key)

    def read(topic: str, data: bytes, headers: Headers) -> object:
        message = deserialize(topic, data, headers)
        return MessageToDict(message, preserving_proto_field_name=True)

    return read


def _subject(topic: str, *, key: bool) -> str:
    """Return the subject in which the command line looks for a topic's latest schema."""
    subject = topic_name(topic, key, None)
    assert subject is not None
    return subject

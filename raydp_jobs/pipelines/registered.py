"""Values in a schema registry's wire format, in Spark's tasks.

The classes here are sent to tasks as a few strings; each process has one client per registry, which
caches schemas. An invalid value yields a reason; a registry that does not answer fails the task.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.extras import MissingExtra
from raylog.raydp_jobs.pipelines.avro import AvroSchema
from raylog.raydp_jobs.pipelines.spec import BadSpec
from raylog.sink.rows import BadRow

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from pyspark.sql import Row

    from raylog.client.schemas import Schema, SchemaRegistry

Form = Literal["avro", "json-schema", "protobuf"]
_REASON_CHARS_MAX = 200
_TYPES: dict[Form, Literal["AVRO", "JSON", "PROTOBUF"]] = {
    "avro": "AVRO",
    "json-schema": "JSON",
    "protobuf": "PROTOBUF",
}


@cache
def client_of(url: str) -> SchemaRegistry:
    """Return this process's client for a registry."""
    from raylog.client.schemas import SchemaRegistry

    return SchemaRegistry(url)


@dataclass(frozen=True, slots=True)
class ValuesOf:
    """Decodes values, each with the schema that it was written with."""

    form: Form
    url: str
    reader: str | None = None
    """Avro: the schema to which values are resolved. Protobuf: the message of the columns."""
    schema_id: int = 0
    """Protobuf: the schema with that message."""

    def decode(self, value: bytes | None, topic: str) -> tuple[Any, str | None]:
        """Decode a value: return its record (for JSON its bytes), or why there is none."""
        from raylog.client.schemas import DecodingFailed, InvalidSchema, SchemaNotFound

        if value is None:
            return None, "there is no value"
        read = _reader(self)
        try:
            return read(topic, bytes(value)), None
        except (
            DecodingFailed,
            SchemaNotFound,
            InvalidSchema,
            ValueError,
            OverflowError,
        ) as failure:
            return None, str(failure)[:_REASON_CHARS_MAX]


@cache
def _reader(values: ValuesOf) -> Callable[[str, bytes], Any]:
    """Create the decoder once per process."""
    registry = client_of(values.url)
    if values.form == "avro":
        from raylog.client.schemas import AvroDeserializer

        read = AvroSchema(values.reader or "").read
        return AvroDeserializer(registry, values.reader, from_dict=read)
    if values.form == "json-schema":
        return _json_reader(registry)
    return _protobuf_reader(registry, values)


def _json_reader(registry: SchemaRegistry) -> Callable[[str, bytes], bytes]:
    """Validate values, and return them as they are: numbers may exceed Python's precision."""
    from raylog.client.schemas import JsonSchemaDeserializer
    from raylog.client.schemas.framing import read_frame

    validate = JsonSchemaDeserializer(registry)

    def read(topic: str, data: bytes) -> bytes:
        validate(topic, data)
        return data[read_frame(data, (), is_key=False, indexed=False).start :]

    return read


def _protobuf_reader(registry: SchemaRegistry, values: ValuesOf) -> Callable[[str, bytes], Any]:
    """Read messages as rows; the reader raises ValueError for those that are not of the columns."""
    from raylog.client.schemas import ProtobufDeserializer
    from raylog.raydp_jobs.pipelines.protobuf_rows import row_of

    columns = _message_in(registry, values.schema_id, values.reader)
    messages = ProtobufDeserializer(registry)

    def read(topic: str, data: bytes) -> dict[str, Any]:
        message = messages(topic, data)
        name = message.DESCRIPTOR.full_name
        if name != columns.full_name:
            raise ValueError(f"expected a message {columns.full_name}, found {name}")
        return row_of(message, columns)

    return read


@dataclass(frozen=True, slots=True)
class RowsAs:
    """Encodes rows with a schema that is already registered."""

    form: Form
    url: str
    topic: str
    schema_id: int
    subject: str
    message: str | None = None

    def encode(self, row: Row | str | None) -> bytes | None:
        """Encode a row, or the JSON of one, as a value; raise BadRow."""
        from raylog.client.schemas import EncodingFailed

        if row is None:
            return None
        value = row if isinstance(row, str) else row.asDict(recursive=True)
        try:
            return _writer(self)(value)
        except (EncodingFailed, TypeError, ValueError, KeyError, AttributeError) as failure:
            shown = str(value)[:_REASON_CHARS_MAX]
            raise BadRow(f"row {shown} does not fit the schema: {failure}") from failure


@cache
def _writer(rows: RowsAs) -> Callable[[Any], bytes]:
    """Create the encoder once per process."""
    registry = client_of(rows.url)
    options: dict[str, Any] = {
        "auto_register_schemas": False,
        "use_schema_id": rows.schema_id,
        "subject_name_strategy": lambda topic, is_key, name: rows.subject,
    }
    if rows.form == "avro":
        from raylog.client.schemas import AvroSerializer

        found = Found(rows.schema_id, run_blocking(registry.core.schema(rows.schema_id)), registry)
        checked = AvroSchema(found.avro_text("sink.registry")).checked
        avro = AvroSerializer(registry, to_dict=checked, strict=True, **options)
        return lambda value: avro(rows.topic, value)
    if rows.form == "json-schema":
        from raylog.client.schemas import JsonSchemaSerializer
        from raylog.client.schemas.framing import PREFIX_BYTES

        as_json = JsonSchemaSerializer(registry, **options)
        return lambda text: as_json(rows.topic, json.loads(text))[:PREFIX_BYTES] + text.encode()
    from google.protobuf.message_factory import GetMessageClass

    from raylog.client.schemas import ProtobufSerializer
    from raylog.raydp_jobs.pipelines.protobuf_rows import fill

    kind = GetMessageClass(_message_in(registry, rows.schema_id, rows.message))
    messages = ProtobufSerializer(registry, kind, **options)
    return lambda value: messages(rows.topic, fill(kind(), value))


def _message_in(registry: SchemaRegistry, schema_id: int, name: str | None) -> Descriptor:
    """Return a message of the schema with this id."""
    schema = run_blocking(registry.core.schema(schema_id, None, "serialized"))
    return message_of(registry, schema, name)


def message_of(registry: SchemaRegistry, schema: Schema, name: str | None) -> Descriptor:
    """Return the named message of a registered file, or its first message."""
    from raylog.client.schemas.protobuf_files import file_of, message_named

    return message_named(run_blocking(file_of(registry.core, schema)), name)


@dataclass(frozen=True, slots=True)
class Found:
    """A schema of the registry, as of the start of a pipeline."""

    id: int
    schema: Schema
    registry: SchemaRegistry

    def avro_text(self, field: str) -> str:
        """Return an Avro record schema as text, with its references inlined; raise BadSpec."""
        from raylog.client.schemas.avro import parsed

        tree = run_blocking(parsed(self.registry.core, self.schema))
        if not isinstance(tree, dict) or tree.get("type") != "record":
            raise BadSpec(f"{field}: expected an Avro record, found {self.schema.text[:40]}")
        return json.dumps({name: part for name, part in tree.items() if not name.startswith("__")})


def schema_in(url: str, form: Form, subject: str, file: Path | None, field: str) -> Found:
    """Return a subject's latest schema, or register and return that of a file; raise BadSpec."""
    try:
        registry = client_of(url)
        if file is None:
            layout = "serialized" if form == "protobuf" else None
            latest = run_blocking(registry.core.latest(subject, layout))
        else:
            latest = registry.register(subject, _schema(form, file))
    except (ClientError, MissingExtra, OSError, UnicodeDecodeError) as failure:
        raise BadSpec(f"{field}: {failure}") from failure
    if latest.schema.type != _TYPES[form]:
        raise BadSpec(
            f"{field}: expected a schema of the type {_TYPES[form]} in {subject}, found "
            f"{latest.schema.type}"
        )
    return Found(latest.id, latest.schema, registry)


def _schema(form: Form, file: Path) -> Schema:
    from raylog.client.schemas import Schema

    if form == "protobuf":
        from raylog.client.schemas.protobuf_files import from_path, text_of

        return Schema(text_of(from_path(file)), "PROTOBUF")
    return Schema(file.read_text(encoding="utf-8"), _TYPES[form])

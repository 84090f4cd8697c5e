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
    """Avro: the reader's schema, to which values are resolved."""

    def decode(self, value: bytes | None, topic: str) -> tuple[Any, str | None]:
        """Decode a value: return its record (for JSON its text), or why there is none."""
        from raylog.client.schemas import DecodingFailed, InvalidSchema, SchemaNotFound

        if value is None:
            return None, "there is no value"
        try:
            return _reader(self)(topic, bytes(value)), None
        except (DecodingFailed, SchemaNotFound, InvalidSchema) as failure:
            return None, str(failure)[:_REASON_CHARS_MAX]


@cache
def _reader(values: ValuesOf) -> Callable[[str, bytes], Any]:
    """Create the decoder once per process."""
    registry = client_of(values.url)
    if values.form == "avro":
        from raylog.client.schemas import AvroDeserializer

        return AvroDeserializer(registry, values.reader)
    if values.form == "json-schema":
        from raylog.client.schemas import JsonSchemaDeserializer

        return JsonSchemaDeserializer(registry, from_dict=json.dumps)
    from raylog.client.schemas import ProtobufDeserializer
    from raylog.raydp_jobs.pipelines.protobuf_rows import row_of

    messages = ProtobufDeserializer(registry)
    return lambda topic, data: row_of(messages(topic, data))


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
        value = json.loads(row) if isinstance(row, str) else row.asDict(recursive=True)
        try:
            return _writer(self)(value)
        except (EncodingFailed, TypeError, ValueError, KeyError) as failure:
            shown = json.dumps(value, default=str)[:_REASON_CHARS_MAX]
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

        avro = AvroSerializer(registry, strict=True, **options)
        return lambda value: avro(rows.topic, value)
    if rows.form == "json-schema":
        from raylog.client.schemas import JsonSchemaSerializer

        as_json = JsonSchemaSerializer(registry, **options)
        return lambda value: as_json(rows.topic, value)
    from google.protobuf.message_factory import GetMessageClass

    from raylog.client.schemas import ProtobufSerializer
    from raylog.raydp_jobs.pipelines.protobuf_rows import fill

    schema = run_blocking(registry.core.schema(rows.schema_id, None, "serialized"))
    kind = GetMessageClass(message_of(registry, schema, rows.message))
    messages = ProtobufSerializer(registry, kind, **options)
    return lambda value: messages(rows.topic, fill(kind(), value))


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

"""Avro in the wire format of a schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, overload

from raylog.client.schemas.avro_walk import needs_walk
from raylog.client.schemas.errors import DecodingFailed, EncodingFailed, SchemaError
from raylog.client.schemas.framing import Frame
from raylog.client.schemas.model import Schema
from raylog.client.schemas.references import resolved
from raylog.client.schemas.registry import RegistryCore
from raylog.client.schemas.serde import AnyRegistry, OwnSchemaSerializer, SchemaDeserializer
from raylog.extras import needs

with needs("schemas", "Avro"):
    import fastavro.read
    import fastavro.repository
    import fastavro.schema
    from fastavro import schemaless_reader, schemaless_writer

T = TypeVar("T")
R = TypeVar("R")

Parsed = Any
"""What fastavro makes of a schema: JSON in one of its shapes."""


class AvroSerializer(OwnSchemaSerializer[T]):
    """Writes values in Avro: what fastavro takes, or what `to_dict` makes of a value.

    `schema` is a schema in JSON, or a Schema with references. It may lack where the registry's is
    used. Logical types are Python's: datetime, date, time, Decimal, UUID. `strict` refuses records
    with fields that the schema has not, or without one that it has.
    Other arguments are those of SchemaSerializer.
    """

    format_name = "AVRO"

    @overload
    def __init__(
        self: AvroSerializer[Any],
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        to_dict: None = None,
        strict: bool = False,
        **options: Any,
    ) -> None: ...

    @overload
    def __init__(
        self,
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        to_dict: Callable[[T], object],
        strict: bool = False,
        **options: Any,
    ) -> None: ...

    def __init__(
        self,
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        to_dict: Callable[[T], object] | None = None,
        strict: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(registry, own_schema(schema), to_dict, **options)
        self._strict = strict

    async def _record_name(self) -> str | None:
        if self._schema is None:
            return None
        return name_of(await parsed(self._core, self._schema))

    async def _writer(self, schema: Schema) -> Callable[[T], bytes]:
        tree = await parsed(self._core, schema)
        plain = _is_bytes(tree)

        def write(data: T) -> bytes:
            try:
                value = data if self._to_dict is None else self._to_dict(data)
                if plain:
                    return _as_bytes(value)
                out = io.BytesIO()
                schemaless_writer(out, tree, value, strict=self._strict)
                return out.getvalue()
            except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as failure:
                raise EncodingFailed(
                    f"the value does not fit its Avro schema {name_of(tree) or ''}: {failure!r}"
                ) from failure

        return write


class AvroDeserializer(SchemaDeserializer[R]):
    """Reads Avro: dicts and Python's types, or what `from_dict` makes of them.

    `schema` is the reader's schema: what was written is resolved to it, as Avro has it (defaults,
    aliases, promotions). Other arguments are those of SchemaDeserializer.
    """

    format_name = "AVRO"

    @overload
    def __init__(
        self: AvroDeserializer[Any],
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        from_dict: None = None,
        **options: Any,
    ) -> None: ...

    @overload
    def __init__(
        self,
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        from_dict: Callable[[Any], R],
        **options: Any,
    ) -> None: ...

    def __init__(
        self,
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        from_dict: Callable[[Any], R] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(registry, **options)
        self._schema = own_schema(schema)
        self._from_dict = from_dict

    async def _name_in(self, schema: Schema, frame: Frame) -> str | None:
        return name_of(await parsed(self._core, schema))

    async def _reader(
        self, written: Schema, latest: Schema | None, frame: Frame
    ) -> Callable[[bytes, int], R]:
        tree = await parsed(self._core, written)
        wanted = latest or self._schema
        reader = None if wanted is None else await parsed(self._core, wanted)
        plain, check = _is_bytes(tree), needs_walk(tree)
        made = self._maker(tree if reader is None else reader)

        def read(data: bytes, start: int) -> R:
            try:
                if plain:
                    return made(data[start:])
                if check is not None:
                    check(data, start)
                source = io.BytesIO(data)
                source.seek(start)
                value = schemaless_reader(source, tree, reader)
            except _READING as failure:
                raise DecodingFailed(
                    f"expected a value of the Avro schema {name_of(tree) or ''} (id "
                    f"{frame.guid or frame.id}), found {failure!r}"
                ) from failure
            if source.tell() != len(data):
                raise DecodingFailed(
                    f"expected the value of the Avro schema {name_of(tree) or ''} (id "
                    f"{frame.guid or frame.id}) to end the record, found "
                    f"{len(data) - source.tell()} bytes after it"
                )
            return made(value)

        return read

    def _maker(self, tree: Parsed) -> Callable[[object], R]:
        """What values of a schema become."""
        from_dict = self._from_dict
        return (lambda value: cast(R, value)) if from_dict is None else from_dict


_READING = (
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    MemoryError,
    fastavro.schema.SchemaParseException,
    fastavro.read.SchemaResolutionError,
)
"""What fastavro raises for bytes that are not of the schema."""


def own_schema(schema: str | Schema | None) -> Schema | None:
    """A schema as it is registered: one of a primitive type is written as an object."""
    if not isinstance(schema, str):
        return schema
    text = schema.strip()
    return Schema(text if text[:1] in ("{", "[") else f'{{"type":{text}}}', "AVRO")


class _Repository(fastavro.repository.AbstractSchemaRepository):
    """Where fastavro finds schemas by name."""

    def __init__(self, schemas: Mapping[str, object]) -> None:
        self._schemas = schemas

    def load(self, name: str) -> object:
        """The schema of a name."""
        if name not in self._schemas:
            raise fastavro.repository.SchemaRepositoryError(f"no reference brings {name}")
        return json.loads(json.dumps(self._schemas[name]))  # fastavro changes what it gets


_ROOT = "$root"


async def parsed(core: RegistryCore, schema: Schema) -> Parsed:
    """A schema as fastavro has it, with those that it refers to. Raises SchemaError."""
    try:
        schemas: dict[str, object] = {}
        for reference, one in await resolved(core, schema):
            tree = json.loads(one.text)
            schemas[reference.name] = tree
            schemas.setdefault(_full_name(tree) or reference.name, tree)
        schemas[_ROOT] = json.loads(schema.text)
        return fastavro.schema.load_schema(_ROOT, repo=_Repository(schemas))
    except (ValueError, TypeError, KeyError, RecursionError) as failure:
        raise _unusable(schema, failure) from failure
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        fastavro.repository.SchemaRepositoryError,
    ) as failure:
        raise _unusable(schema, failure) from failure


def _unusable(schema: Schema, failure: Exception) -> SchemaError:
    return SchemaError(f"expected an Avro schema, found {schema.text[:80]!r}: {failure!r}")


def _full_name(tree: object) -> str | None:
    """The name of a schema that is not parsed yet."""
    if not isinstance(tree, dict) or "name" not in tree:
        return None
    name, namespace = str(tree["name"]), tree.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def name_of(tree: Parsed) -> str | None:
    """The full name of a parsed schema; a primitive's is its type, a union has none."""
    if isinstance(tree, dict):
        return str(tree.get("name", tree["type"]))
    return None


def _is_bytes(tree: Parsed) -> bool:
    return tree == "bytes" or (
        isinstance(tree, dict) and tree.get("type") == "bytes" and "logicalType" not in tree
    )


def _as_bytes(value: object) -> bytes:
    """A value of the schema `bytes`, which is written without its length."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"expected bytes, found {type(value).__name__}")
    return bytes(value)

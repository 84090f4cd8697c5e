"""JSON Schema in the wire format of a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from raylog.client.schemas.errors import DecodingFailed, EncodingFailed, SchemaError
from raylog.client.schemas.framing import Frame
from raylog.client.schemas.model import Schema
from raylog.client.schemas.references import resolved
from raylog.client.schemas.registry import RegistryCore
from raylog.client.schemas.serde import AnyRegistry, OwnSchemaSerializer, SchemaDeserializer
from raylog.extras import needs

with needs("schemas", "JSON Schema"):
    import jsonschema.validators
    import referencing
    import referencing.exceptions
    from jsonschema.exceptions import SchemaError as MalformedSchema
    from jsonschema.exceptions import ValidationError
    from referencing.jsonschema import DRAFT7

T = TypeVar("T")
R = TypeVar("R")

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
Check = Callable[[object], None]


class JsonSchemaSerializer(OwnSchemaSerializer[T]):
    """Writes values as JSON that a schema describes: what json takes, or what `to_dict` makes.

    `schema` is text, or a Schema with references; it may lack where the registry's is used.
    `validate` checks values before they are written. `$ref` is looked up in the schema and its
    references, never fetched from elsewhere. Other arguments are those of SchemaSerializer.
    """

    format_name = "JSON"

    @overload
    def __init__(
        self: JsonSchemaSerializer[Any],
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        to_dict: None = None,
        validate: bool = True,
        **options: Any,
    ) -> None: ...

    @overload
    def __init__(
        self,
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        to_dict: Callable[[T], object],
        validate: bool = True,
        **options: Any,
    ) -> None: ...

    def __init__(
        self,
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        to_dict: Callable[[T], object] | None = None,
        validate: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(registry, own_schema(schema), to_dict, **options)
        self._validates = validate

    async def _record_name(self) -> str | None:
        if self._schema is None:
            return None
        await validator(self._core, self._schema)  # says early what is wrong with it
        return title_of(self._schema)

    async def _writer(self, schema: Schema) -> Callable[[T], bytes]:
        check = await validator(self._core, schema) if self._validates else None

        def write(data: T) -> bytes:
            value = data if self._to_dict is None else self._to_dict(data)
            try:
                if check is not None:
                    check(value)
                return _encode(value).encode()
            except (ValueError, TypeError, RecursionError) as failure:
                raise EncodingFailed(f"the value is not of its JSON Schema: {failure}") from failure

        return write


class JsonSchemaDeserializer(SchemaDeserializer[R]):
    """Reads JSON: dicts, lists and the like, or what `from_dict` makes of them.

    `validate` checks values against `schema` if there is one, else against the one that they were
    written with. Other arguments are those of SchemaDeserializer.
    """

    format_name = "JSON"

    @overload
    def __init__(
        self: JsonSchemaDeserializer[Any],
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        from_dict: None = None,
        validate: bool = True,
        **options: Any,
    ) -> None: ...

    @overload
    def __init__(
        self,
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        from_dict: Callable[[Any], R],
        validate: bool = True,
        **options: Any,
    ) -> None: ...

    def __init__(
        self,
        registry: AnyRegistry,
        schema: str | Schema | None = None,
        *,
        from_dict: Callable[[Any], R] | None = None,
        validate: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(registry, **options)
        self._schema = own_schema(schema)
        self._from_dict = from_dict
        self._validates = validate

    async def _name_in(self, schema: Schema, frame: Frame) -> str | None:
        return title_of(schema)

    async def _reader(
        self, written: Schema, latest: Schema | None, frame: Frame
    ) -> Callable[[bytes, int], R]:
        wanted = latest or self._schema or written
        check = await validator(self._core, wanted) if self._validates else None

        def read(data: bytes, start: int) -> R:
            try:
                value = json.loads(data[start:])
                if check is not None:
                    check(value)
            except (ValueError, RecursionError) as failure:
                raise DecodingFailed(
                    f"expected JSON of the schema {frame.guid or frame.id}, found: {failure}"
                ) from failure
            return cast(R, value) if self._from_dict is None else self._from_dict(value)

        return read


def own_schema(schema: str | Schema | None) -> Schema | None:
    """A schema as it is registered."""
    return Schema(schema, "JSON") if isinstance(schema, str) else schema


def title_of(schema: Schema) -> str | None:
    """What stands for a record's name."""
    tree = json.loads(schema.text)
    title = tree.get("title") if isinstance(tree, dict) else None
    return title if isinstance(title, str) else None


class Mismatch(ValueError):
    """A value is not of its schema; the message says where."""


async def validator(core: RegistryCore, schema: Schema) -> Check:
    """What raises Mismatch for values that are not of a schema. Raises SchemaError."""
    try:
        known: referencing.Registry[Any] = referencing.Registry()
        for reference, one in await resolved(core, schema):
            resource = referencing.Resource.from_contents(
                json.loads(one.text), default_specification=DRAFT7
            )
            known = known.with_resource(reference.name, resource)
        tree = json.loads(schema.text)
        kind = jsonschema.validators.validator_for(tree)
        kind.check_schema(tree)
    except (ValueError, TypeError, RecursionError, MalformedSchema) as failure:
        raise SchemaError(
            f"expected a JSON Schema, found {schema.text[:80]!r}: {str(failure)[:200]}"
        ) from failure
    checking = kind(tree, registry=known)

    def check(value: object) -> None:
        try:
            checking.validate(value)
        except ValidationError as failure:
            raise Mismatch(f"{failure.json_path}: {failure.message[:400]}") from failure
        except referencing.exceptions.Unresolvable as failure:
            raise Mismatch(f"the schema refers to what no reference brings: {failure}") from failure

    return check

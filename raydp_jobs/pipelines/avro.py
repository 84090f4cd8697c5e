"""Avro values with fastavro: datums of one schema, without a prefix.

| Avro | Spark |
|---|---|
| boolean, int, long, float, double | boolean, int, bigint, float, double |
| string, enum | string |
| bytes, fixed | binary |
| date, timestamp-millis and -micros, decimal | date, timestamp, decimal |
| record, array, map | struct, array, map |
| union of null and one other type | that type, nullable |
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import types

from raylog.extras import MissingExtra, needs
from raylog.raydp_jobs.pipelines.spec import BadSpec
from raylog.sink.rows import BadRow

if TYPE_CHECKING:
    from pyspark.sql import Row

_REASON_CHARS_MAX = 200
_KEY_SHOWN = 40


@dataclass(slots=True)
class AvroSchema:
    """A schema of records; sent to tasks as text."""

    text: str
    _parsed: Any = field(default=None, repr=False)
    _columns: types.StructType | None = field(default=None, repr=False)

    @property
    def parsed(self) -> Any:
        """The schema as parsed by fastavro, with all names resolved."""
        if self._parsed is None:
            import fastavro

            self._parsed = fastavro.parse_schema(json.loads(self.text))
        return self._parsed

    def read(self, record: Any) -> Any:
        """Return a record that was read; raise ValueError for a decimal with too many digits."""
        return self.checked(record) if "decimal" in self.text else record

    def checked(self, record: Any) -> Any:
        """Return a record as fastavro should write it; raise ValueError if it does not fit.

        fastavro would write null as false and ignore `fold` in times. It also rounds decimals that
        it reads.
        """
        if self._columns is None:
            self._columns = spark_schema(self, "schema")
        return _checked(record, self._columns, "", is_nullable=False)

    def __reduce__(self) -> tuple[type[AvroSchema], tuple[str]]:
        return AvroSchema, (self.text,)

    def decode(self, value: bytes | None) -> tuple[Any, str | None]:
        """Decode a value: return its record, or the reason why there is none."""
        import fastavro

        if value is None:
            return None, "there is no value"
        stream = io.BytesIO(value)
        try:
            record = self.read(fastavro.schemaless_reader(stream, self.parsed, None))
        except Exception as failure:  # noqa: BLE001  # invalid data may raise anything
            said = f"{type(failure).__name__} {failure}".strip()[:_REASON_CHARS_MAX]
            return None, f"not Avro of the schema: {said}"
        left = len(value) - stream.tell()
        if left:
            return None, f"not Avro of the schema: {left} bytes are left over"
        return record, None

    def encode(self, row: Row | None) -> bytes | None:
        """Encode a row as a value; raise BadRow."""
        import fastavro

        if row is None:
            return None
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, self.parsed, self.checked(row), strict=True)
        except (TypeError, ValueError, OverflowError, KeyError, IndexError, AttributeError) as said:
            shown = json.dumps(row.asDict(recursive=True), default=str)[:_REASON_CHARS_MAX]
            raise BadRow(f"row {shown} does not fit the Avro schema: {said}") from said
        return stream.getvalue()


def read_schema(path: Path, field_name: str) -> AvroSchema:
    """Read a schema from a file; raise BadSpec naming the pipeline's field."""
    try:
        with needs("spark", f"{field_name}: Avro"):
            import fastavro
            from fastavro.schema import SchemaParseException, UnknownType
    except MissingExtra as missing:
        raise BadSpec(str(missing)) from None
    try:
        text = path.read_text(encoding="utf-8")
        found = fastavro.parse_schema(json.loads(text))
    except (OSError, ValueError, SchemaParseException, UnknownType) as failure:
        raise BadSpec(f"{field_name}: {failure}") from None
    if not isinstance(found, dict) or found.get("type") != "record":
        raise BadSpec(f"{field_name}: expected an Avro record, found {str(found)[:40]}")
    return AvroSchema(text)


def _checked(value: Any, kind: types.DataType, name: str, *, is_nullable: bool) -> Any:
    """Check a value of a type; return it with dicts as records and times in UTC."""
    if value is None and is_nullable:
        return None
    match kind:
        case _ if value is None:
            raise ValueError(f"{name}: expected {kind.simpleString()}, found null")
        case types.StructType():
            return {
                one.name: _checked(
                    value[one.name], one.dataType, one.name, is_nullable=one.nullable
                )
                for one in kind.fields
            }
        case types.ArrayType(elementType=inner, containsNull=is_nullable):
            return [_checked(one, inner, name, is_nullable=is_nullable) for one in value]
        case types.MapType(valueType=inner, valueContainsNull=is_nullable):
            return {
                key: _checked(one, inner, name, is_nullable=is_nullable)
                for key, one in value.items()
            }
        case types.TimestampType():
            return value.astimezone(UTC)
        case types.DecimalType(precision=digits, scale=scale) if (
            value.copy_abs() >= 10 ** (digits - scale) or -value.as_tuple().exponent > scale
        ):
            raise ValueError(f"{name}: expected {kind.simpleString()}, found {value}")
    return value


def spark_schema(schema: AvroSchema, field_name: str) -> types.StructType:
    """Return the columns of a schema's records; raise BadSpec for types that Spark lacks."""
    return _Translation(field_name).record(schema.parsed)


@dataclass(slots=True)
class _Translation:
    """Translates Avro's types to Spark's."""

    where: str
    _open: list[str] = field(default_factory=list)
    """Records that are being translated."""
    _named: dict[str, Any] = field(default_factory=dict)

    def record(self, found: Mapping[str, Any]) -> types.StructType:
        name = found["name"]
        if name in self._open:
            raise BadSpec(f"{self.where}: record {name} contains itself, which Spark has not")
        self._named[name] = found
        self._open.append(name)
        fields = [
            types.StructField(one["name"], *self._nullable(one["type"], one["name"]))
            for one in found["fields"]
        ]
        self._open.pop()
        return types.StructType(fields)

    def _nullable(self, found: Any, name: str) -> tuple[types.DataType, bool]:
        """Return a type, and whether it may be null."""
        if not isinstance(found, list):
            return self._type(found, name), False
        others = [one for one in found if one != "null"]
        if len(others) != 1:
            raise BadSpec(f"{self.where}: field {name}: a union of several types")
        return self._type(others[0], name), len(others) < len(found)

    def _type(self, found: Any, name: str) -> types.DataType:
        if isinstance(found, str):
            found = self._named.get(found, {"type": found})
        kind, logical = found["type"], found.get("logicalType")
        if not isinstance(kind, str):
            return self._type(kind, name)
        if "name" in found:
            self._named[found["name"]] = found
        if kind == "record":
            return self.record(found)
        if kind == "array":
            return types.ArrayType(*self._nullable(found["items"], name))
        if kind == "map":
            values, is_nullable = self._nullable(found["values"], name)
            return types.MapType(types.StringType(), values, is_nullable)
        if logical == "decimal":
            return types.DecimalType(found["precision"], found.get("scale", 0))
        made = _simple_types().get(logical or kind)
        if made is None:
            raise BadSpec(f"{self.where}: field {name}: Spark has no type for {logical or kind}")
        return made()


def _simple_types() -> dict[str, Callable[[], types.DataType]]:
    return {
        "boolean": types.BooleanType,
        "int": types.IntegerType,
        "long": types.LongType,
        "float": types.FloatType,
        "double": types.DoubleType,
        "string": types.StringType,
        "bytes": types.BinaryType,
        "enum": types.StringType,
        "fixed": types.BinaryType,
        "date": types.DateType,
        "timestamp-millis": types.TimestampType,
        "timestamp-micros": types.TimestampType,
    }

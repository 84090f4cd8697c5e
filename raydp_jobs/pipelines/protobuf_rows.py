"""Converts Protobuf messages to Spark rows, and back.

| Protobuf | Spark |
|---|---|
| bool, float, double, string, bytes | boolean, float, double, string, binary |
| int32, sint32, sfixed32 | int |
| uint32, fixed32, int64, sint64, sfixed64 | bigint |
| uint64, fixed64 | decimal(20,0) |
| enum | string |
| google.protobuf.Timestamp | timestamp |
| message, repeated, map | struct, array, map |

Fields with presence (a message, an optional field, a member of a oneof) are null if absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from raylog.raydp_jobs.pipelines.spec import BadSpec

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from pyspark.sql.types import DataType, StructType

_TIMESTAMP = "google.protobuf.Timestamp"


def spark_columns(message: Descriptor, where: str, path: tuple[str, ...] = ()) -> StructType:
    """Return the columns of a message; raise BadSpec for one that contains itself."""
    from pyspark.sql.types import StructField, StructType

    if message.full_name in path:
        raise BadSpec(f"{where}: message {message.full_name} contains itself, which Spark has not")
    inside = (*path, message.full_name)
    return StructType(
        [StructField(field.name, _column(field, where, inside), True) for field in message.fields]
    )


def _column(field: FieldDescriptor, where: str, path: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import ArrayType, MapType

    if _is_map(field):
        key, value = _map_fields(field)
        return MapType(_single(key, where, path), _single(value, where, path), True)
    single = _single(field, where, path)
    return ArrayType(single, False) if field.is_repeated else single


def _single(field: FieldDescriptor, where: str, path: tuple[str, ...]) -> DataType:
    from pyspark.sql import types

    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return types.TimestampType()
        return spark_columns(field.message_type, where, path)
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return types.DecimalType(20, 0)
    if field.type == field.TYPE_BYTES:
        return types.BinaryType()
    kinds = {
        field.CPPTYPE_BOOL: types.BooleanType,
        field.CPPTYPE_INT32: types.IntegerType,
        field.CPPTYPE_UINT32: types.LongType,
        field.CPPTYPE_INT64: types.LongType,
        field.CPPTYPE_FLOAT: types.FloatType,
        field.CPPTYPE_DOUBLE: types.DoubleType,
        field.CPPTYPE_STRING: types.StringType,
        field.CPPTYPE_ENUM: types.StringType,
    }
    return kinds[field.cpp_type]()


def row_of(message: Any, columns: Descriptor) -> dict[str, Any]:
    """Return the columns of a message, which was written with the same or another schema.

    Fields are found by their numbers; a column without a field is left out. Raises ValueError for a
    field of another type, and for a value that Spark cannot hold.
    """
    return {
        column.name: _cell(message, field, column)
        for field, column in _pairs(message.DESCRIPTOR, columns)
    }


@lru_cache(1_000)
def _pairs(
    message: Descriptor, columns: Descriptor
) -> list[tuple[FieldDescriptor, FieldDescriptor]]:
    """Return the fields of a message with their columns; raise ValueError for another type."""
    fields = message.fields_by_number
    pairs = [(fields[one.number], one) for one in columns.fields if one.number in fields]
    for field, column in pairs:
        found, expected = _kind(field), _kind(column)
        wider = found.replace("int", "bigint"), found.replace("string", "binary")
        if expected not in (found, *wider):
            raise ValueError(f"{field.full_name}: expected {expected}, found {found}")
    return pairs


def _kind(field: FieldDescriptor) -> str:
    """Return the type of a field's column, without what is inside messages and maps."""
    if _is_map(field):
        return "map"
    message = field.message_type
    is_single = message is None or message.full_name == _TIMESTAMP
    kind = _single(field, "", ()).simpleString() if is_single else "struct"
    return f"array<{kind}>" if field.is_repeated else kind


def _cell(message: Any, field: FieldDescriptor, column: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        key, of = _pairs(field.message_type, column.message_type)
        return {_plain(one, *key): _plain(value[one], *of) for one in value}
    if field.is_repeated:
        return [_plain(one, field, column) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(value, field, column)


def _plain(value: Any, field: FieldDescriptor, column: FieldDescriptor) -> Any:
    if column.message_type is not None:
        if column.message_type.full_name == _TIMESTAMP:
            return value.ToDatetime(tzinfo=UTC)
        return row_of(value, column.message_type)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return Decimal(value)
    if field.type == field.TYPE_STRING and isinstance(value, bytes):
        return value.decode()  # raises: of proto2, a string that is not UTF-8
    return value


def fill(message: Any, row: Mapping[str, Any]) -> Any:
    """Set a message's fields from a row; null leaves one unset. Returns the message."""
    for field in message.DESCRIPTOR.fields:
        value = row.get(field.name)
        if value is None:
            continue
        if _is_map(field):
            _fill_map(getattr(message, field.name), value, field)
        elif field.is_repeated:
            _fill_list(getattr(message, field.name), value, field)
        elif field.message_type is not None:
            _fill_message(getattr(message, field.name), value, field)
        else:
            setattr(message, field.name, _scalar(value, field))
    return message


def _fill_map(target: Any, value: Mapping[Any, Any], field: FieldDescriptor) -> None:
    of_key, of = _map_fields(field)
    for name, one in value.items():
        key = _scalar(name, of_key)
        if of.message_type is not None:
            _fill_message(target[key], one, of)
        else:
            target[key] = _scalar(one, of)


def _fill_list(target: Any, value: list[Any], field: FieldDescriptor) -> None:
    for one in value:
        if field.message_type is not None:
            _fill_message(target.add(), one, field)
        else:
            target.append(_scalar(one, field))


def _fill_message(target: Any, value: Any, field: FieldDescriptor) -> None:
    assert field.message_type is not None
    if field.message_type.full_name == _TIMESTAMP:
        target.FromDatetime(value.astimezone(UTC))
    else:
        target.SetInParent()
        fill(target, value)


def _scalar(value: Any, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values_by_name[value].number
    if isinstance(value, Decimal):
        return int(value)
    return bytes(value) if field.type == field.TYPE_BYTES else value


def _is_map(field: FieldDescriptor) -> bool:
    message = field.message_type
    return field.is_repeated and message is not None and message.GetOptions().map_entry


def _map_fields(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    assert field.message_type is not None
    by_name = field.message_type.fields_by_name
    return by_name["key"], by_name["value"]

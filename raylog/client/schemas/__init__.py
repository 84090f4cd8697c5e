"""Serializers with a schema registry: Avro, JSON Schema and Protobuf in Confluent's wire format.

They need `pip install 'raylog[schemas]'`; names are loaded when they are first used (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raylog.client.schemas.avro import AvroDeserializer, AvroSerializer
    from raylog.client.schemas.errors import (
        DecodingFailed,
        EncodingFailed,
        IncompatibleSchema,
        InvalidSchema,
        InvalidVersion,
        NotARegistry,
        OperationNotPermitted,
        RegistryError,
        RegistryUnauthorized,
        RegistryUnavailable,
        SchemaError,
        SchemaNotFound,
        SubjectNotFound,
        VersionNotFound,
    )
    from raylog.client.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
    from raylog.client.schemas.model import Reference, Registered, Schema
    from raylog.client.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
    from raylog.client.schemas.registry import AsyncSchemaRegistry, SchemaRegistry
    from raylog.client.schemas.settings import RegistrySettings
    from raylog.client.schemas.subjects import record_name, topic_name, topic_record_name

_HOMES = {
    "avro": ("AvroDeserializer", "AvroSerializer"),
    "errors": (
        "DecodingFailed",
        "EncodingFailed",
        "IncompatibleSchema",
        "InvalidSchema",
        "InvalidVersion",
        "NotARegistry",
        "OperationNotPermitted",
        "RegistryError",
        "RegistryUnauthorized",
        "RegistryUnavailable",
        "SchemaError",
        "SchemaNotFound",
        "SubjectNotFound",
        "VersionNotFound",
    ),
    "json_schema": ("JsonSchemaDeserializer", "JsonSchemaSerializer"),
    "model": ("Reference", "Registered", "Schema"),
    "protobuf": ("ProtobufDeserializer", "ProtobufSerializer"),
    "registry": ("AsyncSchemaRegistry", "SchemaRegistry"),
    "settings": ("RegistrySettings",),
    "subjects": ("record_name", "topic_name", "topic_record_name"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncSchemaRegistry",
    "AvroDeserializer",
    "AvroSerializer",
    "DecodingFailed",
    "EncodingFailed",
    "IncompatibleSchema",
    "InvalidSchema",
    "InvalidVersion",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "NotARegistry",
    "OperationNotPermitted",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "Registered",
    "RegistryError",
    "RegistrySettings",
    "RegistryUnauthorized",
    "RegistryUnavailable",
    "Schema",
    "SchemaError",
    "SchemaNotFound",
    "SchemaRegistry",
    "SubjectNotFound",
    "VersionNotFound",
    "record_name",
    "topic_name",
    "topic_record_name",
]


def __getattr__(name: str) -> object:
    """Load a public name's module when it is first used."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'raylog.client.schemas' has no attribute {name!r}")
    return getattr(import_module(f"raylog.client.schemas.{home}"), name)


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted(__all__)

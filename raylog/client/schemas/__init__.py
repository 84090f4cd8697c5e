"""Serializers with a schema registry: Avro, JSON Schema and Protobuf in Confluent's wire format.

They need `pip install 'raylog[schemas]'`. Public names are loaded on first use (PEP 562).
"""

from typing import TYPE_CHECKING

from raylog.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "raylog.client.schemas.avro": ("AvroDeserializer", "AvroSerializer"),
        "raylog.client.schemas.errors": (
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
        "raylog.client.schemas.json_schema": ("JsonSchemaDeserializer", "JsonSchemaSerializer"),
        "raylog.client.schemas.model": ("Reference", "Registered", "Schema"),
        "raylog.client.schemas.protobuf": ("ProtobufDeserializer", "ProtobufSerializer"),
        "raylog.client.schemas.registry": ("AsyncSchemaRegistry", "SchemaRegistry"),
        "raylog.client.schemas.settings": ("RegistrySettings",),
        "raylog.client.schemas.subjects": ("record_name", "topic_name", "topic_record_name"),
    },
)

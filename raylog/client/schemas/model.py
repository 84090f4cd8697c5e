"""Schemas and references, as in the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference from one schema to another."""

    name: str
    """Avro: full name; JSON Schema: URI of `$ref`; Protobuf: path of `import`."""
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, registered or not."""

    text: str
    """Avro and JSON Schema: JSON. Protobuf: a .proto file, or a FileDescriptorProto in base64."""
    type: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered schema."""

    id: int
    schema: Schema
    subject: str | None = None
    """The subject it was requested under; None if it was requested by id alone."""
    version: int | None = None
    guid: str | None = None
    """Globally unique id; None if the registry did not return one."""

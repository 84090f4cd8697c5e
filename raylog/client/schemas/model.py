"""Schemas as the registry knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one builds on."""

    name: str
    """Avro: the full name; JSON Schema: the URI of `$ref`; Protobuf: the path of `import`."""
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema; registered or not."""

    text: str
    """Avro and JSON Schema: JSON. Protobuf: a .proto file, or a FileDescriptorProto in base64."""
    type: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema that the registry has."""

    id: int
    schema: Schema
    subject: str | None = None
    """Under which it was asked for; None if by id alone."""
    version: int | None = None
    guid: str | None = None
    """Its id across registries; None where the registry gave none."""

"""Reads the JSON answers of a registry, and rejects answers of another shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from raylog.client.schemas.errors import NotARegistry
from raylog.client.schemas.model import Reference, Registered, Schema, SchemaType

_TYPES = ("AVRO", "JSON", "PROTOBUF")


def request_body(schema: Schema) -> dict[str, object]:
    """Return the request body for a schema."""
    return {
        "schema": schema.text,
        "schemaType": schema.type,
        "references": [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in schema.references
        ],
    }


def as_object(answer: object) -> Mapping[str, object]:
    """Return an answer that must be a JSON object."""
    if not isinstance(answer, dict):
        raise _unexpected("a JSON object", answer)
    return cast(Mapping[str, object], answer)


def as_schema(answer: object) -> Schema:
    """Return the schema in an answer."""
    found = as_object(answer)
    text, kind = found.get("schema"), found.get("schemaType") or "AVRO"
    if not isinstance(text, str) or kind not in _TYPES:
        raise _unexpected("a schema of the type AVRO, JSON or PROTOBUF", answer)
    references = found.get("references") or []
    if not isinstance(references, list):
        raise _unexpected("a list of references", references)
    return Schema(text, cast(SchemaType, kind), tuple(_reference(one) for one in references))


def _reference(answer: object) -> Reference:
    found = as_object(answer)
    name, subject, version = found.get("name"), found.get("subject"), found.get("version")
    if (
        not isinstance(name, str)
        or not isinstance(subject, str)
        or not isinstance(version, int)
        or isinstance(version, bool)
    ):
        raise _unexpected("a reference with name, subject and version", answer)
    return Reference(name, subject, version)


def as_registered(
    answer: object, *, subject: str, schema: Schema | None = None, as_asked: bool = False
) -> Registered:
    """Return a registered schema; `schema` is the one sent, in case the answer has none.

    With `as_asked`, the schema sent is kept even if the answer has its text in another form.
    """
    found = as_object(answer)
    number, guid, version = found.get("id"), found.get("guid"), found.get("version")
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise _unexpected("the id of a schema", answer)
    if schema is None or ("schema" in found and not as_asked):
        schema = as_schema(answer)
    return Registered(
        number,
        schema,
        subject,
        version if isinstance(version, int) else None,
        guid if isinstance(guid, str) else None,
    )


def as_texts(answer: object) -> list[str]:
    """Return an answer that must be a list of names."""
    if not isinstance(answer, list) or not all(isinstance(one, str) for one in answer):
        raise _unexpected("a list of names", answer)
    return answer


def as_numbers(answer: object) -> list[int]:
    """Return an answer that must be a list of versions."""
    if not isinstance(answer, list) or not all(isinstance(one, int) for one in answer):
        raise _unexpected("a list of numbers", answer)
    return answer


def as_levels(answer: object) -> str:
    """Return the compatibility level in an answer."""
    level = as_object(answer).get("compatibilityLevel")
    if not isinstance(level, str):
        raise _unexpected("a compatibility level", answer)
    return level


def _unexpected(expected: str, found: object) -> NotARegistry:
    text = repr(found)
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    return NotARegistry(f"expected {expected} from the registry, found {shown}")

"""Chooses the subject of a schema (Confluent's subject name strategies)."""

from __future__ import annotations

from collections.abc import Callable

from raylog.client.errors import InvalidSetting
from raylog.client.schemas.errors import SchemaError

SubjectNameStrategy = Callable[[str, bool, str | None], str | None]
"""Maps (topic, whether for keys, record's full name or None) to a subject, or None for no name."""


def topic_name(topic: str, is_key: bool, record_name: str | None) -> str | None:
    """`TOPIC-key` or `TOPIC-value`: one schema, in its versions, for all of a topic."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name(topic: str, is_key: bool, record_name: str | None) -> str | None:
    """The record's full name: one schema wherever the record is written."""
    return record_name


def topic_record_name(topic: str, is_key: bool, record_name: str | None) -> str | None:
    """`TOPIC-NAME`: several records in one topic, each with versions of its own there."""
    return None if record_name is None else f"{topic}-{record_name}"


_NAMED: dict[str, SubjectNameStrategy] = {
    "topic": topic_name,
    "record": record_name,
    "topic-record": topic_record_name,
}


def strategy(given: str | SubjectNameStrategy) -> SubjectNameStrategy:
    """Return a strategy by name (`topic`, `record`, `topic-record`), or a function unchanged."""
    if callable(given):
        return given
    found = _NAMED.get(given.lower().replace("_", "-"))
    if found is None:
        raise InvalidSetting(
            f"expected a subject name strategy of {', '.join(_NAMED)}, found {given!r}"
        )
    return found


def known_subject(found: str | None) -> str:
    """Return the subject; raises SchemaError if the strategy found none."""
    if found is None:
        raise SchemaError(
            "expected a schema with a name (Avro: name, JSON Schema: title), since the subject "
            "name strategy asks for it; found none"
        )
    return found

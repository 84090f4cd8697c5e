"""Under which subject a schema is registered (Confluent's subject name strategies)."""

from __future__ import annotations

from collections.abc import Callable

from raylog.client.errors import InvalidSetting
from raylog.client.schemas.errors import SchemaError

SubjectNameStrategy = Callable[[str, bool, str | None], str | None]
"""(topic, is it the key, the record's full name or None) -> subject; None if it has none."""


def topic_name(topic: str, is_key: bool, record_name: str | None) -> str | None:
    """`TOPIC-key` or `TOPIC-value`: one schema, in its versions, for all of a topic."""
    del record_name
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name(topic: str, is_key: bool, record_name: str | None) -> str | None:
    """The record's full name: one schema wherever the record is written."""
    del topic, is_key
    return record_name


def topic_record_name(topic: str, is_key: bool, record_name: str | None) -> str | None:
    """`TOPIC-NAME`: several records in one topic, each with versions of its own there."""
    del is_key
    return None if record_name is None else f"{topic}-{record_name}"


_NAMED: dict[str, SubjectNameStrategy] = {
    "topic": topic_name,
    "record": record_name,
    "topic-record": topic_record_name,
}


def strategy(given: str | SubjectNameStrategy) -> SubjectNameStrategy:
    """A strategy by its name (`topic`, `record`, `topic-record`), or one's own."""
    if callable(given):
        return given
    found = _NAMED.get(given.lower().replace("_", "-"))
    if found is None:
        raise InvalidSetting(
            f"expected a subject name strategy of {', '.join(_NAMED)}, found {given!r}"
        )
    return found


def known_subject(found: str | None) -> str:
    """A subject; SchemaError if the strategy had none."""
    if found is None:
        raise SchemaError(
            "expected a schema with a name (Avro: name, JSON Schema: title), since the subject "
            "name strategy asks for it; found none"
        )
    return found

"""The interceptor `json-schema`: stores only records whose value (or key) matches a JSON schema.

| option           | meaning                                                                     |
|------------------|-----------------------------------------------------------------------------|
| `schema`         | the schema of values, as JSON text                                          |
| `schema.file`    | the same as a file in the broker's `raylog.interceptors.files.dir`          |
| `key.schema`     | the schema of keys, as JSON text                                            |
| `key.schema.file`| the same as a file                                                          |
| `on.invalid`     | `reject` (default) fails the batch; `drop` leaves the record out            |
| `null`           | `accept` (default) allows null values and keys (tombstones); or `refuse`    |

At least one schema is required. `$schema` selects the draft; the default is the latest that the
jsonschema library supports. References are resolved only within the schema: nothing is fetched.
Regular expressions are RE2's, which match in linear time (`json_keywords.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from raylog.actors.interceptors.api import Interceptor, Record, Rejected
from raylog.actors.interceptors.json_keywords import Steps, bounded, check_patterns
from raylog.extras import needs

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_OPTIONS = ("schema", "schema.file", "key.schema", "key.schema.file", "on.invalid", "null")
STEPS_MAX = 1_000_000
"""Maximum keywords evaluated per call, over all parts of the documents: some seconds."""
_SHOWN = 200
"""Maximum characters of an error sent to a producer, since it may quote a whole value."""


class JsonSchema(Interceptor):
    """Validates JSON records. It keeps no state between batches."""

    name = "json-schema"

    def __init__(self) -> None:
        self._value: Validator | None = None
        self._key: Validator | None = None
        self._drops = False
        self._accepts_null = True
        self._steps = Steps()

    def configure(self, options: Mapping[str, str]) -> None:
        """Load the schemas; raises ValueError if the options are invalid."""
        for option in options:
            if option not in _OPTIONS:
                raise ValueError(f"unknown option {option!r}; there are: {', '.join(_OPTIONS)}")
        self._value = _validator("schema", options, self._steps)
        self._key = _validator("key.schema", options, self._steps)
        if self._value is None and self._key is None:
            raise ValueError("a schema is needed: schema, schema.file, key.schema, key.schema.file")
        self._drops = _choice(options, "on.invalid", "reject", "drop")
        self._accepts_null = not _choice(options, "null", "accept", "refuse")

    def on_produce(self, topic: str, records: Sequence[Record]) -> Sequence[Record | Rejected]:
        """Return the valid records; others are dropped or replaced by a rejection."""
        self._steps.left = STEPS_MAX
        checked: list[Record | Rejected] = []
        for record in records:
            problem = self._problem(record)
            if problem is None:
                checked.append(record)
            elif not self._drops:
                checked.append(Rejected(record.offset, problem))
        all_pass = not any(isinstance(one, Rejected) for one in checked)
        return records if all_pass and len(checked) == len(records) else checked

    def _problem(self, record: Record) -> str | None:
        """Return what is wrong with a record, or None."""
        for part, data, validator in (
            ("value", record.value, self._value),
            ("key", record.key, self._key),
        ):
            if validator is None or (data is None and self._accepts_null):
                continue
            problem = "is null" if data is None else _misfit(validator, data)
            if problem is not None:
                return f"{part} {problem}"
        return None


def _misfit(validator: Validator, data: bytes) -> str | None:
    """Return why `data` does not match the schema, or None."""
    try:
        document = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as failure:
        return _short(f"is not JSON: {failure}")
    errors: Iterator[Any] = validator.iter_errors(document)
    first = next(errors, None)
    return None if first is None else _short(f"at {first.json_path}: {first.message}")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _refuse_constant(name: str) -> NoReturn:
    """Reject NaN and Infinity, which Python parses but JSON does not allow."""
    raise ValueError(f"{name} is not a JSON value")


def _validator(option: str, options: Mapping[str, str], steps: Steps) -> Validator | None:
    text = options.get(option)
    path = options.get(f"{option}.file")
    if text is not None and path is not None:
        raise ValueError(f"{option} and {option}.file exclude each other")
    if path is not None:
        text = Path(path).read_text(encoding="utf-8")
    if text is None:
        return None
    # Imported here because the import takes longer than a gateway takes to start.
    with needs("schemas", "The interceptor json-schema"):
        from jsonschema import FormatChecker, SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry

    try:
        schema = json.loads(text)
        kind = validator_for(schema)
        kind.check_schema(schema, format_checker=FormatChecker(()))
    except SchemaError as failure:
        raise ValueError(f"{option} is not a JSON schema: {failure.message}") from failure
    except ValueError as failure:
        raise ValueError(f"{option} is not JSON: {failure}") from failure
    check_patterns(schema)
    # An empty registry: the default one would fetch references from the network.
    validator: Validator = bounded(kind, steps)(schema, registry=Registry())
    return validator


def _choice(options: Mapping[str, str], option: str, default: str, other: str) -> bool:
    """Whether an option has its non-default value."""
    value = options.get(option, default)
    if value not in (default, other):
        raise ValueError(f"{option} is {default} or {other}, not {value!r}")
    return value == other

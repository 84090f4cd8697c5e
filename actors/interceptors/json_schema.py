"""The interceptor `json-schema`: only records whose value (or key) fits a JSON schema are stored.

| option           | meaning                                                                    |
|------------------|----------------------------------------------------------------------------|
| `schema`         | the schema of values, as JSON text                                         |
| `schema.file`    | the same as a file in the broker's `raylog.interceptors.files.dir`         |
| `key.schema`     | the schema of keys, as JSON text                                           |
| `key.schema.file`| the same as a file                                                         |
| `on.invalid`     | `reject` (default): the producer gets an error; `drop`: it is left out     |
| `null`           | `accept` (default) lets null values and keys pass: tombstones; or `refuse` |

At least one schema is needed. Its draft is what its `$schema` says, else the newest that the
jsonschema library knows. References are resolved within the schema only: nothing is fetched.
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
"""Keywords of schemas that one call looks at, once for each part of a document: some seconds."""
_SHOWN = 200
"""Characters of an error that a producer is told; it may quote a whole value."""


class JsonSchema(Interceptor):
    """Validates JSON. Keeps no state between batches."""

    name = "json-schema"

    def __init__(self) -> None:
        self._value: Validator | None = None
        self._key: Validator | None = None
        self._drops = False
        self._accepts_null = True
        self._steps = Steps()

    def configure(self, options: Mapping[str, str]) -> None:
        """Read the schemas; ValueError says what is wrong with the options."""
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
        """The records that fit, and in the place of those that do not, why."""
        self._steps.left = STEPS_MAX
        checked: list[Record | Rejected] = []
        for record in records:
            problem = self._problem(record)
            if problem is None:
                checked.append(record)
            elif not self._drops:
                checked.append(Rejected(record.offset, problem))
        return records if len(checked) == len(records) and _all_pass(checked) else checked

    def _problem(self, record: Record) -> str | None:
        """What is wrong with a record, if anything."""
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


def _all_pass(checked: Sequence[Record | Rejected]) -> bool:
    return not any(isinstance(one, Rejected) for one in checked)


def _misfit(validator: Validator, data: bytes) -> str | None:
    """Why `data` is not what the schema wants; None if it is."""
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
    """Python reads NaN and Infinity, which JSON does not have."""
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
    # Imported where it is used: it takes longer to import than a gateway to start.
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
    # A registry of its own: the default one would fetch references from the network.
    validator: Validator = bounded(kind, steps)(schema, registry=Registry())
    return validator


def _choice(options: Mapping[str, str], option: str, default: str, other: str) -> bool:
    """Whether an option has its other value."""
    value = options.get(option, default)
    if value not in (default, other):
        raise ValueError(f"{option} is {default} or {other}, not {value!r}")
    return value == other

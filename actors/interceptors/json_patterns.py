"""JSON Schema with RE2's patterns: validators whose regular expressions take linear time.

The jsonschema library matches with Python's `re`, which some patterns keep busy for years, and
with it the whole process. Here `pattern`, `patternProperties` and `additionalProperties` match with
RE2 instead. The library's `unevaluatedProperties` looks into `patternProperties` by itself, so a
schema has one of the two only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raylog.actors.patterns import BadPattern, compiled

_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are no schemas."""


def with_re2(kind: Any) -> Any:
    """A class of validators like `kind`."""
    from jsonschema.validators import extend  # it takes longer to import than a gateway to start

    ours = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    return extend(kind, {name: one for name, one in ours.items() if name in kind.VALIDATORS})


def check_patterns(schema: object) -> None:
    """Raise ValueError for a pattern that RE2 does not take, and for what the module excludes."""
    found = set[str]()
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left.extend(one)
        elif isinstance(one, dict):
            found |= one.keys() & {"patternProperties", "unevaluatedProperties"}
            for pattern in _patterns_of(one):
                _check(pattern)
            left.extend(value for name, value in one.items() if name not in _DATA)
    if len(found) > 1:
        raise ValueError(
            "unevaluatedProperties does not go together with patternProperties: "
            "use additionalProperties"
        )


def _patterns_of(schema: Mapping[str, Any]) -> Iterator[str]:
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        yield pattern
    properties = schema.get("patternProperties")
    if isinstance(properties, dict):
        yield from properties


def _check(pattern: str) -> None:
    try:
        compiled(pattern)
    except BadPattern as wrong:
        raise ValueError(f"pattern {pattern!r} is none that RE2 takes: {wrong}") from wrong


def _matches(pattern: str, text: str) -> bool:
    if not text.isascii():  # JSON may hold half a surrogate pair, which is no text
        text = text.encode("utf-8", "replace").decode("utf-8")
    return compiled(pattern).search(text) is not None


# ---- keywords, as the library calls them ---------------------------------------------------


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any
) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, schema in patterns.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not validator.is_type(instance, "object"):
        return
    patterns = schema.get("patternProperties", {})
    known = schema.get("properties", {})
    extras = [
        name
        for name in instance
        if name not in known and not any(_matches(pattern, name) for pattern in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        names = ", ".join(map(repr, sorted(extras)))
        yield ValidationError(f"additional properties are not allowed: {names}")

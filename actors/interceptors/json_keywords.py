"""JSON Schema keywords with bounded run time, whatever the schema and the document.

The jsonschema library uses Python's `re`, which some patterns keep busy for years, and the whole
process with it. Here `pattern`, `patternProperties` and `additionalProperties` use RE2 instead. The
library's `unevaluatedProperties` evaluates `patternProperties` itself, so a schema may have only
one of the two. The library's `uniqueItems` compares each item with all others. Anything else that
may take long, such as nested alternatives, is bounded by counting steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from raylog.actors.patterns import BadPattern, compiled

Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]
_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are not schemas."""
_BOOL = object()


class Steps(threading.local):
    """The number of keywords that the thread may still evaluate."""

    left = 0


class TooManySteps(Exception):
    """Validating records took too many steps."""


def bounded(kind: Any, steps: Steps) -> Any:
    """Return a validator class like `kind` that raises TooManySteps when no steps are left."""
    from jsonschema.validators import extend  # it takes longer to import than a gateway to start

    keywords = {
        **kind.VALIDATORS,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    known = {name: _counted(keywords[name], steps) for name in kind.VALIDATORS}
    return extend(kind, known)


def _counted(keyword: Keyword, steps: Steps) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any] | None:
        steps.left -= 1
        if steps.left < 0:
            raise TooManySteps("the schema takes too long")
        return keyword(validator, value, instance, schema)

    return counted


def check_patterns(schema: object) -> None:
    """Raise ValueError for a pattern RE2 does not support and keywords that exclude each other."""
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
        raise ValueError(
            f"pattern {pattern!r} is not valid in RE2 (no lookaheads, no backreferences): {wrong}"
        ) from wrong


def _matches(pattern: str, text: str) -> bool:
    if not text.isascii():  # JSON may contain a lone surrogate, which UTF-8 cannot encode
        text = text.encode("utf-8", "replace").decode("utf-8")
    return compiled(pattern).search(text) is not None


# ---- keywords, with the library's signature -----------------------------------------------


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


def _unique_items(validator: Any, unique: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if unique and validator.is_type(instance, "array"):
        items = [_comparable(item) for item in instance]
        if len(set(items)) < len(items):
            yield ValidationError(f"{instance!r} has non-unique elements")


def _comparable(item: Any) -> Hashable:
    """Return a value that is equal for items equal in JSON Schema: 1 and 1.0, but not true."""
    match item:
        case dict():
            return frozenset((name, _comparable(value)) for name, value in item.items())
        case list():
            return tuple(map(_comparable, item))
        case bool():
            return (_BOOL, item)  # otherwise it would equal 0 or 1
        case _:
            return item  # type: ignore[no-any-return]  # of JSON: a text, a number or None

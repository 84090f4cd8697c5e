"""Messages about mistakes in a pipeline's file: the field, what was expected and found."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

_VALUE_SHOWN = 60
_UNIONS = ("anyOf", "oneOf", "allOf")


def describe(
    error: ErrorDetails, model: type[BaseModel], tags: Mapping[str, type[BaseModel]]
) -> str:
    """Describe one mistake in `model`; `tags` represent members of unions in its location."""
    where = ".".join(str(part) for part in error["loc"] if part not in tags)
    text = error["msg"].removeprefix("Value error, ")
    match error["type"]:
        case "extra_forbidden":
            text = f"there is no such field; {_instead(error['loc'], model, tags)}"
        case "missing":
            text = "is missing"
        case "value_error" if isinstance(error["input"], Mapping | BaseModel):
            pass
        case _:
            text += f", found {repr(error['input'])[:_VALUE_SHOWN]}"
    return f"{where}: {text}" if where else text


def _instead(
    place: Sequence[int | str], model: type[BaseModel], tags: Mapping[str, type[BaseModel]]
) -> str:
    """Suggest the field that may be meant, or list the fields there."""
    *outer, name = place
    known = sorted(_fields_at(outer, model.model_json_schema(), tags))
    close = difflib.get_close_matches(str(name), known, 1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"


def _fields_at(
    place: Sequence[int | str], schema: dict[str, Any], tags: Mapping[str, type[BaseModel]]
) -> set[str]:
    """Return the fields that a schema has at a location."""
    found = _members(schema, schema)
    for part in place:
        if part in tags:
            found = [schema["$defs"][tags[str(part)].__name__]]
            continue
        found = [
            member
            for one in found
            for inner in _inside(one, part)
            for member in _members(inner, schema)
        ]
    return {name for one in found for name in one.get("properties", {})}


def _inside(node: dict[str, Any], part: int | str) -> list[dict[str, Any]]:
    """Return the schemas of an object's member with this name."""
    named = node.get("properties", {}).get(part)
    if named is not None:
        return [named]
    of_any_name = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
    return [one for one in of_any_name if isinstance(one, dict)]


def _members(node: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alternatives of a node: itself, its reference, or the members of its union."""
    if "$ref" in node:
        return _members(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    members = [one for union in _UNIONS for one in node.get(union, [])]
    return [one for member in members for one in _members(member, schema)] or [node]

"""Translates pydantic's errors into the terms of a TOML file.

Each mistake is one line: the field as in the file, what was expected, what was found.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from raylog.loadtest import scenario

NAME_EXPECTED = "1 to 200 of these characters: a-z, A-Z, 0-9, '.', '_', '-'"
_SHOWN_MAX = 60
_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "string_pattern_mismatch": NAME_EXPECTED,
    "string_too_long": NAME_EXPECTED,
    "too_short": "at least one table",
}
_BOUNDS = {
    "greater_than": ("gt", "a number above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}
_SETTINGS = {"client": "text, a number, true or false", "settings": "text"}
"""Tables of settings by Kafka's names, and the types of their values."""
_WITH_DISTRIBUTIONS = ("size", "keys")
Path = Sequence[int | str]


def described(failure: ValidationError) -> list[str]:
    """The mistakes, one line each."""
    lines = (_described(error) for error in failure.errors(include_url=False))
    return list(dict.fromkeys(lines))


def shown(value: object) -> str:
    """A value roughly as in TOML, cut if it is long."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def dotted(path: Path) -> str:
    """A path as in `users[0].size.bytes`. Names are quoted where TOML requires it."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            is_bare = re.fullmatch(r"[A-Za-z0-9_-]+", part) is not None
            text += f".{part if is_bare else json.dumps(part, ensure_ascii=False)}"
    return text.removeprefix(".")


def nearest(found: object, known: Iterable[str]) -> str:
    """A suggestion of a similar name; empty if there is none."""
    close = difflib.get_close_matches(found, list(known), 1) if isinstance(found, str) else []
    return f"; did you mean {close[0]}?" if close else ""


def kind_of(model: type[BaseModel]) -> tuple[str, str]:
    """The discriminator field of a union, and this member's value of it."""
    name = next(one for one in ("kind", "distribution") if one in model.model_fields)
    return name, get_args(model.model_fields[name].annotation)[0]


def _kinds(union: object) -> dict[str, type[BaseModel]]:
    """The members of a union by discriminator."""
    members = get_args(get_args(union)[0])
    models = [get_args(one)[0] if get_origin(one) is Annotated else one for one in members]
    return {kind_of(model)[1]: model for model in models}


_KINDS = {
    kind: model
    for union in (scenario.Users, scenario.Size, scenario.Keys, scenario.Shape)
    for kind, model in _kinds(union).items()
}


def _described(error: ErrorDetails) -> str:
    path, table = _placed(error["loc"])
    found, kind = error["input"], error["type"]
    match kind:
        case _ if len(path) > 3 and path[2] in _SETTINGS:
            text = _of_setting(path, found)
        case "list_type" if isinstance(found, Mapping):
            text = f"expected a list, found a table: write [[{path[-1]}]] for each"
        case "missing":
            text = "is missing"
        case "extra_forbidden":
            text = _unknown(str(path[-1]), table)
        case "union_tag_not_found" if isinstance(found, Mapping):
            path, text = [*path, "kind"], f"is missing: expected {_choices(path)}"
        case "union_tag_not_found":
            text = f"expected a table, found {shown(found)}"
        case "union_tag_invalid":
            path, text = _of_kind(path, found)
        case "literal_error":
            expected = error["ctx"]["expected"]
            choices = re.findall(r"'([^']*)'", expected)
            text = f"expected one of {', '.join(choices)}, found {shown(found)}"
            text += nearest(found, choices)
        case "value_error":
            text = error["msg"].removeprefix("Value error, ")
        case _:
            text = f"expected {_expected(error)}, found {shown(found)}"
    return f"{dotted(path)}: {text}" if path else text


def _placed(place: Path) -> tuple[list[int | str], type[BaseModel] | None]:
    """A location as in the file, without names of models, and the model of its table."""
    path = [part for part in place if part != "[key]"]
    match path:
        case ["users", int(), str(kind), *rest]:
            model = _KINDS[kind]
            if len(rest) > 1 and rest[0] in _WITH_DISTRIBUTIONS:
                model = _KINDS[str(rest.pop(1))]
            if rest and rest[0] == "client":
                rest = rest[:2]
            return [*path[:2], *rest], model
        case ["shape", str(kind), *rest]:
            return ["shape", *rest], _KINDS[kind]
        case ["topics", _, _, *_]:
            return path, scenario.Topic
        case ["faults", _, *_]:
            return path, scenario.Fault
        case ["thresholds", _, *_]:
            return path, scenario.Threshold
    return path, scenario.Scenario


def _unknown(name: str, table: type[BaseModel] | None) -> str:
    known = [] if table is None else list(table.model_fields)
    meant = nearest(name, known)
    return f"unknown field{meant}" if meant else f"unknown field: expected {', '.join(known)}"


def _of_kind(path: Path, found: object) -> tuple[list[int | str], str]:
    """The location of an unknown kind, and the known ones."""
    union = _union_at(path)
    field = kind_of(next(iter(union.values())))[0]
    name = found.get(field) if isinstance(found, Mapping) else found
    text = f"expected {_choices(path)}, found {shown(name)}{nearest(name, union)}"
    return [*path, field], text


def _choices(path: Path) -> str:
    return f"one of {', '.join(_union_at(path))}"


def _union_at(path: Path) -> dict[str, type[BaseModel]]:
    """The members of the union at a location, by discriminator."""
    unions = {"size": scenario.Size, "keys": scenario.Keys, "shape": scenario.Shape}
    return _kinds(unions.get(str(path[-1]), scenario.Users))


def _of_setting(path: Path, found: object) -> str:
    """The mistake in a setting of a client or topic. Dots in names are easily taken for tables."""
    expected = f"expected {_SETTINGS[str(path[2])]}, found {shown(found)}"
    name = str(path[-1])
    if not isinstance(found, Mapping):
        return expected
    while isinstance(found, Mapping) and found:
        key, found = next(iter(found.items()))
        name += f".{key}"
    return f'{expected}: write the name in quotes, "{name}"'


def _expected(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind in _BOUNDS:
        name, word = _BOUNDS[kind]
        bound = error["ctx"][name]
        return f"{word} {bound:,}" if isinstance(bound, int) else f"{word} {bound:g}"
    return _TYPES.get(kind, error["msg"])

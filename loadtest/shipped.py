"""Scenarios that come with Raylog, and what the command line changes in a scenario."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from raylog.loadtest.scenario import BadScenario, Scenario, checked, read

FOLDER = Path(__file__).parent / "scenarios"


def names() -> list[str]:
    """Of the shipped scenarios."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def all_shipped() -> list[Scenario]:
    """Every shipped scenario, by name."""
    return [checked(read(FOLDER / f"{name}.toml"), name) for name in names()]


def found(
    name: str,
    *,
    changes: Iterable[str] = (),
    scale: float = 1.0,
    duration_s: float | None = None,
) -> Scenario:
    """A scenario by its file or its shipped name, changed; raises BadScenario.

    `changes` are like users.0.rate=20000. `scale` multiplies all rates. With another duration all
    times of the scenario change in proportion.
    """
    document = read(_path(name))
    for change in changes:
        document = _changed(document, change)
    scenario = checked(document, name)
    if scale == 1.0 and duration_s is None:
        return scenario
    whole = scenario.model_dump()
    _scaled(whole, scale)
    if duration_s is not None:
        _lasting(whole, duration_s)
    return checked(whole, name)


def _path(name: str) -> Path:
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        if not path.is_file():
            raise BadScenario(f"there is no file {name}")
        return path
    shipped = FOLDER / f"{name}.toml"
    if not name or "/" in name or not shipped.is_file():
        raise BadScenario(
            f"expected a file or one of the scenarios {', '.join(names())}; found {name!r}"
        )
    return shipped


def _changed(document: Mapping[str, Any], change: str) -> dict[str, Any]:
    """Set one field by its dotted name; the value is read as TOML does, or is a text."""
    name, equals, text = change.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise BadScenario(f"expected FIELD=VALUE such as users.0.rate=20000, found {change!r}")
    made = copy.deepcopy(dict(document))
    there: Any = made
    for key in keys[:-1]:
        there = _inside(there, key, change)
    last = keys[-1]
    if isinstance(there, list):
        there[_index(there, last, change)] = _value(text)
    elif isinstance(there, dict):
        there[last] = _value(text)
    else:
        raise BadScenario(f"{change}: {'.'.join(keys[:-1])} is no table and no list")
    return made


def _inside(there: Any, key: str, change: str) -> Any:
    if isinstance(there, list):
        return there[_index(there, key, change)]
    if isinstance(there, dict):
        return there.setdefault(key, {})
    raise BadScenario(f"{change}: what is before {key} is no table and no list")


def _index(there: list[Any], key: str, change: str) -> int:
    if not key.isascii() or not key.isdigit() or int(key) >= len(there):
        raise BadScenario(f"{change}: expected a number below {len(there)}, found {key!r}")
    return int(key)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _scaled(document: dict[str, Any], scale: float) -> None:
    for users in document["users"]:
        if "rate" in users:
            users["rate"] *= scale


def _lasting(document: dict[str, Any], duration_s: float) -> None:
    """Make a run last, with all that happens at a time in it."""
    share = duration_s / document["duration_s"]
    tables = [
        (document, ("duration_s", "warmup_s")),
        (document["shape"], ("at_s", "lasts_s", "hold_s", "period_s")),
        *((users, ("starts_s",)) for users in document["users"]),
        *((fault, ("at_s",)) for fault in document["faults"]),
    ]
    for table, fields in tables:
        for field in fields:
            if field in table:
                table[field] *= share

"""The scenarios that come with Raylog, and changes of scenarios by the command line."""

from __future__ import annotations

import copy
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from raylog.loadtest.scenario import BadScenario, Scenario, checked, read
from raylog.loadtest.scenario_errors import nearest, shown

FOLDER = Path(__file__).parent / "scenarios"
WARMUP_SHARE_MAX = 0.5
"""The largest share of the warm-up in a run that was made shorter."""


def names() -> list[str]:
    """The names of the shipped scenarios."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def all_shipped() -> list[Scenario]:
    """All shipped scenarios, by name."""
    return [checked(read(FOLDER / f"{name}.toml"), name) for name in names()]


def found(
    name: str,
    *,
    changes: Iterable[str] = (),
    scale: float = 1.0,
    duration_s: float | None = None,
) -> Scenario:
    """A changed scenario, from a file or by its shipped name. Raises BadScenario.

    `changes` are like users.0.rate=20000. `scale` multiplies all rates. With another duration the
    warm-up stays as it is if that is no more than half of the run, and all later times change in
    proportion.
    """
    _require_positive("--scale", scale)
    if duration_s is not None:
        _require_positive("--duration", duration_s)
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


def _require_positive(option: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise BadScenario(f"{option}: expected a number above 0, found {value}")


def _path(name: str) -> Path:
    """The path of a scenario: a file, or the shipped one with that name."""
    path = Path(name)
    if name in names() and not path.is_file():
        return FOLDER / f"{name}.toml"
    if name and path.is_dir():
        raise BadScenario(f"{name} is a directory: expected a TOML file, or {_shipped()}")
    if name and path.exists():
        return path
    if path.suffix == ".toml":
        raise BadScenario(f"there is no file {name}")
    raise BadScenario(
        f"expected a TOML file, or {_shipped()}; found {shown(name)}{nearest(name, names())}"
    )


def _shipped() -> str:
    return f"one of the scenarios {', '.join(names())}"


def _changed(document: Mapping[str, Any], change: str) -> dict[str, Any]:
    """Set one field by its dotted name. The value is parsed as TOML, or taken as text."""
    name, equals, text = change.partition("=")
    keys = _keys(name)
    if not equals or not keys:
        raise BadScenario(
            f"--set: expected FIELD=VALUE such as users.0.rate=20000, found {shown(change)}"
        )
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
        raise _not_inside(change, there, last)
    return made


def _keys(name: str) -> list[str]:
    """The keys of a dotted TOML name or of users[0].rate; empty if it is neither."""
    dotted = re.sub(r"\[(\d+)\]", r".\1", name)
    try:
        there: Any = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return []
    keys = []
    while isinstance(there, dict):
        ((key, there),) = there.items()
        keys.append(key)
    return keys


def _inside(there: Any, key: str, change: str) -> Any:
    if isinstance(there, list):
        return there[_index(there, key, change)]
    if isinstance(there, dict):
        return there.setdefault(key, {})
    raise _not_inside(change, there, key)


def _not_inside(change: str, there: object, key: str) -> BadScenario:
    return BadScenario(
        f"--set {change}: expected a table or a list before {key}, found {shown(there)}"
    )


def _index(there: list[Any], key: str, change: str) -> int:
    if not key.isascii() or not key.isdigit() or int(key) >= len(there):
        raise BadScenario(
            f"--set {change}: expected the number of an entry, 0 to {len(there) - 1}, found {key!r}"
        )
    return int(key)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also for numbers with too many digits
        return text.strip()


def _scaled(document: dict[str, Any], scale: float) -> None:
    for users in document["users"]:
        if "rate" in users:
            users["rate"] *= scale


def _lasting(document: dict[str, Any], duration_s: float) -> None:
    """Change the duration of a run, with everything that happens at a time in it.

    Group members take as long as before to join, so the warm-up stays as it is if it fits.
    """
    before_s, warmup_s = float(document["duration_s"]), float(document["warmup_s"])
    warm_s = min(warmup_s, WARMUP_SHARE_MAX * duration_s)
    loaded = (duration_s - warm_s) / (before_s - warmup_s)

    def moved(at_s: float) -> float:
        if at_s < warmup_s:
            return at_s * warm_s / warmup_s
        return warm_s + (at_s - warmup_s) * loaded

    document |= {"duration_s": duration_s, "warmup_s": warm_s}
    for users in document["users"]:
        if "starts_s" in users:
            users["starts_s"] = moved(users["starts_s"])
    for fault in document["faults"]:
        fault["at_s"] = moved(fault["at_s"])
    _reshaped(document["shape"], moved, loaded, duration_s / before_s)


def _reshaped(
    shape: dict[str, Any], moved: Callable[[float], float], loaded: float, whole: float
) -> None:
    """Change a shape's times. Curves begin with the run, stairs after the warm-up."""
    if "at_s" in shape:
        ends_s = moved(shape["at_s"] + shape["lasts_s"])
        shape["at_s"] = moved(shape["at_s"])
        shape["lasts_s"] = ends_s - shape["at_s"]
    if "hold_s" in shape:
        shape["hold_s"] *= loaded
    if "period_s" in shape:
        shape["period_s"] *= whole

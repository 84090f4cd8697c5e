"""The JSON file of a run."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from raylog.client.setting_table import SECURITY
from raylog.loadtest.report.latencies import BadLatencies, merged
from raylog.loadtest.results import Result

_FORMAT: int = get_args(Result.model_fields["format"].annotation)[0]
_TOLD_MAX = 5
_SECRET = frozenset({one.name for one in SECURITY if one.secret} | {"sasl.jaas.config"})


class BadResult(ValueError):
    """A file that is not the JSON of a run, or one of another format; the message names it."""


def as_json(result: Result) -> str:
    """A result without passwords, and without values of gauges that are no numbers."""
    return cleaned(result).model_dump_json()


def write_json(result: Result, path: Path) -> None:
    """Write what `as_json` makes."""
    write_whole(path, as_json(result))


def write_whole(path: Path, text: str) -> None:
    """Write a file that never is there in part, even if the process ends meanwhile."""
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def cleaned(result: Result) -> Result:
    """The same without passwords, for it is passed on, and without what JSON cannot hold."""
    users = [
        each.model_copy(
            update={"client": {name: _shown(name, each.client[name]) for name in each.client}}
        )
        for each in result.scenario.users
    ]
    gauges = [
        each.model_copy(update={"points": [one for one in each.points if math.isfinite(one[1])]})
        for each in result.gauges
    ]
    scenario = result.scenario.model_copy(update={"users": users})
    return result.model_copy(update={"scenario": scenario, "gauges": gauges})


def _shown(name: str, value: str | float) -> str | float:
    return "(kept secret)" if name.replace("_", ".") in _SECRET else value


def read_json(path: Path) -> Result:
    """Read what `write_json` wrote; BadResult if it is something else, OSError if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as failure:
        raise BadResult(f"{path}: not JSON, or cut off: {failure}") from None
    if not isinstance(found, dict) or "format" not in found:
        raise BadResult(f"{path}: expected the JSON of a load test, found no field 'format'")
    if found["format"] != _FORMAT:
        raise BadResult(f"{path}: {_other_format(found['format'])}")
    try:
        result = Result.model_validate_json(json.dumps(found))
    except ValidationError as failure:
        raise BadResult(f"{path}: {_told(failure)}") from None
    _check_latencies(result, path)
    return result


def _other_format(found: object) -> str:
    told = f"expected format {_FORMAT}, found {found!r}"
    is_newer = isinstance(found, int) and found > _FORMAT
    return f"{told}; a newer Raylog may have written it" if is_newer else told


def _check_latencies(result: Result, path: Path) -> None:
    """Whoever reads latencies later does not know the file."""
    kept = {
        f"operations.{number}.intervals.{place}.latencies": interval.latencies
        for number, operation in enumerate(result.operations)
        for place, interval in enumerate(operation.intervals)
    }
    kept |= {
        f"generators.{number}.lateness": generator.lateness
        for number, generator in enumerate(result.generators)
    }
    for field, text in kept.items():
        try:
            merged([text])
        except BadLatencies as failure:
            raise BadResult(f"{path}: {field}: {failure}") from None


def _told(failure: ValidationError) -> str:
    errors = failure.errors(include_url=False)
    told = "; ".join(
        f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in errors[:_TOLD_MAX]
    )
    left_out = len(errors) - _TOLD_MAX
    return f"{told}; and {left_out} more" if left_out > 0 else told

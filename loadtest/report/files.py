"""The JSON file of a run."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from raylog.client.setting_definitions import SECURITY
from raylog.loadtest.report.latencies import BadLatencies, merged
from raylog.loadtest.results import Result

_FORMAT: int = get_args(Result.model_fields["format"].annotation)[0]
_SHOWN_MAX = 5
_SECRET = frozenset({one.name for one in SECURITY if one.secret} | {"sasl.jaas.config"})


class BadResult(ValueError):
    """A file that is not the JSON of a run, or has another format. The message names it."""


def as_json(result: Result) -> str:
    """The JSON of a result, without passwords and without gauge values that are not numbers."""
    return cleaned(result).model_dump_json()


def write_json(result: Result, path: Path) -> None:
    """Write `as_json` to a file."""
    write_whole(path, as_json(result))


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: it is never there in part, even if the process ends meanwhile."""
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def cleaned(result: Result) -> Result:
    """The result without passwords, since it is passed on, and without what JSON cannot hold."""
    users = [
        each.model_copy(
            update={
                "client": {
                    name: "(kept secret)" if name.replace("_", ".") in _SECRET else value
                    for name, value in each.client.items()
                }
            }
        )
        for each in result.scenario.users
    ]
    gauges = [
        each.model_copy(update={"points": [one for one in each.points if math.isfinite(one[1])]})
        for each in result.gauges
    ]
    scenario = result.scenario.model_copy(update={"users": users})
    return result.model_copy(update={"scenario": scenario, "gauges": gauges})


def read_json(path: Path) -> Result:
    """Read a file of `write_json`. Raises BadResult if it is something else, or OSError."""
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
        raise BadResult(f"{path}: {_text_of(failure)}") from None
    _check_latencies(result, path)
    return result


def _other_format(found: object) -> str:
    expected = f"expected format {_FORMAT}, found {found!r}"
    is_newer = isinstance(found, int) and found > _FORMAT
    return f"{expected}; a newer Raylog may have written it" if is_newer else expected


def _check_latencies(result: Result, path: Path) -> None:
    """Check latencies here, because later readers do not know the file."""
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


def _text_of(failure: ValidationError) -> str:
    errors = failure.errors(include_url=False)
    text = "; ".join(
        f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in errors[:_SHOWN_MAX]
    )
    left_out = len(errors) - _SHOWN_MAX
    return f"{text}; and {left_out} more" if left_out > 0 else text

"""The JSON file of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from raylog.loadtest.results import Result

_FORMAT: int = get_args(Result.model_fields["format"].annotation)[0]
_TOLD_MAX = 5


class BadResult(ValueError):
    """A file that is not the JSON of a run, or one of a newer build; the message names both."""


def write_json(result: Result, path: Path) -> None:
    """Write the file. It is there whole or not at all: a run that is ended leaves no half."""
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(result.model_dump_json())
    os.replace(unfinished, path)


def read_json(path: Path) -> Result:
    """Read what `write_json` wrote; BadResult if it is something else, OSError if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as failure:
        raise BadResult(f"{path}: not JSON, or cut off: {failure}") from None
    if not isinstance(found, dict) or "format" not in found:
        raise BadResult(f"{path}: expected the JSON of a load test, found no field 'format'")
    if found["format"] != _FORMAT:
        raise BadResult(
            f"{path}: expected format {_FORMAT}, found {found['format']!r}; "
            "a newer Raylog may have written it"
        )
    try:
        return Result.model_validate_json(json.dumps(found))
    except ValidationError as failure:
        raise BadResult(f"{path}: {_told(failure)}") from None


def _told(failure: ValidationError) -> str:
    errors = failure.errors(include_url=False)
    told = "; ".join(
        f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in errors[:_TOLD_MAX]
    )
    left_out = len(errors) - _TOLD_MAX
    return f"{told}; and {left_out} more" if left_out > 0 else told

"""A pipeline's failures and their messages for users."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE_CHARS_MAX = 500
_TRACEBACK = "Traceback (most recent call last):\n"
_CAUSE = re.compile(r"Caused by: (?:[\w.$]+: )?(.+)")


class PipelineFailed(Exception):
    """The pipeline has ended; when it is started again, it continues where it was."""

    hint: str | None = None
    """What to do about it."""


class BatchNotWritten(PipelineFailed):
    """Rows of a batch cannot be written, or not now."""

    hint = "Nothing of the batch is visible; the next run writes it first"


class BadInput(PipelineFailed):
    """A record does not parse, and no topic is set for such records."""

    hint = "Name a topic for such records in the pipeline's file: dead_letters"


def first_line(failure: BaseException) -> str:
    """Return the main line of an error, without Spark's plans and stack traces."""
    if isinstance(failure, KeyboardInterrupt):
        return "interrupted"
    text = str(failure).strip()
    for line in text.partition(_TRACEBACK)[2].splitlines():
        if line and not line[0].isspace():
            return line[:_LINE_CHARS_MAX]  # what Python code raised on an executor
    cause = _CAUSE.findall(text)
    lines = (cause[-1] if cause else text).splitlines() or [type(failure).__name__]
    return lines[0].strip().rstrip(";")[:_LINE_CHARS_MAX]


@contextmanager
def failing_as(kind: Callable[[str], Exception], where: str) -> Iterator[None]:
    """Turn Spark's errors into failures that name a field of the pipeline."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as failure:
        raise kind(f"{where}: {first_line(failure)}") from failure

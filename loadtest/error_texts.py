"""Counts errors by their text."""

from __future__ import annotations

from collections import Counter

OTHER_ERRORS = "other errors"
_TEXTS_MAX = 100


def count_error(errors: Counter[str], text: str, count: int = 1) -> int:
    """Count errors with a text. Returns the new count.

    When there are many texts, new ones are counted as `OTHER_ERRORS`.
    """
    is_new = text not in errors and len(errors) >= _TEXTS_MAX - 1
    counted_as = OTHER_ERRORS if is_new else text
    errors[counted_as] += count
    return errors[counted_as]


def is_logged(times: int) -> bool:
    """Whether to log the `times`-th occurrence of an error: the 1st, 10th, 100th..."""
    return str(times).rstrip("0") == "1"

"""How often each error was seen, by its text."""

from __future__ import annotations

from collections import Counter

OTHER_ERRORS = "other errors"
_TEXTS_MAX = 100


def count_error(errors: Counter[str], text: str, count: int = 1) -> int:
    """Add errors of a text; returns how many there are.

    Those of new texts are `OTHER_ERRORS` once there are many.
    """
    is_new = text not in errors and len(errors) >= _TEXTS_MAX - 1
    counted_as = OTHER_ERRORS if is_new else text
    errors[counted_as] += count
    return errors[counted_as]


def is_logged(times: int) -> bool:
    """Whether an error is logged that was now seen so often: the 1st, 10th, 100th..."""
    return str(times).rstrip("0") == "1"

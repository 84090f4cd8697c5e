"""How often each error was seen, by its text."""

from __future__ import annotations

from collections import Counter

OTHER_ERRORS = "other errors"
_TEXTS_MAX = 100


def count_error(errors: Counter[str], text: str, count: int = 1) -> None:
    """Add errors of a text; those of new texts are `OTHER_ERRORS` once there are many."""
    is_new = text not in errors and len(errors) >= _TEXTS_MAX - 1
    errors[OTHER_ERRORS if is_new else text] += count

"""Regular expressions that come from outside, in time linear in the text: RE2's, as in Kafka.

Python's own would take exponential time for some, and nothing else runs in the process meanwhile.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, cast

import re2

PATTERN_BYTES_MAX = 8 << 20
"""Memory that one compiled pattern may take."""
_KEPT = 128
"""Compiled patterns that are kept."""


class Pattern(Protocol):
    """What is used of a compiled pattern; the package has no types."""

    def fullmatch(self, text: str) -> object | None:
        """Not None if the whole text matches."""

    def search(self, text: str) -> object | None:
        """Not None if a part of the text matches."""


class BadPattern(ValueError):
    """A pattern that RE2 does not take; the message is RE2's."""


@lru_cache(_KEPT)
def compiled(pattern: str) -> Pattern:
    """A pattern, ready for matching; raises BadPattern."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return cast(Pattern, re2.compile(pattern, options))
    except re2.error as wrong:
        said = wrong.args[0]
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise BadPattern(text) from wrong
    except UnicodeEncodeError as wrong:
        raise BadPattern(f"no Unicode text: {wrong}") from wrong

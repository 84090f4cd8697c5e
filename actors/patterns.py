"""Untrusted regular expressions, matched in linear time by RE2, as in Kafka.

Python's `re` would take exponential time for some and block the process meanwhile.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, cast

import re2

PATTERN_BYTES_MAX = 4_096
UNICODE_CLASSES_MAX = 16
"""Per pattern, such as `\\pL`. Matching takes linear time, but compiling does not: with these
limits it takes less than 50 ms, without them 24,000 bytes have taken 3 s."""
COMPILED_BYTES_MAX = 1 << 20
"""Maximum memory for one compiled pattern."""
PROGRAM_MAX = 2_000
"""Maximum instructions of one compiled pattern: RE2 may run all of them for each character, at
0.7 ns each. A Unicode class has up to 1,200."""
STEPS_MAX = 20_000_000
"""Maximum instructions times characters per turn of the event loop."""
_TEXT_STEPS = 3_500
"""Fixed cost of matching a text, however short."""
_KEPT = 128
"""Compiled patterns to cache."""


class Pattern(Protocol):
    """The part of a compiled pattern that is used; the package has no type annotations."""

    def fullmatch(self, text: str) -> object | None:
        """Return a match object if the whole text matches."""

    @property
    def programsize(self) -> int:
        """Number of instructions."""

    def search(self, text: str) -> object | None:
        """Return a match object if a part of the text matches."""


class BadPattern(ValueError):
    """A pattern that RE2 rejects, with its message, or that takes too long to compile."""


@lru_cache(_KEPT)
def compiled(pattern: str) -> Pattern:
    """Return a compiled pattern; raises BadPattern."""
    if len(pattern.encode("utf-8", "replace")) > PATTERN_BYTES_MAX:
        raise BadPattern(f"it has more than {PATTERN_BYTES_MAX} bytes")
    if pattern.count(r"\p") + pattern.count(r"\P") > UNICODE_CLASSES_MAX:
        raise BadPattern(f"it has more than {UNICODE_CLASSES_MAX} Unicode classes")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = COMPILED_BYTES_MAX
    options.never_capture = True
    try:
        found = cast(Pattern, re2.compile(pattern, options))
    except re2.error as wrong:
        said = wrong.args[0]
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise BadPattern(text) from wrong
    except UnicodeEncodeError as wrong:
        raise BadPattern(f"it is not Unicode text: {wrong}") from wrong
    if found.programsize > PROGRAM_MAX:
        raise BadPattern(f"it takes {found.programsize} instructions, more than {PROGRAM_MAX}")
    return found


def steps_of(pattern: Pattern, text: str) -> int:
    """Return an upper bound for the steps to match a text."""
    return _TEXT_STEPS + pattern.programsize * len(text)

"""Regular expressions from outside: what they match, and how long they may take."""

from __future__ import annotations

import pytest

from raylog.actors.patterns import (
    PATTERN_BYTES_MAX,
    UNICODE_CLASSES_MAX,
    BadPattern,
    compiled,
)
from tests.support.cpu_time import cpu_s


def test_a_pattern_matches_a_part_or_the_whole() -> None:
    pattern = compiled("(a|b)+[0-9]")
    assert pattern.fullmatch("ab1")
    assert not pattern.fullmatch("ab1c")
    assert pattern.search("xab1c")
    assert compiled(r"\pL+").fullmatch("grüße")


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "\ud800", "((a{100}){100}){100}"])
def test_what_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        compiled(pattern)


@pytest.mark.parametrize(
    "part", [r"\pL", r"(?i)\PL", "a?", ".{999}", "(a*)*", "(?i)[\u0100-\U0010ff00]", r"(?i)\W"]
)
@pytest.mark.parametrize("size", [PATTERN_BYTES_MAX, 32_767])
def test_no_pattern_holds_the_loop_for_long(part: str, size: int) -> None:
    pattern = part * (size // len(part.encode()))

    def matching() -> None:
        compiled.cache_clear()
        try:
            compiled(pattern).fullmatch("a" * 249)
        except BadPattern:
            too_long = len(pattern.encode()) > PATTERN_BYTES_MAX
            assert too_long or len(pattern) > 2 * UNICODE_CLASSES_MAX

    assert cpu_s(matching, 0.25) < 0.25

"""Regular expressions from outside: what they match, and how much time they may take."""

from __future__ import annotations

import pytest

from raylog.actors.patterns import (
    PATTERN_BYTES_MAX,
    PROGRAM_MAX,
    STEPS_MAX,
    BadPattern,
    compiled,
    steps_of,
)
from tests.support.cpu_time import cpu_s


def test_a_pattern_matches_a_part_or_the_whole() -> None:
    pattern = compiled("(a|b)+[0-9]")
    assert pattern.fullmatch("ab1")
    assert not pattern.fullmatch("ab1c")
    assert pattern.search("xab1c")
    assert compiled(r"\pL+").fullmatch("grüße")


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "\ud800", "((a{100}){100}){100}"])
def test_invalid_pattern_is_refused(pattern: str) -> None:
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
            return

    assert cpu_s(matching, 0.05) < 0.25


def test_a_program_has_so_many_instructions() -> None:
    assert compiled("a" * (PROGRAM_MAX - 10)).programsize <= PROGRAM_MAX
    with pytest.raises(BadPattern, match="instructions"):
        compiled("a" * PROGRAM_MAX)


@pytest.mark.parametrize("part", ["(.*a.{9})?", ".*a.{9}", "(a?){3}", ".*a", "[^a]?"])
@pytest.mark.parametrize("length", [1, 249])
def test_matching_in_one_turn_takes_less_than_50_ms(part: str, length: int) -> None:
    """RE2 that has no room for states looks at each instruction for each character."""
    pattern = "x"
    while True:
        try:
            compiled(pattern + part)
        except BadPattern:
            break
        pattern += part
    found = compiled(pattern)
    texts = [f"{number:6}{'aXb.c_' * 41}"[-length:] for number in range(6_000)]

    def matching() -> None:
        left = STEPS_MAX
        for text in texts:
            left -= steps_of(found, text)
            if left < 0:
                return
            found.fullmatch(text)

    assert cpu_s(matching, 0.05) < 0.05

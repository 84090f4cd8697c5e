"""Which tests are assumed to execute a mistake, and in which order they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.covering import Covering, Recorded
from tests.mutants.operators import Mutant

PATH = Path("storage/example.py")
SOURCE = b"""\
def example(a, b):
    c = call(
        a,
        b,
    )
    if (a
            and b):
        return c
    return b
"""


def recorded(file: str, seconds: float, *lines: int) -> Recorded:
    """One test of a file that executes these lines."""
    found = {str(line): [0] for line in lines}
    return {"tests": [f"{file}::test"], "seconds": [seconds], "lines": {str(PATH): found}}


def at(line: int, length: int = 0) -> Mutant:
    """A mistake that begins in a line."""
    start = sum(map(len, SOURCE.splitlines(keepends=True)[: line - 1])) + 1
    return Mutant(PATH, start, start + length, "", "example", line)


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (at(1), set()),
        (at(2), {2}),
        (at(4), {2}),  # one statement: a traced line stands for all of it
        (at(6), {6}),
        (at(7), {6}),
        (at(8), {8}),
        (at(9), {9}),
        (at(6, length=40), {6, 8}),
    ],
    ids=lambda found: str(found.line) if isinstance(found, Mutant) else "",
)
def test_tests_that_execute_the_statement_are_found(mutant: Mutant, expected: set[int]) -> None:
    covering = Covering()
    for line in (2, 6, 8, 9):
        covering.add(recorded(str(line), 1, line))
    found = covering.tests_of(mutant, SOURCE)
    assert {int(test.partition("::")[0]) for tests in found for test in tests} == expected


def test_tests_of_the_area_come_first_and_quick_ones_before_slow_ones() -> None:
    covering = Covering()
    for file, seconds in (("cli/a", 0.1), ("storage/slow", 2), ("storage/quick", 1), ("cli/b", 0)):
        covering.add(recorded(file, seconds, 9))
    found = covering.tests_of(at(9), SOURCE, ("storage",))
    files = [test.partition("::")[0] for tests in found for test in tests]
    assert files == ["storage/quick", "storage/slow", "cli/b", "cli/a"]

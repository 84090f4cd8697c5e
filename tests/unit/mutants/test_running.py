"""What the mutation tool makes of tests that fail with a mistake, without it, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.covering import Covering
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.running import FAILED, Copy

PATH = Path("storage/small.py")
PLACE = "tests/unit/storage/test_small.py"
NOTHING = Covering()
SOURCE = b"def is_small(count) -> bool:\n    return count < 3\n"
TESTS = """
import random
import pytest
from storage.small import is_small

def test_broken_before():
    assert False

@pytest.mark.parametrize("count", [3], ids=["just - not [any] more"])
def test_the_bound(count):
    assert not is_small(count)
"""


def tree(directory: Path, tests: str, covering: Covering = NOTHING) -> Copy:
    """A copy of a small tree with these tests of its storage."""
    for name, text in [(str(PATH), SOURCE.decode()), (PLACE, tests)]:
        (directory / "origin" / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / "origin" / name).write_text(text)
    return Copy.made_in(directory, covering, directory / "origin")


def boundary() -> Mutant:
    return next(one for one in mutants_of(PATH, SOURCE) if one.operator == "comparison")


def test_the_first_test_that_tells_the_difference_is_named(tmp_path: Path) -> None:
    copy = tree(tmp_path, TESTS)
    verdict = copy.judge("storage", boundary(), ["area"])
    assert verdict.found_by == f"{PLACE}::test_the_bound[just - not [any] more]"
    assert verdict.remark == f"{PLACE}::test_broken_before is not sure to tell the difference"
    assert (copy.root / PATH).read_bytes() == (tmp_path / "origin" / PATH).read_bytes() == SOURCE


def covered_by(*tests: str, line: int = 2) -> Covering:
    """What is recorded where each of these tests executes one line."""
    found = Covering()
    numbers = list(range(len(tests)))
    names = [f"{PLACE}::{test}" for test in tests]
    lines = {str(PATH): {str(line): numbers}}
    found.add({"tests": names, "seconds": [0.0] * len(tests), "lines": lines})
    return found


def test_only_tests_that_execute_the_line_are_run_first(tmp_path: Path) -> None:
    bound = "test_the_bound[just - not [any] more]"
    found = tree(tmp_path / "found", TESTS, covered_by(bound))
    verdict = found.judge("storage", boundary(), ["covering"])
    assert (verdict.found_by, verdict.remark) == (f"{PLACE}::{bound}", "")
    elsewhere = tree(tmp_path / "elsewhere", TESTS, covered_by(bound, line=1))
    assert elsewhere.judge("storage", boundary(), ["covering"]).found_by is None


def test_a_mistake_that_no_test_finds_survives(tmp_path: Path) -> None:
    verdict = tree(tmp_path, "def test(): pass").judge("storage", boundary(), ["area", "unit"])
    assert (verdict.found_by, verdict.remark) == (None, "")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("FAILED tests/a.py::test_b - assert 1", "tests/a.py::test_b"),
        ("FAILED tests/a.py::test_b", "tests/a.py::test_b"),
        ("FAILED tests/a.py::TestB::test_c[x - y] - E: [1]", "tests/a.py::TestB::test_c[x - y]"),
        ("ERROR tests/a.py - ImportError: x", "tests/a.py"),
        ("ERROR tests/a.py", "tests/a.py"),
    ],
)
def test_names_are_read_from_what_pytest_prints(line: str, name: str) -> None:
    found = FAILED.search(f"= short test summary info =\n{line}\n1 failed in 2s")
    assert found is not None
    assert found[1] == name

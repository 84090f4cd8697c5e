"""How the mutation tool judges tests that fail with a mistake, without it, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.covering import Covering
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.running import FAILED, Copy

PATH = Path("storage/small.py")
PLACE = "tests/unit/storage/test_small.py"
BOUND = f"{PLACE}::test_the_bound[just - not [any] more]"
BROKEN = f"{PLACE}::test_broken_before"
SOURCE = b"def is_small(count) -> bool:\n    return count < 3\n"
TESTS = """
import pytest
from storage.small import is_small

@pytest.mark.parametrize("count", [3], ids=["just - not [any] more"])
def test_the_bound(count):
    assert not is_small(count)
"""


def tree(directory: Path) -> Path:
    """A small tree, with its tests."""
    for name, text in [(str(PATH), SOURCE.decode()), (PLACE, TESTS)]:
        (directory / "origin" / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / "origin" / name).write_text(text)
    return directory / "origin"


class ScriptedCopy(Copy):
    """A copy that needs no processes: a script says which tests fail with a mistake, and always."""

    finding: tuple[str, ...]
    broken: tuple[str, ...]

    @staticmethod
    def of(
        directory: Path,
        finding: tuple[str, ...] = (),
        broken: tuple[str, ...] = (),
        covering: Covering | None = None,
    ) -> ScriptedCopy:
        made = Copy.made_in(directory, covering or Covering(), tree(directory))
        copied = ScriptedCopy(made.root, made.origin, made.covering)
        object.__setattr__(copied, "finding", finding)
        object.__setattr__(copied, "broken", broken)
        return copied

    def _run(self, asked: Sequence[str]) -> str | None:
        is_mistaken = (self.root / PATH).read_bytes() != SOURCE
        failing = self.broken + (self.finding if is_mistaken else ())
        for test in failing:
            is_asked = any(test.startswith(name) for name in asked)
            if is_asked and f"--deselect={test}" not in asked:
                return f"FAILED {test} - assert 1\n"
        return None


def boundary() -> Mutant:
    return next(one for one in mutants_of(PATH, SOURCE) if one.operator == "comparison")


def test_the_first_test_that_tells_the_difference_is_named(tmp_path: Path) -> None:
    copy = ScriptedCopy.of(tmp_path, finding=(BOUND,), broken=(BROKEN,))
    verdict = copy.judge("storage", boundary(), ["area"])
    assert verdict.found_by == BOUND
    assert verdict.remark == f"{BROKEN} is not sure to tell the difference"
    assert (copy.root / PATH).read_bytes() == (tmp_path / "origin" / PATH).read_bytes() == SOURCE


def covered_by(test: str, line: int = 2) -> Covering:
    """What is recorded where this test executes one line."""
    found = Covering()
    found.add({"tests": [test], "seconds": [0.0], "lines": {str(PATH): {str(line): [0]}}})
    return found


def test_only_tests_that_execute_the_line_are_run_first(tmp_path: Path) -> None:
    found = ScriptedCopy.of(tmp_path / "found", (BOUND,), (BROKEN,), covered_by(BOUND))
    verdict = found.judge("storage", boundary(), ["covering"])
    assert (verdict.found_by, verdict.remark) == (BOUND, "")
    elsewhere = ScriptedCopy.of(tmp_path / "elsewhere", (BOUND,), (), covered_by(BOUND, line=1))
    assert elsewhere.judge("storage", boundary(), ["covering"]).found_by is None


def test_a_mistake_that_no_test_finds_survives(tmp_path: Path) -> None:
    verdict = ScriptedCopy.of(tmp_path).judge("storage", boundary(), ["area", "unit"])
    assert (verdict.found_by, verdict.remark) == (None, "")


@pytest.mark.long
def test_pytest_runs_in_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than the test
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_timeout")
    copy = Copy.made_in(tmp_path, covered_by(BOUND), tree(tmp_path))
    assert copy.judge("storage", boundary(), ["covering"]).found_by == BOUND


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

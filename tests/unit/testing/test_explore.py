"""Exploring with new examples: failures are kept, come first, and do not fail the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explore import PASSED, explore_all

SECONDS = 600.0
"""Far more than it takes: what ends the run is the number of rounds."""
FAILING = """
from hypothesis import given, strategies as st

@given(st.integers(0, 10_000))
def test_small(number: int) -> None:
    assert number < LIMIT
"""


@pytest.fixture
def test(tmp_path: Path) -> Path:
    profiles = (Path(__file__).parents[2] / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(profiles)
    return tmp_path / "test_small.py"


@pytest.mark.long
def test_a_failure_is_kept_until_it_is_mended(
    test: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    test.write_text(FAILING.replace("LIMIT", "7"))
    assert explore_all([test], kept, SECONDS, rounds=1) == PASSED
    text = (kept / "test_small.txt").read_text()
    assert "number=7" in text, "the smallest example"
    assert "reproduce_failure" in text
    assert "RAYLOG_EXPLORE=1" in text
    assert "number=7" in capsys.readouterr().out
    assert list((kept / "examples").rglob("*"))

    assert explore_all([test], kept, SECONDS, rounds=0) == PASSED
    assert "mended first: test_small" in capsys.readouterr().out
    assert (kept / "test_small.txt").exists(), "it fails as before"

    test.write_text(FAILING.replace("LIMIT", "10_001"))
    assert explore_all([test], kept, SECONDS, rounds=0) == PASSED
    assert "mended: " in capsys.readouterr().out
    assert not (kept / "test_small.txt").exists()


def test_tests_that_cannot_be_run_fail_the_run(test: Path, tmp_path: Path) -> None:
    test.write_text("import what_is_not_there\n")
    assert explore_all([test], tmp_path / "kept", SECONDS, rounds=1) > 1

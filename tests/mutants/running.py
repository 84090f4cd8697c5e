"""Makes one mistake after the other in a copy of the tree, and runs tests there until one fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.drawing import ROOT, UNIT_TESTS, source_of
from tests.mutants.operators import Mutant

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", ".cache", ".*_cache", ".hypothesis", "*.egg-info"
)
STAGES = {
    "area": (),
    "unit": ("tests/unit",),
    "property": ("tests/property", "tests/fuzz", "tests/golden", "tests/compat"),
    "sim": ("tests/sim",),
}
"""What is run in this order; `area` stands for the unit tests of the mistake's area."""
TEST_TIMEOUT_S = 120
STAGE_TIMEOUT_S = 1_800
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py\S*(?:\[.*?\])?)", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """The test that found a mistake, or None; what was seen instead; seconds it took."""

    found_by: str | None
    remark: str
    seconds: float


@dataclass(frozen=True)
class Copy:
    """A copy of the tree in which mistakes are made, one at a time."""

    root: Path

    @staticmethod
    def made_in(directory: Path) -> Copy:
        """Copy the tree, links as links, so that `raylog/storage` is the copy's."""
        shutil.copytree(ROOT, directory / "tree", symlinks=True, ignore=LEFT_OUT)
        (directory / "tree" / ".venv").symlink_to(ROOT / ".venv")
        return Copy(directory / "tree")

    def judge(self, area: str, mutant: Mutant, stages: Sequence[str]) -> Verdict:
        """Make a mistake, run the stages until a test fails, and take the mistake back.

        A test that fails without the mistake as well has found nothing: the stage goes on without
        it. A stage that takes too long counts as found, because nobody would overlook it.
        """
        began = time.monotonic()
        remarks: list[str] = []
        for stage in stages:
            paths = UNIT_TESTS[area] if stage == "area" else STAGES[stage]
            passed_before = UNIT_TESTS[area] if stage == "unit" and "area" in stages else ()
            left_out = [f"--ignore={path}" for path in passed_before]
            while True:
                output = self._run_with(mutant, [*paths, *left_out])
                if output is None:
                    break
                failing = FAILED.search(output)
                test = failing[1] if failing else f"{stage}: {output.strip()[-200:]}"
                if failing is None or self._run([test]) is None:
                    return Verdict(test, "; ".join(remarks), time.monotonic() - began)
                remarks.append(f"{test} fails without it, too")
                left_out.append(f"--deselect={test}")
        return Verdict(None, "; ".join(remarks), time.monotonic() - began)

    def _run_with(self, mutant: Mutant, asked: Sequence[str]) -> str | None:
        place = self.root / mutant.path
        place.write_bytes(mutant.applied(source_of(mutant)))
        try:
            return self._run(asked)
        finally:
            shutil.copy2(ROOT / mutant.path, place)  # with its time: compiled code is told by it

    def _run(self, asked: Sequence[str]) -> str | None:
        """The output if a test failed, None if all passed."""
        options = ["-x", "-q", "-p", "no:randomly", f"--timeout={TEST_TIMEOUT_S}", "--tb=short"]
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *asked],
                cwd=self.root,
                env=os.environ | {"PYTHONPATH": str(self.root)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=STAGE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {STAGE_TIMEOUT_S} s"
        return ended.stdout if ended.returncode else None

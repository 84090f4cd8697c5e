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

from tests.mutants.drawing import ROOT, UNIT_TESTS
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
NONE_FAILED = {0, 5}
"""What pytest ends with if all tests passed, or there are none."""
STAGE_TIMEOUT_S = 1_800
FAILED = re.compile(
    r"^(?:FAILED|ERROR) (\S+?\.py(?:::[\w:]+)?(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE
)


@dataclass(frozen=True)
class Verdict:
    """The test that found a mistake, or None; what was seen instead; seconds it took."""

    found_by: str | None
    remark: str
    seconds: float


@dataclass(frozen=True)
class Copy:
    """A copy of a tree in which mistakes are made, one at a time."""

    root: Path
    origin: Path

    @staticmethod
    def made_in(directory: Path, origin: Path = ROOT) -> Copy:
        """Copy the tree, links as links, so that `raylog/storage` is the copy's."""
        root = directory / "tree"
        shutil.copytree(origin, root, symlinks=True, ignore=LEFT_OUT)
        (root / ".venv").symlink_to(origin / ".venv")
        return Copy(root, origin)

    def judge(self, area: str, mutant: Mutant, stages: Sequence[str]) -> Verdict:
        """Make a mistake, run the stages until a test fails, and take the mistake back.

        A test counts if it fails again with the mistake and passes without. If not, the stage goes
        on without that test.
        """
        began = time.monotonic()
        remarks: list[str] = []
        for stage in stages:
            asked = list(UNIT_TESTS[area] if stage == "area" else STAGES[stage])
            if stage == "unit" and "area" in stages:
                asked += [f"--ignore={path}" for path in UNIT_TESTS[area]]
            while (output := self._run_with(mutant, asked)) is not None:
                failed = FAILED.search(output)
                if failed is None:
                    tail = " ".join(output.split())[-200:]
                    return Verdict(f"{stage}: {tail}", "; ".join(remarks), _since(began))
                test = failed[1]
                if self._run([test]) is None and self._run_with(mutant, [test]) is not None:
                    return Verdict(test, "; ".join(remarks), _since(began))
                remarks.append(f"{test} is not sure to tell the difference")
                asked.append(f"--deselect={test}")
        return Verdict(None, "; ".join(remarks), _since(began))

    def _run_with(self, mutant: Mutant, asked: Sequence[str]) -> str | None:
        source, place = self.origin / mutant.path, self.root / mutant.path
        place.write_bytes(mutant.applied(source.read_bytes()))
        try:
            return self._run(asked)
        finally:
            shutil.copy2(source, place)  # with its time, by which compiled code is told

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
        return None if ended.returncode in NONE_FAILED else ended.stdout


def _since(began: float) -> float:
    return time.monotonic() - began

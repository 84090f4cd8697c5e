"""Makes one mistake after another in a copy of the tree, and runs tests there until one fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.covering import Covering
from tests.mutants.drawing import ROOT, UNIT_TESTS, source_of
from tests.mutants.operators import Mutant

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", ".cache", ".*_cache", ".hypothesis", "*.egg-info"
)
STAGES = {
    "covering": (),
    "area": (),
    "unit": ("tests/unit",),
    "property": ("tests/property", "tests/fuzz", "tests/golden", "tests/compat"),
    "sim": ("tests/sim",),
}
"""The tests to run, in this order.

`covering` stands for the unit tests that execute the lines of the mistake, `area` for the unit
tests of the mistake's area.
"""
FILES_AT_ONCE = (3, 12, 1_000)
"""Files to run together: the first ones find most mistakes, and loading all takes 25 s."""
TEST_TIMEOUT_S = 60
NONE_FAILED = {0, 5}
"""Exit codes of pytest if all tests passed, or if there are none."""
STAGE_TIMEOUT_S = 1_800
FAILED = re.compile(
    r"^(?:FAILED|ERROR) (\S+?\.py(?:::[\w:]+)?(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE
)


@dataclass(frozen=True)
class Verdict:
    """The test that found a mistake, or None; what was seen instead; the seconds it took."""

    found_by: str | None
    remark: str
    seconds: float


@dataclass(frozen=True)
class Copy:
    """A copy of a tree in which mistakes are made, one at a time."""

    root: Path
    origin: Path
    covering: Covering

    @staticmethod
    def made_in(directory: Path, covering: Covering, origin: Path = ROOT) -> Copy:
        """Copy the tree. Links stay links, so that `raylog/storage` is the copy's."""
        root = directory / "tree"
        shutil.copytree(origin, root, symlinks=True, ignore=LEFT_OUT)
        (root / ".venv").symlink_to(origin / ".venv")
        return Copy(root, origin, covering)

    def judge(self, area: str, mutant: Mutant, stages: Sequence[str]) -> Verdict:
        """Make a mistake, run the stages until a test fails, and undo the mistake.

        A failed test counts if it fails again with the mistake and passes without it. Otherwise the
        stage continues without that test.
        """
        began = time.monotonic()
        remarks: list[str] = []
        for stage, asked in self._runs(area, mutant, stages):
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

    def _runs(
        self, area: str, mutant: Mutant, stages: Sequence[str]
    ) -> Iterator[tuple[str, list[str]]]:
        for stage in stages:
            if stage == "covering":
                source = source_of(mutant, self.origin)
                files = self.covering.tests_of(mutant, source, UNIT_TESTS[area])
                for count in FILES_AT_ONCE:
                    if files:
                        yield stage, [test for file in files[:count] for test in file]
                    files = files[count:]
                continue
            asked = list(UNIT_TESTS[area] if stage == "area" else STAGES[stage])
            if stage == "unit" and "area" in stages:
                asked += [f"--ignore={path}" for path in UNIT_TESTS[area]]
            yield stage, asked

    def _run_with(self, mutant: Mutant, asked: Sequence[str]) -> str | None:
        source, place = self.origin / mutant.path, self.root / mutant.path
        place.write_bytes(mutant.applied(source.read_bytes()))
        try:
            return self._run(asked)
        finally:
            shutil.copy2(source, place)  # with its time, by which Python recognizes compiled code

    def _run(self, asked: Sequence[str]) -> str | None:
        """The output if a test failed, None if all passed."""
        options = ["-x", "-q", "-p", "no:randomly", f"--timeout={TEST_TIMEOUT_S}", "--tb=short"]
        named = self.root.parent / "asked"  # a command line cannot hold a thousand names
        named.write_text("\n".join(asked))
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", *options, f"@{named}"],
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

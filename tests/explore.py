"""Run property tests with new examples for a while: `make explore`.

Failures are printed and kept in `.cache/explored`: a text, `<test>.txt`, and the example in
Hypothesis's database (`examples/`), with which the next run begins. If a test passes then, it is
fixed, and its text is removed. A failure does not fail the run, because it says nothing about the
change under test. Tests that cannot run do fail it.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).parent.parent
KEPT = ROOT / ".cache/explored"
AT_ONCE = 2
PASSED, FAILED = 0, 1
"""Exit codes of pytest. Those above mean that tests did not run."""
SHORTEST_S = 5
"""No test begins with less time than this."""
ROUNDS_MAX = 1_000


@dataclass(frozen=True)
class Outcome:
    """The result of one test file; `code` is pytest's exit code."""

    test: Path
    code: int
    output: str


@dataclass
class Exploration:
    """The tests to explore, the place of failures, and the end on the monotonic clock."""

    tests: Sequence[Path]
    kept: Path
    ends_at: float
    outcomes: list[Outcome] = field(default_factory=list)
    _over: set[Path] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    @property
    def left_s(self) -> float:
        """The remaining seconds."""
        return self.ends_at - time.monotonic()

    def text_of(self, test: Path) -> Path:
        """The file that describes a test's failure."""
        named = test.relative_to(ROOT) if test.is_relative_to(ROOT) else Path(test.name)
        return self.kept / (".".join(named.with_suffix("").parts) + ".txt")

    @property
    def failing(self) -> list[Path]:
        """The tests with a kept failure."""
        return [test for test in self.tests if self.text_of(test).exists()]

    def work(self, order: Iterator[Path]) -> None:
        """Explore one test after another until time is up. Tests that failed are skipped."""
        while self.left_s >= SHORTEST_S:
            with self._lock:
                test = next(order, None)
            if test is None:
                return
            found = self.explore(test)
            if found is not None:
                with self._lock:
                    self.note(found)

    def order(self, rounds: int) -> Iterator[Path]:
        """Tests that failed in an earlier run, then all in random order."""
        yield from self.failing
        for _ in range(rounds):
            for test in random.sample(self.tests, len(self.tests)):
                if test not in self._over:
                    yield test

    def explore(self, test: Path) -> Outcome | None:
        """Run one test file. Returns None if time is up before it ends."""
        env = os.environ | {"RAYLOG_EXPLORE": "1", "RAYLOG_EXPLORED": str(self.kept)}
        asked = ["-q", "--timeout=0", str(test)]
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", *asked],
                cwd=ROOT,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=max(self.left_s, 1),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        return Outcome(test, ended.returncode, ended.stdout)

    def note(self, found: Outcome) -> None:
        """Report the result of a test, and keep a failure for the next run."""
        self.outcomes.append(found)
        if found.code != PASSED:
            self._over.add(found.test)
        text = self.text_of(found.test)
        if found.code == FAILED:
            head = f"{time.strftime('%Y-%m-%d %H:%M:%S')}, commit {_commit()}"
            again = f"RAYLOG_EXPLORE=1 {sys.executable} -m pytest {found.test}"
            text.write_text(f"{head}\nagain: {again}\n\n{found.output}")
            _say(f"FAILED, kept as {text}:\n{found.output}\nagain: {again}")
        elif found.code != PASSED:
            _say(f"{found.test} cannot be run:\n{found.output}")
        elif text.exists():
            text.unlink()
            _say(f"mended: {found.test} passes with the example that was kept")


def property_tests() -> list[Path]:
    """The files of tests that draw examples."""
    places = (ROOT / "tests/property", ROOT / "tests/unit")
    found = [test for place in places for test in place.rglob("test_*.py")]
    return sorted(test for test in found if "from hypothesis import" in test.read_text())


def explore_all(tests: Sequence[Path], kept: Path, seconds: float, rounds: int = ROUNDS_MAX) -> int:
    """Explore tests for some seconds. Returns the exit code."""
    (kept / "examples").mkdir(parents=True, exist_ok=True)
    exploration = Exploration(tests, kept, time.monotonic() + seconds)
    first = exploration.failing
    if first:
        _say(f"failed before, and to be mended first: {_names(first)}")
    order = exploration.order(rounds)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for worker in [pool.submit(exploration.work, order) for _ in range(AT_ONCE)]:
            worker.result()
    outcomes, failing = exploration.outcomes, exploration.failing
    _say(f"{len(outcomes)} runs of {len({one.test for one in outcomes})} of {len(tests)} files")
    _say(f"to be mended: {_names(failing)}, see {kept}" if failing else "no failure is known")
    return max((one.code for one in outcomes if one.code != FAILED), default=PASSED)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what it is run for


def _names(tests: Sequence[Path]) -> str:
    return ", ".join(test.stem for test in tests)


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main() -> int:
    """Explore as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--keep", type=Path, default=KEPT, help="where failures are kept")
    asked = parser.parse_args()
    return explore_all(property_tests(), asked.keep.absolute(), asked.seconds)


if __name__ == "__main__":
    sys.exit(main())

"""The unit tests that execute a line, recorded once for each state of the tree."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from tests.mutants.drawing import AREAS, ROOT
from tests.mutants.operators import Mutant

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
KEPT = ROOT / ".cache" / "mutants"
UNIT = ROOT / "tests" / "unit"


class Recorded(TypedDict):
    """What a test file executes: its tests, their seconds, and test numbers by path and line."""

    tests: list[str]
    seconds: list[float]
    lines: dict[str, dict[str, list[int]]]


@dataclass
class Covering:
    """The unit tests that execute each line of the areas."""

    _files: list[Recorded] = field(default_factory=list)

    def add(self, recorded: Recorded) -> None:
        """Add the recording of one test file."""
        self._files.append(recorded)

    def tests_of(
        self, mutant: Mutant, source: bytes, first: tuple[str, ...] = ()
    ) -> list[list[str]]:
        """The tests that execute a mistake's lines, one list per test file.

        Tests in `first` come before others, and fast ones before slow ones.
        """
        found: list[tuple[bool, float, list[str]]] = []
        lines = [str(line) for line in _lines_of(mutant, source)]
        for file in self._files:
            places = file["lines"].get(str(mutant.path), {})
            numbers = sorted({number for line in lines for number in places.get(line, ())})
            if numbers:
                seconds = sum(file["seconds"][number] for number in numbers)
                tests = [file["tests"][number] for number in numbers]
                found.append((not tests[0].startswith(first), seconds / len(tests), tests))
        return [tests for _, _, tests in sorted(found)]


def name_of(file: str) -> str:
    """The name of a test file's recording. It changes with the file."""
    content = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
    return f"{file.removesuffix('.py').replace('/', '.')}-{content[:16]}.json"


def covering() -> Covering:
    """The recordings for this state of the tree. Missing ones are recorded first."""
    directory = KEPT / _state()
    directory.mkdir(parents=True, exist_ok=True)
    files = [str(path.relative_to(ROOT)) for path in sorted(UNIT.rglob("test_*.py"))]
    files = [file for file in files if "/mutants/" not in file]
    missing = [file for file in files if not (directory / name_of(file)).exists()]
    if missing:
        _record(missing, directory)
    found = Covering()
    for file in files:
        kept = directory / name_of(file)
        if kept.exists():  # a file whose tests are all skipped has none
            found.add(json.loads(kept.read_text()))
    return found


def _record(files: Iterable[str], directory: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile",
         "-p", "tests.mutants.recording", *files],
        cwd=ROOT,
        env=os.environ | {"RAYLOG_MUTANTS_RECORD_TO": str(directory)},
        check=False,  # tests that fail because they are measured are recorded, too
        stdout=sys.stderr,
    )  # fmt: skip


def _state() -> str:
    """The hash of the measured sources. With other sources lines have other meanings."""
    found = hashlib.sha256()
    for place in sorted(place for places in AREAS.values() for place in places):
        for path in sorted((ROOT / place).rglob("*.py")):
            found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def _lines_of(mutant: Mutant, source: bytes) -> set[int]:
    """The lines of the statements with the mistake.

    Of a compound statement, those before its body.
    """
    changed = range(mutant.line, source.count(b"\n", 0, mutant.end) + 2)
    found = set(changed)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not isinstance(node, FUNCTIONS):
            body = getattr(node, "body", None)
            end = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
            lines = range(node.lineno, max(end, node.lineno + 1))
            if lines.start < changed.stop and changed.start < lines.stop:
                found.update(lines)
    return found

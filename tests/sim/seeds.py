"""The seeds of one kind, each run once for all tests that look at it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from raylog.simulation.kinds import Kind
from raylog.simulation.run import Report, run_seed
from raylog.simulation.scenario import Plan

SEEDS_A_TEST = 5
SHARE = 16
"""`make test` runs one seed in this many."""
MORE = 3
"""Branches that the usual seeds miss are searched in up to this many times more seeds."""


_TRACE = """
from raylog.simulation.kinds import Kind
from raylog.simulation.run import run_seed
from raylog.simulation.scenario import Plan

kind = Kind("{kind}")
print(run_seed(7, Plan(kind=kind)).trace)
"""


def traces_of(kind: Kind) -> set[str]:
    """The traces of one seed in processes with different hash seeds. There must be only one."""
    return {
        subprocess.run(
            [sys.executable, "-c", _TRACE.format(kind=kind)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }


@cache
def report_of(kind: Kind, seed: int) -> Report:
    """The report of a seed."""
    return run_seed(seed, Plan(kind=kind))


def first_seeds(kind: Kind, count: int) -> Sequence[Any]:
    """The first seed of each test, or the one of KIND and SEED."""
    asked = os.environ.get("SEED")
    if not asked:
        return share_of(count)
    return [pytest.param(int(asked))] if kind is Kind(os.environ.get("KIND") or Kind.PLAIN) else []


def share_of(count: int) -> Sequence[Any]:
    """The first seed of each test. Of `count` seeds most are left to `make long`."""
    return [
        pytest.param(seed, marks=pytest.mark.long if seed * SHARE > count else ())
        for seed in range(0, count, SEEDS_A_TEST)
    ]


def passed(kind: Kind, first: int) -> Iterator[Report]:
    """The reports of one test's seeds. Each must be without violations."""
    last = first + (1 if os.environ.get("SEED") else SEEDS_A_TEST)
    for seed in range(first, last):
        report = report_of(kind, seed)
        assert report.passed, f"raylog sim --kind {kind} --seed {seed}: {report.violations[:3]}"
        yield report


def never_taken(kind: Kind, count: int) -> list[str]:
    """Branches that no seed reaches, neither the first `count` nor the additional ones."""
    missing: set[str] = set()
    taken: set[str] = set()
    for seed in range(MORE * count):
        branches = report_of(kind, seed).branches
        taken.update(name for name, times in branches.items() if times)
        missing = branches.keys() - taken
        if not missing:
            break
    return sorted(missing)

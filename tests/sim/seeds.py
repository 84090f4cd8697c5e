"""The seeds of one kind that the tests run: each once, whatever tests look at it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache

from raylog.actors.simulation.kinds import Kind
from raylog.actors.simulation.run import Report, run_seed
from raylog.actors.simulation.scenario import Plan
from raylog.simulation.kinds import simulation_of

SEEDS_A_TEST = 5
MORE = 3
"""Up to so many times as many seeds are run for branches that the usual ones do not take."""


_TRACE = """
from raylog.actors.simulation.kinds import Kind
from raylog.actors.simulation.run import run_seed
from raylog.actors.simulation.scenario import Plan
from raylog.simulation.kinds import simulation_of

kind = Kind("{kind}")
print(run_seed(7, Plan(kind=kind), simulation=simulation_of(kind)).trace)
"""


def traces_of(kind: Kind) -> set[str]:
    """The traces of one seed in processes that hash differently: there is to be one."""
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
    """What came of a seed."""
    return run_seed(seed, Plan(kind=kind), simulation=simulation_of(kind))


def first_seeds(kind: Kind, count: int) -> Sequence[int]:
    """The first seed of each test; the one that is asked for by KIND and SEED, if any is."""
    asked = os.environ.get("SEED")
    if not asked:
        return range(0, count, SEEDS_A_TEST)
    return [int(asked)] if kind is Kind(os.environ.get("KIND") or Kind.PLAIN) else []


def passed(kind: Kind, first: int) -> Iterator[Report]:
    """The reports of one test's seeds, each of which has to be without a violation."""
    last = first + (1 if os.environ.get("SEED") else SEEDS_A_TEST)
    for seed in range(first, last):
        report = report_of(kind, seed)
        assert report.passed, f"raylog sim --kind {kind} --seed {seed}: {report.violations[:3]}"
        yield report


def never_taken(kind: Kind, count: int) -> list[str]:
    """Branches that no seed takes: none of the first `count`, nor of as many more as may be run."""
    missing: set[str] = set()
    taken: set[str] = set()
    for seed in range(MORE * count):
        branches = report_of(kind, seed).branches
        taken.update(name for name, times in branches.items() if times)
        missing = branches.keys() - taken
        if not missing:
            break
    return sorted(missing)

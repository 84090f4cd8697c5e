"""Runs seeds one after another for a given time.

The next campaign continues after the last seed.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from raylog.simulation.kinds import Kind
from raylog.simulation.run import Report, run_seed
from raylog.simulation.scenario import Plan

FAILURES_MAX = 200
"""How many failing seeds are kept, each with its first violation."""
_SAVE_EVERY_S = 20.0


@dataclass(slots=True)
class Tally:
    """The totals of all campaigns that share a state file."""

    next_seed: int = 0
    seeds: int = 0
    seconds: float = 0.0
    simulated_s: float = 0.0
    steps: int = 0
    acknowledged: int = 0
    kind: Kind = Kind.PLAIN
    committed: int = 0
    aborted: int = 0
    checks: dict[str, int] = field(default_factory=dict)
    branches: dict[str, list[int]] = field(default_factory=dict)
    """By branch, how many seeds reached it and how often in total."""
    failures: dict[str, str] = field(default_factory=dict)
    """Seed to the first violation."""

    def add(self, report: Report, seconds: float) -> None:
        """Add the report of one seed."""
        self.next_seed = max(self.next_seed, report.seed + 1)
        self.seeds += 1
        self.seconds += seconds
        self.simulated_s += report.simulated_s
        self.steps += report.steps
        self.acknowledged += report.acknowledged
        self.committed += report.committed
        self.aborted += report.aborted
        self.checks = dict(Counter(self.checks) + Counter(report.counts))
        for name, times in report.branches.items():
            seeds, before = self.branches.get(name, (0, 0))
            self.branches[name] = [seeds + (times > 0), before + times]
        if not report.passed and len(self.failures) < FAILURES_MAX:
            self.failures[str(report.seed)] = report.violations[0][:300]

    def lines(self) -> Iterator[str]:
        """The totals as text, with the command that repeats each failure."""
        hours = self.simulated_s / 3600
        yield (
            f"{self.seeds} seeds, {len(self.failures)} failed; {hours:.1f} h simulated in "
            f"{self.seconds / 60:.1f} min, {self.acknowledged} acknowledged records, "
            f"{sum(self.checks.values())} checks of {len(self.checks)} properties"
        )
        if self.committed or self.aborted:
            yield f"{self.committed} transactions told to be committed, {self.aborted} aborted"
        yield from self._coverage()
        for seed, violation in self.failures.items():
            yield "  " + self.reproduced(seed, violation)

    def _coverage(self) -> Iterator[str]:
        """The branches, the rarest first."""
        yield f"{'seeds':>9} {'times':>9}  branch"
        for name, (seeds, times) in sorted(self.branches.items(), key=lambda one: one[1]):
            yield f"{seeds:>9} {times:>9}  {name}{'' if seeds else ': NEVER TAKEN'}"

    def reproduced(self, seed: int | str, violation: str) -> str:
        """The command that repeats a failure, and the violation."""
        kind = "" if self.kind is Kind.PLAIN else f"--kind {self.kind} "
        return f"raylog sim {kind}--seed {seed}    # {violation}"


def load(path: Path, kind: Kind = Kind.PLAIN) -> Tally:
    """Read the totals, empty if there is no file. Raises ValueError if they are of another kind."""
    if not path.exists():
        return Tally(kind=kind)
    values = json.loads(path.read_text(encoding="utf-8"))
    if values.pop("transactions", False):  # older campaign files name the kind this way
        values["kind"] = Kind.TRANSACTIONS
    tally = Tally(**values)
    tally.kind = Kind(tally.kind)
    if tally.kind is not kind:
        raise ValueError(f"{path} is about seeds of the kind {tally.kind}, not {kind}")
    return tally


def save(tally: Tally, path: Path) -> None:
    """Replace the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(asdict(tally), indent=1, sort_keys=True), encoding="utf-8")
    os.replace(draft, path)


def campaign(
    path: Path,
    seconds: float,
    say: Callable[[str], None],
    kind: Kind = Kind.PLAIN,
) -> Tally:
    """Run seeds for some seconds of real time, starting with the first one that has not run."""
    tally = load(path, kind)
    plan = Plan(kind=kind)
    end = time.monotonic() + seconds
    saved = time.monotonic()
    while (began := time.monotonic()) < end:
        report = run_seed(tally.next_seed, plan)
        tally.add(report, time.monotonic() - began)
        if not report.passed:
            say(tally.reproduced(report.seed, report.violations[0]))
        if not report.passed or time.monotonic() - saved > _SAVE_EVERY_S:
            save(tally, path)
            saved = time.monotonic()
    save(tally, path)
    return tally

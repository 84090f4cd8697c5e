"""Runs seeds: each is one simulation, and a report of what came of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from raylog.actors.simulation.disasters import DisasterSimulation
from raylog.actors.simulation.groups.scenario import GroupSimulation
from raylog.actors.simulation.kinds import Kind
from raylog.actors.simulation.loop import SimLoop, SimulationStuck, run_in_virtual_time
from raylog.actors.simulation.properties import Property, PropertyViolated
from raylog.actors.simulation.retention.scenario import RetentionSimulation
from raylog.actors.simulation.scenario import Plan, Simulation
from raylog.actors.simulation.transactions.scenario import TransactionalSimulation
from raylog.wire.collecting import without_collector

SIMULATIONS: dict[Kind, type[Simulation]] = {  # `raylog.simulation.kinds` has the others
    Kind.PLAIN: Simulation,
    Kind.TRANSACTIONS: TransactionalSimulation,
    Kind.GROUPS: GroupSimulation,
    Kind.RETENTION: RetentionSimulation,
    Kind.DISASTERS: DisasterSimulation,
}


@dataclass(slots=True)
class Report:
    """What came of one seed."""

    seed: int
    trace: str = ""
    steps: int = 0
    simulated_s: float = 0.0
    acknowledged: int = 0
    committed: int = 0
    aborted: int = 0
    """Transactions that were told to be so."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each property was looked at."""
    branches: dict[str, int] = field(default_factory=dict)
    """How often each branch of the code that this kind of seeds looks for was taken."""
    violations: list[str] = field(default_factory=list)
    timeline: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every property held."""
        return not self.violations


async def _run(
    loop: SimLoop, seed: int, plan: Plan, report: Report, kind: type[Simulation]
) -> None:
    simulation = kind(loop, seed, plan)
    try:
        await simulation.run()
    except PropertyViolated:
        report.violations = simulation.checks.violations
    finally:
        report.timeline = simulation.world.timeline
        report.trace = simulation.world.trace
        report.steps = loop.steps
        report.simulated_s = loop.time()
        report.counts = {one.name: count for one, count in simulation.checks.counts.items()}
        report.branches = dict(simulation.coverage.counts)
        report.acknowledged = sum(len(one.acknowledged) for one in simulation.ledgers)
        report.committed, report.aborted = simulation.ended_transactions()


def run_seed(
    seed: int,
    plan: Plan | None = None,
    *,
    quiet: bool = True,
    simulation: type[Simulation] | None = None,
) -> Report:
    """Run one simulation, of the plan's kind if it is not given; what it found is in the report."""
    report, plan = Report(seed), plan or Plan()
    kind = simulation or SIMULATIONS[plan.kind]
    with without_collector(), _log_level(quiet=quiet):
        try:
            run_in_virtual_time(lambda loop: _run(loop, seed, plan, report, kind))
        except SimulationStuck as stuck:
            report.violations.append(f"{Property.SERVED_AGAIN.name}: {stuck}")
    return report


@contextmanager
def _log_level(*, quiet: bool) -> Iterator[None]:
    """Say nothing of what a simulation's actors log; formatting it costs a tenth of the time."""
    before = logging.root.manager.disable
    if quiet:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)

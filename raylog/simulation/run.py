"""Runs a seed as one simulation and reports the result."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from raylog.simulation.applications.scenario import ClientSimulation
from raylog.simulation.disasters import DisasterSimulation
from raylog.simulation.groups.scenario import GroupSimulation
from raylog.simulation.kinds import Kind
from raylog.simulation.loop import SimLoop, SimulationStuck, run_in_virtual_time
from raylog.simulation.properties import Property, PropertyViolated
from raylog.simulation.retention.scenario import RetentionSimulation
from raylog.simulation.scenario import Plan, Simulation
from raylog.simulation.transactions.scenario import TransactionalSimulation
from raylog.wire.collecting import without_collector

SIMULATIONS: dict[Kind, type[Simulation]] = {
    Kind.PLAIN: Simulation,
    Kind.TRANSACTIONS: TransactionalSimulation,
    Kind.GROUPS: GroupSimulation,
    Kind.RETENTION: RetentionSimulation,
    Kind.DISASTERS: DisasterSimulation,
    Kind.CLIENTS: ClientSimulation,
}


@dataclass(slots=True)
class Report:
    """The result of one seed."""

    seed: int
    trace: str = ""
    steps: int = 0
    simulated_s: float = 0.0
    acknowledged: int = 0
    committed: int = 0
    aborted: int = 0
    """Transactions that clients know to be aborted."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each property was checked."""
    branches: dict[str, int] = field(default_factory=dict)
    """How often each branch that this kind looks for was reached."""
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
    """Run one simulation, by default of the plan's kind. Its findings are in the report."""
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
    """Silence the logs of the actors. Formatting them takes a tenth of the time."""
    before = logging.root.manager.disable
    if quiet:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)

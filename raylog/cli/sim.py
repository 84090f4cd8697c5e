"""`raylog sim`: whole clusters under virtual time, from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raylog.actors.simulation.kinds import Kind
from raylog.cli.failures import EXIT_FAILED
from raylog.cli.output import print_answer, print_line


def sim(
    seed: int = typer.Option(0, help="Which simulation: the same seed does the same every time."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Print what actors log, too."),
    campaign: float = typer.Option(
        0.0, help="Seconds to spend on one seed after the other, instead of one simulation."
    ),
    state: str = typer.Option(
        "",
        help="Where a campaign notes what it did, to go on later; by default in .cache/.",
    ),
    kind: Annotated[
        Kind, typer.Option(help="Which clients, faults and checks: each kind has its own seeds.")
    ] = Kind.PLAIN,
) -> None:
    """Run a cluster, clients and faults from one seed and check what must hold.

    Nothing is started and nothing real is waited for: disks, network and clocks
    are simulated. Exit code 1 if a property did not hold.
    """
    if campaign > 0:
        name = "simulation" if kind is Kind.PLAIN else f"simulation-{kind}"
        _run_campaign(campaign, Path(state or f".cache/{name}.json"), kind)
    else:
        _run_one(seed, kind, verbose=verbose)


def _run_one(seed: int, kind: Kind, *, verbose: bool) -> None:
    import logging

    from raylog.actors import plain_logs
    from raylog.actors.simulation.run import run_seed
    from raylog.actors.simulation.scenario import Plan
    from raylog.simulation.kinds import simulation_of

    if verbose:
        plain_logs.configure(logging.INFO, "%(name)s %(message)s")
    plan, simulation = Plan(kind=kind), simulation_of(kind)
    report = run_seed(seed, plan, quiet=not verbose, simulation=simulation)
    checks = sum(report.counts.values())
    lines = [
        *report.timeline,
        f"seed {seed}: {report.simulated_s:.1f} s simulated in {report.steps} steps, "
        f"{report.acknowledged} acknowledged records, {checks} checks of "
        f"{len(report.counts)} properties, trace {report.trace}",
        *(f"does not hold: {violation}" for violation in report.violations[:10]),
    ]
    facts = {
        "seed": seed,
        "simulated_s": report.simulated_s,
        "steps": report.steps,
        "acknowledged": report.acknowledged,
        "checks": checks,
        "trace": report.trace,
        "violations": report.violations,
    }
    print_answer("\n".join(lines), facts)
    if not report.passed:
        raise typer.Exit(EXIT_FAILED)


def _run_campaign(seconds: float, state: Path, kind: Kind) -> None:
    from raylog.actors.simulation.campaign import campaign
    from raylog.simulation.kinds import simulation_of

    tally = campaign(state, seconds, print_line, kind, simulation_of(kind))
    print_answer("\n".join(tally.lines()), {"tally": list(tally.lines())})
    if tally.failures:
        raise typer.Exit(EXIT_FAILED)

"""The command `raylog sim`: simulates whole clusters under virtual time, from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raylog.cli.failures import EXIT_FAILED
from raylog.cli.output import print_answer, print_line
from raylog.simulation.kinds import Kind


def sim(
    seed: int = typer.Option(
        0, help="Seed of the simulation. The same seed always gives the same run."
    ),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Also print the actors' logs."),
    campaign: float = typer.Option(
        0.0, help="Instead of one simulation, run one seed after the other for this many seconds."
    ),
    state: str = typer.Option(
        "",
        help="File in which a campaign stores its progress, to continue later. Default: in "
        ".cache/.",
    ),
    kind: Annotated[
        Kind, typer.Option(help="Kind of clients, faults and checks. Each kind has its own seeds.")
    ] = Kind.PLAIN,
) -> None:
    """Simulate a cluster, clients and faults from one seed, and check properties.

    Disks, network and clocks are simulated: the command starts no processes and
    waits for nothing real. The exit code is 1 if a property did not hold.
    """
    if campaign > 0:
        name = "simulation" if kind is Kind.PLAIN else f"simulation-{kind}"
        _run_campaign(campaign, Path(state or f".cache/{name}.json"), kind)
    else:
        _run_one(seed, kind, verbose=verbose)


def _run_one(seed: int, kind: Kind, *, verbose: bool) -> None:
    import logging

    from raylog.actors import log_formatting
    from raylog.simulation.run import run_seed
    from raylog.simulation.scenario import Plan

    if verbose:
        log_formatting.configure(logging.INFO, "%(name)s %(message)s")
    report = run_seed(seed, Plan(kind=kind), quiet=not verbose)
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
    from raylog.simulation.campaign import campaign

    tally = campaign(state, seconds, print_line, kind)
    print_answer("\n".join(tally.lines()), {"tally": list(tally.lines())})
    if tally.failures:
        raise typer.Exit(EXIT_FAILED)

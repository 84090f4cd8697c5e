"""`raylog sim`: whole clusters under virtual time, from a seed."""

from __future__ import annotations

from pathlib import Path

import typer

from raylog.cli.failures import EXIT_FAILED


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
    transactions: bool = typer.Option(
        False, help="Clients write in transactions: other seeds, with faults of coordinators."
    ),
) -> None:
    """Run a cluster, clients and faults from one seed and check what must hold.

    Nothing is started and nothing real is waited for: disks, network and clocks are simulated.
    Exit code 1 if a property did not hold.
    """
    if campaign > 0:
        name = "simulation-transactions" if transactions else "simulation"
        path = Path(state or f".cache/{name}.json")
        _run_campaign(campaign, path, transactions=transactions)
    else:
        _run_one(seed, verbose=verbose, transactions=transactions)


def _run_one(seed: int, *, verbose: bool, transactions: bool) -> None:
    import logging

    from raylog.actors.simulation.run import run_seed
    from raylog.actors.simulation.scenario import Plan

    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    report = run_seed(seed, Plan(transactions=transactions), quiet=not verbose)
    for line in report.timeline:
        typer.echo(line)
    checks = sum(report.counts.values())
    typer.echo(
        f"seed {seed}: {report.simulated_s:.1f} s simulated in {report.steps} steps, "
        f"{report.acknowledged} acknowledged records, {checks} checks of "
        f"{len(report.counts)} properties, trace {report.trace}"
    )
    for violation in report.violations[:10]:
        typer.echo(f"does not hold: {violation}")
    if not report.passed:
        raise typer.Exit(EXIT_FAILED)


def _run_campaign(seconds: float, state: Path, *, transactions: bool) -> None:
    from raylog.actors.simulation.campaign import campaign

    tally = campaign(state, seconds, typer.echo, transactions=transactions)
    for line in tally.lines():
        typer.echo(line)
    if tally.failures:
        raise typer.Exit(EXIT_FAILED)

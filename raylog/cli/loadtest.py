"""The command `raylog loadtest`: runs a load-test scenario against a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from raylog.cli.connecting import given_settings
from raylog.cli.failures import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    CommandFailed,
)
from raylog.cli.options import DEFAULT_DATA, Address, Data, Json
from raylog.cli.output import counted, print_done, print_json, print_table
from raylog.cli.progress import Progress
from raylog.extras import check

if TYPE_CHECKING:
    from raylog.loadtest.jobs import Progress as RunProgress
    from raylog.loadtest.process_supervisor import Shown
    from raylog.loadtest.results import Result

_RUN = "run"
_WEB_PORT = 8089
_PROCESSES_PER_CORE = 4
_LINE_EVERY_S = 30
"""Interval of progress lines without a terminal."""


class _RunByDefault(TyperGroup):
    """Makes `raylog loadtest steady` mean `raylog loadtest run steady`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `run` if no command is given. `ctx` is a click Context, or typer's copy of it."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    help="Run a load-test scenario against a Kafka cluster and report the results. `raylog "
    "loadtest SCENARIO` runs a scenario, `raylog loadtest run --help` shows its options, and "
    "`raylog loadtest --list` lists the scenarios that come with Raylog.",
)


@app.command(name=_RUN)
def run(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO", help="A TOML file, or the name of a scenario that --list shows."
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the scenarios that come with Raylog.")
    ] = False,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="RAYLOG_BOOTSTRAP",
            metavar="HOST:PORT",
            help="Brokers of any Kafka cluster, separated by commas. Default: the cluster of "
            "--address or --data, otherwise a broker in a process of this command.",
        ),
    ] = None,
    data: Data = DEFAULT_DATA,
    address: Address = None,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            min=0,
            metavar="N",
            help="Generate the load from N processes on this machine, at most "
            f"{_PROCESSES_PER_CORE} per core.",
        ),
    ] = 0,
    on_ray: Annotated[
        int,
        typer.Option(
            "--on-ray",
            min=0,
            metavar="N",
            help="Generate the load from N processes on the nodes of the Ray cluster at --address, "
            "or of the Ray cluster on which the brokers in --data run.",
        ),
    ] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Change a field of the scenario: users.0.rate=20000. Repeatable.",
        ),
    ] = None,
    scale: Annotated[
        float, typer.Option("--scale", min=0.0001, metavar="X", help="Multiply all rates by X.")
    ] = 1.0,
    duration_s: Annotated[
        float | None,
        typer.Option(
            "--duration",
            min=0.001,
            metavar="SECONDS",
            help="Duration of the run. The times of the scenario change in proportion.",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="HOST:PORT",
            help="Run the same scenario on another cluster, in turn.",
        ),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds", min=1, metavar="N", help="With --compare: number of runs on each cluster."
        ),
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            file_okay=False,
            help="Folder for report.html, result.json and Locust's own locust.html.",
        ),
    ] = None,
    web: Annotated[
        bool,
        typer.Option(
            "--web/--headless", help="Serve Locust's page on this machine during the run."
        ),
    ] = False,
    web_port: Annotated[
        int | None,
        typer.Option(
            "--web-port",
            min=0,
            max=65535,
            metavar="PORT",
            help=f"With --web: port of the page. Default: {_WEB_PORT}; 0: a free port.",
        ),
    ] = None,
    keep_topics: Annotated[
        bool, typer.Option("--keep-topics", help="Do not delete the topics of the run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a scenario.

    Exit code 0: every threshold held, and no acknowledged record is missing.
    1: a threshold did not hold, an answer was wrong, or the run failed. 2: the
    scenario or the command line is invalid. 3: no cluster answered. 130:
    interrupted.

    raylog loadtest steady --out report

    raylog loadtest capacity --bootstrap kafka:9092 --processes 4
    """
    if show_list:
        _list(as_json=as_json)
        return
    if scenario is None:
        raise typer.BadParameter("expected a scenario; --list shows those that come with Raylog")
    if rounds > 1 and compare is None:
        raise typer.BadParameter("--rounds needs --compare")
    if web_port is not None and not web:
        raise typer.BadParameter("--web-port needs --web")
    _check_processes(processes, on_ray)
    check("loadtest", "raylog loadtest")
    results: list[Result] = []
    with _failures(), _shown_at_end(results, as_json=as_json):
        from raylog.loadtest import command
        from raylog.loadtest.shipped import found

        arguments = command.Arguments(
            scenario=found(scenario, changes=changes or (), scale=scale, duration_s=duration_s),
            bootstrap=bootstrap,
            data=data,
            address=address,
            processes=processes,
            on_ray=on_ray,
            compare=compare,
            rounds=rounds,
            out=out,
            web_port=(_WEB_PORT if web_port is None else web_port) if web else None,
            keep_topics=keep_topics,
            security=given_settings(),
        )
        with Progress() as progress:
            command.run(arguments, results, _shower(progress))
    if out is not None:
        print_done(f"report: {out / 'report.html'}")
    raise typer.Exit(_exit_code(results))


@app.command(name="diff")
def diff(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="A.json", exists=True, dir_okay=False, help="Result of the first run."
        ),
    ],
    second: Annotated[
        Path,
        typer.Argument(
            metavar="B.json", exists=True, dir_okay=False, help="Result of the second run."
        ),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Compare the runs even if their scenarios differ.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare two runs of a scenario, and show which differences are significant.

    raylog loadtest diff before/result.json after/result.json
    """
    check("loadtest", "raylog loadtest")
    from dataclasses import asdict

    from raylog.loadtest.report import compared, print_comparison, read_json
    from raylog.loadtest.report import diff as differences
    from raylog.loadtest.report.words import target_name

    with _failures():
        a, b = read_json(first), read_json(second)
        found = differences(a, b, force=force)
    if as_json:
        print_json(asdict(found))
    else:
        name_a, name_b = f"{first}: {target_name(a)}", f"{second}: {target_name(b)}"
        print_comparison(compared(name_a, name_b, [found]))


def _check_processes(processes: int, on_ray: int) -> None:
    if processes and on_ray:
        raise typer.BadParameter("expected --processes or --on-ray, found both")
    cores = os.cpu_count() or 1
    if processes > cores * _PROCESSES_PER_CORE:
        raise typer.BadParameter(
            f"expected at most {cores * _PROCESSES_PER_CORE}, {_PROCESSES_PER_CORE} for each of "
            f"the {counted(cores, 'core')} of this machine; found {processes}. --on-ray makes the "
            "load on several machines",
            param_hint="--processes",
        )


def _list(*, as_json: bool) -> None:
    from raylog.loadtest.shipped import all_shipped

    scenarios = all_shipped()
    if as_json:
        print_json([{"name": one.name, "question": one.question} for one in scenarios])
    else:
        rows = [(one.name, one.question, f"{one.duration_s:g} s") for one in scenarios]
        print_table(None, ["scenario", "question", "takes#"], rows)


def _shower(progress: Progress) -> Callable[[Shown], None]:
    """Return a function that shows messages; without a terminal, progress only now and then."""
    from raylog.loadtest.jobs import Said

    is_terminal = sys.stderr.isatty()
    is_due = _now_and_then()

    def show(what: Shown) -> None:
        if isinstance(what, Said):
            print_done(what.text) if is_terminal else progress.tell(what.text)
        elif is_terminal or is_due(what.at_s):
            progress.tell(_line(what))

    return show


def _now_and_then() -> Callable[[float], bool]:
    """Return a predicate: whether a line is due at a second of a run. Each run starts at 0 s."""
    last = 0

    def is_due(at_s: float) -> bool:
        nonlocal last
        before, last = last, int(at_s // _LINE_EVERY_S)
        return last > before

    return is_due


def _line(how: RunProgress) -> str:
    """Format the progress over the last seconds."""
    p99 = "" if how.p99_ms is None else f", p99 {how.p99_ms:,.1f} ms"
    lag = "" if how.lag is None else f", lag {how.lag:,}"
    return (
        f"{how.at_s:.0f} of {how.of_s:.0f} s: {how.operation} {how.per_s:,.0f}/s{p99}, "
        f"{how.errors:,} errors{lag}"
    )


@contextlib.contextmanager
def _shown_at_end(results: list[Result], *, as_json: bool) -> Iterator[None]:
    """Show the results at the end, even if a later run failed or a report cannot be written."""
    try:
        yield
    finally:
        if results:
            _show(results, as_json=as_json)


def _show(results: list[Result], *, as_json: bool) -> None:
    from raylog.loadtest.report import as_json as to_json
    from raylog.loadtest.report import comparisons, print_comparison, print_result

    if as_json:
        found = [json.loads(to_json(one)) for one in results]
        print_json(found[0] if len(found) == 1 else found)
    else:
        for one in results:
            print_result(one)
        for pair in comparisons(results) if len(results) > 1 else ():
            print_comparison(pair)


def _exit_code(results: list[Result]) -> int:
    from raylog.loadtest.jobs import INTERRUPTED

    if results[-1].failure == INTERRUPTED:
        return EXIT_INTERRUPTED
    return 0 if all(one.passed for one in results) else EXIT_FAILED


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Raise failures of load tests as CommandFailed."""
    from raylog.loadtest.process_supervisor import RunFailed, RunInterrupted, RunUnreachable
    from raylog.loadtest.report import BadResult, DifferentScenarios
    from raylog.loadtest.scenario import BadScenario

    try:
        yield
    except (BadScenario, BadResult, DifferentScenarios) as failure:
        raise CommandFailed(str(failure), exit_code=EXIT_USAGE) from failure
    except RunUnreachable as failure:
        raise CommandFailed(str(failure), exit_code=EXIT_UNREACHABLE) from failure
    except RunInterrupted as failure:
        raise CommandFailed(str(failure), exit_code=EXIT_INTERRUPTED) from failure
    except RunFailed as failure:
        raise CommandFailed(str(failure)) from failure
    except KeyboardInterrupt:
        raise CommandFailed("interrupted", exit_code=EXIT_INTERRUPTED) from None

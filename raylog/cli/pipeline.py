"""`raylog pipeline`: run a declared pipeline, see how it does, stop it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.cluster_record import read_record
from raylog.cli.failures import (
    EXIT_INTERRUPTED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    CommandFailed,
)
from raylog.cli.options import DEFAULT_DATA, Json
from raylog.cli.others_words import others_words_to
from raylog.cli.output import print_done, print_json, print_table
from raylog.cli.progress import Progress
from raylog.cli.status import ago

if TYPE_CHECKING:
    from types import FrameType

    from raylog.raydp_jobs.pipelines.running import Control
    from raylog.raydp_jobs.pipelines.spec import PipelineSpec
    from raylog.raydp_jobs.pipelines.state import RunState, TopicLag

app = typer.Typer(no_args_is_help=True, help="Run declared pipelines on Spark, exactly once.")

_CLIENT_TIMEOUT_MS = 5_000
_LOOK_S = 0.1
_INTERRUPTED_S = 60
"""How long a run that is interrupted in a batch may take to end Spark."""

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, as TOML.")]
BootstrapInstead = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Instead of the file's."),
]
DataInstead = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Of `raylog up`, instead of the file's."),
]


@app.command(name="run")
def run(
    file: File,
    local: Annotated[
        bool, typer.Option("--local", help="Spark in this process, on all cores; without Ray.")
    ] = False,
    bootstrap: BootstrapInstead = None,
    data: DataInstead = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print what Spark and the sink log, too.")
    ] = False,
) -> None:
    """Run a pipeline until it is stopped: Ctrl-C, or `raylog pipeline stop`.

    It ends after the batch that is being written, when asked twice at once; the next run goes on.
    """
    with _failures():
        spec = _load(file)
        folder = data or spec.data or DEFAULT_DATA
        sys.path.insert(0, str(file.absolute().parent))
        if verbose:
            logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
        with Progress() as progress:
            place = None if local else folder
            _run(spec, _bootstrap(spec, bootstrap, folder), place, progress, verbose=verbose)


@app.command(name="status")
def status(
    file: File,
    bootstrap: BootstrapInstead = None,
    data: DataInstead = None,
    as_json: Json = False,
) -> None:
    """Show whether a pipeline runs, its last batch, how far it is, and its last error."""
    from raylog.raydp_jobs.pipelines.state import read_state

    with _failures():
        spec = _load(file)
        found = read_state(spec.checkpoint)
        state = None if found is None else found.as_found()
        lags, failure = _lags(spec, bootstrap, data or spec.data or DEFAULT_DATA)
    if as_json:
        print_json(_as_json(spec, state, lags, failure))
        return
    typer.echo(_described(spec, state))
    if state is not None and state.error is not None:
        typer.echo(f"last error: {state.error}")
    if failure is not None:
        print_done(f"how far it is, is unknown: {failure}")
    else:
        print_table("sources", ["topic", "lag#"], [(one.topic, one.lag) for one in lags])


@app.command(name="stop")
def stop(
    file: File,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.0,
            metavar="SECONDS",
            help="How long the batch that is being written may take; then it is given up.",
        ),
    ] = 60.0,
) -> None:
    """Stop a pipeline after the batch that is being written."""
    from raylog.actors.runtime.processes import end
    from raylog.raydp_jobs.pipelines.state import read_state

    with _failures():
        spec = _load(file)
        found = read_state(spec.checkpoint)
        if found is None or not found.is_running:
            raise CommandFailed(
                f"{spec.name} is not running", f"See: raylog pipeline status {file}"
            )
        with Progress() as progress:
            progress.tell(f"stopping {spec.name} after the batch that is being written")
            if not _ended(found, timeout_s):
                progress.tell("giving the batch up")
                end([found.process], grace_ms=_INTERRUPTED_S * 1000)
                raise CommandFailed(
                    f"the batch did not end within {timeout_s:g} s and was given up",
                    "Nothing of it is visible; the next run writes it",
                )
        print_done(f"{spec.name} is stopped")


def _run(
    spec: PipelineSpec, bootstrap: str, data: Path | None, progress: Progress, *, verbose: bool
) -> None:
    """Run with a session of its own: on the cluster of a folder, or here."""
    _need_spark()
    from raylog.raydp_jobs.pipelines.pipeline import check_topics
    from raylog.raydp_jobs.pipelines.running import Control, noted, session_of
    from raylog.raydp_jobs.pipelines.state import spark_log

    control = Control(progress.tell)
    _listen(control)
    with noted(spec, control) as run, contextlib.ExitStack() as stack:
        check_topics(bootstrap, spec)
        if verbose:
            progress.tell("starting Spark")
        else:
            log = spark_log(spec.checkpoint)
            progress.tell(f"starting Spark, whose messages go to {log}")
            stack.enter_context(others_words_to(log))
        with session_of(spec.name, spec.spark, data) as spark:
            run.on(spark, bootstrap)
            progress.tell("ending Spark")
    print_done(f"{spec.name} is stopped: {run.state.rows:,} rows in this run")


def _listen(control: Control) -> None:
    """A first signal ends the run after its batch, a second one at once."""

    def heard(_number: int, _frame: FrameType | None) -> None:
        if control.is_stopping:
            raise KeyboardInterrupt
        control.stop()

    signal.signal(signal.SIGINT, heard)
    signal.signal(signal.SIGTERM, heard)


def _ended(state: RunState, timeout_s: float) -> bool:
    """Ask a run to end, and wait; returns whether it did."""
    deadline = time.monotonic() + timeout_s
    with contextlib.suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGTERM)
    while state.is_running:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _load(file: Path) -> PipelineSpec:
    from raylog.raydp_jobs.pipelines.spec import load

    return load(file)


def _bootstrap(spec: PipelineSpec, asked: str | None, data: Path) -> str:
    """Whom to ask first: as asked for, as the file says, or the cluster of a folder."""
    found = asked or spec.bootstrap
    if found is not None:
        return found
    record = read_record(data.absolute() / "run")
    if record is None:
        raise CommandFailed(
            f"{spec.name} names no bootstrap, and no cluster is running on {data}",
            f"Start one with: raylog up --data {data} (or give --bootstrap HOST:PORT)",
            EXIT_UNREACHABLE,
        )
    return ",".join(record.bootstrap)


def _lags(
    spec: PipelineSpec, bootstrap: str | None, data: Path
) -> tuple[list[TopicLag], str | None]:
    """How far each topic is read, or why that is not known."""
    from raylog.client import BlockingClient, ClientError, ClientSettings, parse_bootstrap
    from raylog.raydp_jobs.pipelines.state import lags
    from raylog.wire.errors import KafkaError

    try:
        address = _bootstrap(spec, bootstrap, data)
        settings = ClientSettings(parse_bootstrap(address), operation_timeout_ms=_CLIENT_TIMEOUT_MS)
        with BlockingClient(address, settings) as client:
            return lags(client, spec), None
    except CommandFailed as failure:
        return [], failure.failure.message
    except (ClientError, KafkaError) as failure:
        return [], str(failure)


def _described(spec: PipelineSpec, state: RunState | None) -> str:
    """A run in one line."""
    if state is None:
        return f"{spec.name} has not run yet"
    told = f"{spec.name} {state.state}, process {state.pid}"
    if state.batch_id is None:
        return f"{told}, no batch yet"
    return (
        f"{told}: batch {state.batch_id} {ago(state.batch_at_ms)}, {state.batch_rows:,} rows, "
        f"{state.rows_per_s:,.0f} rows/s; {state.rows:,} rows in this run"
    )


def _as_json(
    spec: PipelineSpec, state: RunState | None, lags: list[TopicLag], failure: str | None
) -> dict[str, object]:
    found: dict[str, object] = {"name": spec.name, "state": None}
    if state is not None:
        found |= {
            "state": state.state,
            "pid": state.pid,
            "since_ms": state.since_ms,
            "batch_id": state.batch_id,
            "batch_rows": state.batch_rows,
            "batch_at_ms": state.batch_at_ms,
            "rows": state.rows,
            "rows_per_s": state.rows_per_s,
            "error": state.error,
        }
    return found | {
        "lag": {one.topic: one.lag for one in lags} if failure is None else None,
        "failure": failure,
    }


def _need_spark() -> None:
    """Raise CommandFailed if the extra is not installed."""
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401  # it has no types
        import pyspark  # noqa: F401
    except ImportError as missing:
        raise CommandFailed(
            f"pipelines need Spark: {missing}", "Install it: pip install 'raylog[spark]'"
        ) from missing


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Failures of pipelines as those of commands."""
    from raylog.raydp_jobs.jars import JarsMissing
    from raylog.raydp_jobs.java import JavaMissing
    from raylog.raydp_jobs.pipelines.failures import PipelineFailed
    from raylog.raydp_jobs.pipelines.spec import BadSpec

    try:
        yield
    except BadSpec as failure:
        raise CommandFailed(str(failure), exit_code=EXIT_USAGE) from failure
    except (JavaMissing, JarsMissing) as failure:
        raise CommandFailed(str(failure)) from failure
    except PipelineFailed as failure:
        raise CommandFailed(str(failure), failure.hint) from failure
    except KeyboardInterrupt:
        raise CommandFailed(
            "interrupted; nothing of the last batch is visible unless it was whole",
            "The next run goes on where this one was",
            EXIT_INTERRUPTED,
        ) from None

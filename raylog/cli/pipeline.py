"""`raylog pipeline`: run a declared pipeline, show its state, stop it."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.actors import log_formatting
from raylog.cli.acting import acting
from raylog.cli.failures import (
    EXIT_INTERRUPTED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    CommandFailed,
)
from raylog.cli.options import DEFAULT_DATA, Address, Json
from raylog.cli.output import print_done, print_json, print_table
from raylog.cli.progress import Progress
from raylog.cli.quieting import output_to
from raylog.cluster_record import read_record
from raylog.extras import check

if TYPE_CHECKING:
    from types import FrameType

    from raylog.raydp_jobs.pipelines.register import RunTopic
    from raylog.raydp_jobs.pipelines.running import Control
    from raylog.raydp_jobs.pipelines.runs import RunState
    from raylog.raydp_jobs.pipelines.spec import PipelineSpec
    from raylog.raydp_jobs.pipelines.topics import TopicLag

app = typer.Typer(no_args_is_help=True, help="Run declared pipelines on Spark, exactly once.")

_CLIENT_TIMEOUT_MS = 5_000
_INTERRUPTED_S = 60.0
"""How long Spark may take to end if a run is interrupted in a batch."""
_GRACE_MS = 5_000
"""How long a process that does not answer may take to exit after SIGTERM."""
_NOT_VISIBLE = "Nothing of the batch is visible; the next run will write it"
SILENT = "silent"
PORT_MAX = 65_535

File = Annotated[Path, typer.Argument(metavar="FILE", help="TOML file of the pipeline.")]
BootstrapInstead = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="Brokers of the pipeline's cluster; overrides `bootstrap` in the file.",
    ),
]
DataInstead = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data directory of the cluster; overrides `data` in the file. With --address: "
        "selects the cluster, if that Ray cluster runs several.",
    ),
]


@app.command(name="run")
@acting
def run(
    file: File,
    local: Annotated[
        bool, typer.Option("--local", help="Run Spark in this process, on all cores, without Ray.")
    ] = False,
    bootstrap: BootstrapInstead = None,
    data: DataInstead = None,
    address: Address = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Serve the sink's metrics for Prometheus at this address; port 0: a free port.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print the logs of Spark and the sink.")
    ] = False,
) -> None:
    """Run a pipeline until it is stopped.

    Ctrl-C stops it after the batch that is being written; a second Ctrl-C stops
    it immediately.

    `raylog pipeline stop` stops it from any machine. The next run continues
    where this one ended.

    With --address, Spark runs on that Ray cluster, and the brokers are those of
    the Raylog cluster on it. This machine needs no data directory.

    Only one run of a pipeline can be active at a time.
    """
    if local and address is not None:
        raise typer.BadParameter("--local runs without Ray: give either --local or --address")
    with _failures():
        spec = _load(file)
        sys.path.insert(0, str(file.absolute().parent))
        if verbose:
            log_formatting.configure(logging.INFO, "%(name)s %(message)s")
        brokers = _bootstrap(spec, bootstrap, data, address)
        _need_spark()
        if metrics is not None:
            _tell_metrics(metrics)
        print_done(_batch_limits(spec))
        on_folder = not local and address is None
        folder = data or spec.data or DEFAULT_DATA if on_folder else None
        with Progress() as progress:
            _run(spec, brokers, progress, data=folder, address=address, verbose=verbose)


def _tell_metrics(address: str) -> None:
    """Serve metrics to Prometheus. Raises BadParameter or CommandFailed."""
    from raylog.sink.counts import listen

    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise typer.BadParameter(f"expected HOST:PORT, found {address!r}", param_hint="--metrics")
    try:
        bound = listen(host.strip("[]"), int(port))
    except OSError as taken:
        raise CommandFailed(f"cannot listen on {address}", str(taken.strerror)) from taken
    print_done(f"metrics: http://{host}:{bound}/metrics")


@app.command(name="status")
def status(
    file: File,
    bootstrap: BootstrapInstead = None,
    data: DataInstead = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Show whether and where a pipeline runs, its last batch, lag and error.

    Works on any machine that reaches the brokers.

    A run on another machine counts as running if it reports within 15 seconds.
    """
    with _failures():
        spec = _load(file)
        brokers = _bootstrap(spec, bootstrap, data, address)
        with Progress() as progress:
            found = _found(spec, brokers, progress)
        lags, failure = _lags(spec, brokers)
    if as_json:
        print_json(_as_json(spec, found, lags, failure))
        return
    typer.echo(described(spec.name, found))
    if found is not None and found.run.error is not None:
        typer.echo(f"last error: {found.run.error}")
    if failure is not None:
        print_done(f"its progress is not known: {failure}")
    else:
        rows = [(one.source, one.topic, one.lag) for one in lags]
        print_table("sources", ["source", "topic", "lag#"], rows)


@app.command(name="stop")
@acting
def stop(
    file: File,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.0,
            metavar="SECONDS",
            help="How long to wait for the batch that is being written before giving it up.",
        ),
    ] = 60.0,
    bootstrap: BootstrapInstead = None,
    data: DataInstead = None,
    address: Address = None,
) -> None:
    """Stop a pipeline after the batch that is being written, wherever it runs.

    Works on any machine that reaches the brokers.
    """
    from raylog.raydp_jobs.pipelines.register import RunTopic

    with _failures():
        spec = _load(file)
        brokers = _bootstrap(spec, bootstrap, data, address)
        with Progress() as progress, RunTopic(brokers, spec.name) as topic:
            run = _running(topic, f"raylog pipeline status {file}", progress)
            progress.tell(f"asking {run.place} to stop after the batch that is being written")
            _stop(topic, run, timeout_s, progress)
        print_done(f"{spec.name} is stopped")


def _run(
    spec: PipelineSpec,
    bootstrap: str,
    progress: Progress,
    *,
    data: Path | None,
    address: str | None,
    verbose: bool,
) -> None:
    """Run in a new Spark session: on a data directory's cluster, on a Ray cluster, or here."""
    from raylog.raydp_jobs.pipelines.running import Control, noted, session_of
    from raylog.raydp_jobs.pipelines.state import spark_log
    from raylog.raydp_jobs.pipelines.topics import check_topics

    control = Control(progress.tell)
    _listen(control)
    with noted(spec, control, bootstrap) as run, contextlib.ExitStack() as stack:
        check_topics(bootstrap, spec)
        if not verbose:
            log = spark_log(spec.checkpoint)
            progress.tell(f"Spark logs to {log}")
            stack.enter_context(output_to(log))
        with progress.waiting("starting Spark"):
            spark = stack.enter_context(
                session_of(spec.name, spec.spark, data=data, address=address)
            )
        run.on(spark, bootstrap)
        progress.tell("stopping Spark")
    print_done(f"{spec.name} is {run.state.state}: {run.state.rows:,} rows in this run")


def _batch_limits(spec: PipelineSpec) -> str:
    """Describe how large batches may become, by default or according to the file."""
    limits = [
        f"{source.max_offsets_per_trigger:,} of {name}" for name, source in spec.sources.items()
    ]
    return f"most records in a batch: {', '.join(limits)} (max_offsets_per_trigger)"


def _listen(control: Control) -> None:
    """Handle signals: the first one ends the run after its batch, the second one immediately."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if control.is_stopping:
            raise KeyboardInterrupt
        control.stop()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)


def _running(topic: RunTopic, see: str, progress: Progress) -> RunState:
    """Return the run to stop. Raises CommandFailed if the pipeline is not running."""
    from raylog.raydp_jobs.pipelines.register import look
    from raylog.raydp_jobs.pipelines.runs import Standing

    run, standing = look(topic, progress.tell)
    if run is None or standing is not Standing.RUNS:
        raise CommandFailed(f"{topic.watch.name} is not running", f"See: {see}")
    return run


def _stop(topic: RunTopic, run: RunState, timeout_s: float, progress: Progress) -> None:
    """Stop a run and wait for its end. Raises CommandFailed unless it ends cleanly and in time."""
    from raylog.raydp_jobs.pipelines.register import ask_to_stop, follow
    from raylog.raydp_jobs.pipelines.runs import FAILED, Standing

    ask_to_stop(topic, run.run, is_now=False)
    found = follow(topic, run.run, timeout_s)
    is_given_up = found is Standing.RUNS
    if is_given_up:
        progress.tell("giving the batch up")
        ask_to_stop(topic, run.run, is_now=True)
        found = follow(topic, run.run, _INTERRUPTED_S)
    if found is Standing.RUNS:
        problem = f"{run.name} did not answer within {timeout_s + _INTERRUPTED_S:g} s"
        if _end_here(run):
            raise CommandFailed(f"{problem} and was killed: {run.place}", _NOT_VISIBLE)
        raise CommandFailed(problem, f"Kill it where it runs: {run.place}")
    if is_given_up:
        raise CommandFailed(
            f"the batch did not end within {timeout_s:g} s and was given up", _NOT_VISIBLE
        )
    if found is Standing.UNKNOWN:
        raise CommandFailed(
            f"{run.name} no longer reports; it ran as {run.place}",
            "You can start a new run; it fences this one",
        )
    last = topic.watch.holder
    if found is Standing.GONE:
        raise CommandFailed(f"{run.name} died before it stopped: {run.place} is gone")
    if last is not None and last.run == run.run and last.state == FAILED:
        raise CommandFailed(f"{run.name} failed before it stopped: {last.error}")


def _end_here(run: RunState) -> bool:
    """End a process that does not answer; return False if it is not on this machine."""
    from raylog.actors.runtime.processes import ProcessRecord, end, pid_space

    if run.place.machine is None or run.place.machine != pid_space():
        return False
    end([ProcessRecord(run.name, run.place.pid, run.place.started)], grace_ms=_GRACE_MS)
    return True


def _load(file: Path) -> PipelineSpec:
    from raylog.raydp_jobs.pipelines.spec import load

    return load(file)


def _bootstrap(
    spec: PipelineSpec, asked: str | None, data: Path | None, address: str | None
) -> str:
    """Return the bootstrap servers: the option's, the file's, or those of the running cluster."""
    found = asked or spec.bootstrap
    if found is not None:
        return found
    folder = data or spec.data
    if address is not None:
        return _bootstrap_on_ray(address, folder)
    folder = folder or DEFAULT_DATA
    record = read_record(folder.absolute() / "run")
    if record is None:
        raise CommandFailed(
            f"{spec.name} has no bootstrap, and no cluster is running on {folder}",
            f"Start one with: raylog up --data {folder} (or give --bootstrap HOST:PORT, or the "
            "address of its Ray cluster: --address HOST:PORT)",
            EXIT_UNREACHABLE,
        )
    return ",".join(record.bootstrap)


def _bootstrap_on_ray(address: str, data: Path | None) -> str:
    """Return the brokers of the cluster on a Ray cluster; raises CommandFailed."""
    from raylog.cli.ray_cluster import on_ray, record_of, the_cluster

    with on_ray(address):
        record = record_of(address, the_cluster(address, data))
    if not record.bootstrap:
        raise CommandFailed(
            f"no broker of cluster {record.cluster_id} answers",
            f"Check with: raylog status --address {address}",
            EXIT_UNREACHABLE,
        )
    return ",".join(record.bootstrap)


@dataclass(frozen=True, slots=True)
class FoundRun:
    """The newest run of a pipeline."""

    run: RunState
    state: str
    """As the run reported it, or "died": its process is gone, or "silent": it no longer reports."""


def _found(spec: PipelineSpec, address: str, progress: Progress) -> FoundRun | None:
    """Return the newest run, from the pipeline's topic or an older build's file, or None."""
    from raylog.raydp_jobs.pipelines.register import RunTopic, look
    from raylog.raydp_jobs.pipelines.runs import Standing
    from raylog.raydp_jobs.pipelines.state import DIED, older_run

    with RunTopic(address, spec.name) as topic:
        run, standing = look(topic, progress.tell)
    if run is None:
        older = older_run(spec.checkpoint)
        return None if older is None else FoundRun(older, older.state)
    others = {Standing.GONE: DIED, Standing.UNKNOWN: SILENT}
    return FoundRun(run, others.get(standing, run.state))


def _lags(spec: PipelineSpec, address: str) -> tuple[list[TopicLag], str | None]:
    """Return the lag of each topic, or why it is unknown."""
    from raylog.client import ClientError
    from raylog.raydp_jobs.pipelines.failures import PipelineFailed
    from raylog.raydp_jobs.pipelines.topics import lags
    from raylog.sink.batches import BatchFailed
    from raylog.wire.errors import KafkaError

    try:
        return lags(address, spec, _CLIENT_TIMEOUT_MS), None
    except (ClientError, KafkaError, BatchFailed, PipelineFailed) as failure:
        return [], str(failure)


def described(name: str, found: FoundRun | None) -> str:
    """Describe a run in one line. Times are from the clock of its machine."""
    if found is None:
        return f"{name} has not run yet"
    run = found.run
    line = f"{name} {found.state}, {run.place}"
    if found.state == SILENT:
        line += f", last reported at {_clock(run.at_ms)}"
    if run.batch_id is None:
        goes_on = run.is_live and found.state in (run.state, SILENT)
        return f"{line}, no batch yet" if goes_on else f"{line}, before its first batch"
    is_there = run.is_live and found.state == run.state
    when = f"at {_clock(run.batch_at_ms)}"
    if is_there and run.batch_ago_ms is not None:
        when = f"{run.batch_ago_ms / 1000:.1f} s ago"
    return (
        f"{line}: batch {run.batch_id} {when}, {run.batch_rows:,} rows, "
        f"{run.rows_per_s:,.0f} rows/s; {run.rows:,} rows in this run"
    )


def _clock(at_ms: int | None) -> str:
    """Format a time."""
    if at_ms is None:
        return "an unknown time"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _as_json(
    spec: PipelineSpec, found: FoundRun | None, lags: list[TopicLag], failure: str | None
) -> dict[str, object]:
    document: dict[str, object] = {"name": spec.name, "state": None}
    if found is not None:
        run = found.run
        document |= {
            "state": found.state,
            "host": run.place.host,
            "pid": run.place.pid,
            "since_ms": run.since_ms,
            "told_at_ms": run.at_ms,
            "batch_id": run.batch_id,
            "batch_rows": run.batch_rows,
            "batch_at_ms": run.batch_at_ms,
            "rows": run.rows,
            "rows_per_s": run.rows_per_s,
            "error": run.error,
        }
    return document | {
        "lag": {_label(spec, one): one.lag for one in lags} if failure is None else None,
        "failure": failure,
    }


def _label(spec: PipelineSpec, lag: TopicLag) -> str:
    """Return a topic's name, with its source if that sets a cluster: names may repeat."""
    is_own = spec.sources[lag.source].bootstrap is None
    return lag.topic if is_own else f"{lag.source}:{lag.topic}"


def _need_spark() -> None:
    """Raise MissingExtra if an extra is not installed, JavaMissing without Java."""
    from raylog.raydp_jobs.java import find_java

    check("spark", "raylog pipeline")
    check("arrow", "raylog pipeline")
    find_java()


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Raise failures of pipelines as CommandFailed."""
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
            "interrupted; the last batch is visible only if it was complete",
            "The next run continues where this one ended",
            EXIT_INTERRUPTED,
        ) from None

"""The process that leads a run, or a worker: `python -m raylog.loadtest.load_process`.

The first line of standard input is a `Job` or a `WorkerJob`. A leading process gets orders in
further lines and reports on standard output, one message per line. Both end with their standard
input. They are separate processes because Locust has gevent patch the standard library, which
neither Ray nor a broker may meet.
"""

from __future__ import annotations

import gevent.monkey

gevent.monkey.patch_all()

import json  # noqa: E402 - gevent comes first, here and below
import os  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
import locust.runners  # noqa: E402
from gevent.fileobject import FileObject  # noqa: E402
from locust.html import get_html_report  # noqa: E402
from locust.log import setup_logging  # noqa: E402
from locust.stats import stats_history  # noqa: E402

from raylog.client import ClientError, NotConnected  # noqa: E402
from raylog.loadtest.jobs import (  # noqa: E402
    BreakOff,
    Ended,
    Failed,
    Job,
    Listening,
    Report,
    Stop,
    Struck,
    WorkerJob,
    order,
)
from raylog.loadtest.leader import Broken  # noqa: E402
from raylog.loadtest.run import Run, follow, new_environment  # noqa: E402
from raylog.wire.errors import KafkaError  # noqa: E402

CONNECT_S = 60.0
"""How long workers may take to connect."""
LIVENESS = 15
"""Missed heartbeats, one per second, after which a worker is lost. It may wait for a core."""


class Pipe:
    """Writes messages as lines of JSON. Other output goes to standard error."""

    def __init__(self) -> None:
        self._out = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(self, what: Report) -> None:
        """Write a whole message."""
        waiting = memoryview(what.model_dump_json().encode() + b"\n")
        try:
            while waiting:
                waiting = waiting[os.write(self._out, waiting) :]
        except BrokenPipeError:
            return  # the reader is gone: standard input has ended as well, which ends the run


def main() -> None:
    """Run the process that the first line asks for."""
    pipe = Pipe()
    setup_logging("WARNING")  # type: ignore[no-untyped-call]  # Locust
    lines = FileObject(sys.stdin.fileno(), "rb", close=False)
    first = lines.readline()
    if "port" in json.loads(first):
        work(WorkerJob.model_validate_json(first), lines)
    else:
        lead(Job.model_validate_json(first), lines, pipe)


def work(job: WorkerJob, lines: Any) -> None:
    """Make load until the leading process is done or standard input ends."""
    environment = new_environment(job.scenario)
    try:
        runner = environment.create_worker_runner(job.host, job.port)
    except ConnectionError:
        sys.exit(f"the leading process at {job.host}:{job.port} does not answer")
    follow(environment, job.scenario)
    gevent.spawn(_end_with, lines, runner)
    runner.greenlet.join()


def _end_with(lines: Any, runner: locust.runners.WorkerRunner) -> None:
    while lines.readline():
        pass
    runner.quit()


def lead(job: Job, lines: Any, pipe: Pipe) -> None:
    """Lead a run and report its result."""
    environment = new_environment(job.scenario)
    locust.runners.HEARTBEAT_LIVENESS = LIVENESS
    runner: Any
    if job.workers:
        runner = environment.create_master_runner(job.bind, 0)
        pipe.tell(Listening(port=runner.server.port))
    else:
        runner = environment.create_local_runner()
    run = Run(environment, job, pipe)
    run.attach()
    gevent.spawn(_take_orders, lines, run)
    gevent.spawn(stats_history, runner)
    if job.web is not None:
        environment.create_web_ui(*job.web)
    try:
        _until_connected(runner, job, run)
        runner.start_shape()
        run.leader.over.wait()
        if not job.workers:
            runner.stop()
        pipe.tell(Ended(result=run.finish()))
        if job.locust_html is not None:
            page = get_html_report(environment, False)  # type: ignore[no-untyped-call]  # Locust
            Path(job.locust_html).write_text(page)
    except (ClientError, KafkaError, Broken, OSError) as failure:
        unreachable = isinstance(failure, NotConnected)
        pipe.tell(Failed(message=str(failure), unreachable=unreachable))
    finally:
        runner.quit()


def _until_connected(runner: Any, job: Job, run: Run) -> None:
    """Wait for all workers. Raises Broken."""
    deadline = time.monotonic() + CONNECT_S
    while job.workers and len(runner.clients.ready) < job.workers:
        if run.leader.stopped is not None or run.leader.failure is not None:
            return
        if time.monotonic() > deadline:
            raise Broken(
                f"only {len(runner.clients.ready)} of {job.workers} processes of the load "
                f"connected within {CONNECT_S:g} s"
            )
        gevent.sleep(0.05)


def _take_orders(lines: Any, run: Run) -> None:
    """Follow the orders of the command. The run ends with its pipe."""
    while line := lines.readline():
        match order.validate_json(line):
            case Stop(why=why):
                run.hurry(why)
            case BreakOff(why=why):
                run.leader.fail(Broken(why))
            case Struck(text=text, failed=failed):
                run.struck(text, failed=failed)
    run.hurry("the command that started it is gone")


if __name__ == "__main__":
    main()

"""A scenario under Locust's own command: `RAYLOG_SCENARIO=steady locust -f locustfile.py -H HOST`.

RAYLOG_SCENARIO is the name of a shipped scenario or a file (default: steady), the same for all
processes. The host is a list of bootstrap servers. With --master, --worker and --processes several
processes make the load. The scenario sets the number of users and the duration, so --users,
--spawn-rate and --run-time have no effect. RAYLOG_OUT is the folder for report.html and result.json
(default: the current one). RAYLOG_CLIENT has settings of all clients as JSON, such as
security.protocol. SIGINT and SIGTERM end the run early, with a result and exit code 130. A second
signal ends it at once.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import gevent
from locust import events
from locust.env import Environment
from locust.runners import WorkerRunner

from raylog.cli.failures import EXIT_INTERRUPTED, EXIT_USAGE, CommandFailed
from raylog.client import ClientError, InvalidSetting, parse_bootstrap
from raylog.loadtest import topics
from raylog.loadtest.command import make_folder
from raylog.loadtest.jobs import INTERRUPTED, Job, Progress, Report, Said
from raylog.loadtest.leader import Broken
from raylog.loadtest.report import print_result, write_html, write_json
from raylog.loadtest.run import Run, follow, set_up, users_of
from raylog.loadtest.scenario import BadScenario, Scenario
from raylog.loadtest.scenario_checks import check_clients
from raylog.loadtest.shipped import found
from raylog.wire.errors import KafkaError

log = logging.getLogger("locust.raylog")
_RUN_BYTES = 4
_EXAMPLE = '{"security.protocol": "SSL"}'


class _Words:
    """Reports of a run go to Locust's log."""

    def tell(self, what: Report) -> None:
        """Log what is meant for people."""
        if isinstance(what, Said):
            log.info("%s", what.text)
        elif isinstance(what, Progress):
            log.info(
                "%.0f s: %s %.0f/s, %d errors", what.at_s, what.operation, what.per_s, what.errors
            )


def _begin(environment: Environment, **_: object) -> None:
    """Set up the run. Locust has created its runner and has not started it."""
    set_up(environment)
    if isinstance(environment.runner, WorkerRunner):
        follow(environment, SCENARIO)
        return
    job = Job(
        scenario=SCENARIO,
        run=secrets.token_hex(_RUN_BYTES),
        bootstrap=_bootstrap(environment.host),
        security=_settings(),
        target="",
        workers=0,
    )
    out = _out()
    run = Run(environment, job, _Words(), ends_locust=True)
    run.attach()
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, _interrupt, run)  # Locust has no handler while a shape runs

    def finish(**_: object) -> None:
        environment.process_exit_code = _finish(run, out)

    environment.events.test_stop.add_listener(finish)  # type: ignore[no-untyped-call]  # Locust


def _interrupt(run: Run) -> None:
    if run.leader.stopped is None:
        run.hurry(INTERRUPTED)
        return
    log.warning("%s", topics.may_be_left(topics.names(run.leader.names), run.leader.job.bootstrap))
    os._exit(EXIT_INTERRUPTED)


def _finish(run: Run, out: Path) -> int:
    """Write and print the result. Returns the exit code."""
    try:
        result = run.finish()
        try:
            write_json(result, out / "result.json")
            write_html([result], out / "report.html")
        finally:
            print_result(result)
    except (ClientError, KafkaError, Broken, OSError) as failure:
        log.error("no report: %s", failure)
        return 1 if run.leader.stopped is None else EXIT_INTERRUPTED
    if result.failure == INTERRUPTED:
        return EXIT_INTERRUPTED
    return 0 if result.passed else 1


def _bootstrap(host: str | None) -> str:
    """Check and return the bootstrap servers before anything runs."""
    if not host:
        _refuse("no brokers were named: give bootstrap servers with -H HOST:PORT (or LOCUST_HOST)")
    try:
        parse_bootstrap(host)
    except InvalidSetting as failure:
        _refuse(f"-H: {failure}")
    return host


def _settings() -> dict[str, Any]:
    """The settings of all clients."""
    text = os.environ.get("RAYLOG_CLIENT", "{}")
    try:
        settings = json.loads(text)
    except ValueError as failure:
        _refuse(f"RAYLOG_CLIENT: expected a JSON object such as {_EXAMPLE}: {failure}")
    if not isinstance(settings, dict):
        _refuse(f"RAYLOG_CLIENT: expected a JSON object such as {_EXAMPLE}")
    try:
        check_clients(SCENARIO, settings)
    except (BadScenario, InvalidSetting) as failure:
        _refuse(f"RAYLOG_CLIENT: {failure}")
    return settings


def _out() -> Path:
    """Check and return the folder of reports."""
    out = Path(os.environ.get("RAYLOG_OUT", "."))
    try:
        make_folder(out, "RAYLOG_OUT")
    except CommandFailed as failure:
        _refuse(str(failure))
    return out


def _refuse(why: str) -> NoReturn:
    """End Locust's command with the exit code of its own errors."""
    sys.stderr.write(f"locustfile.py: {why}\n")
    raise SystemExit(EXIT_USAGE)


def _scenario() -> Scenario:
    name = os.environ.get("RAYLOG_SCENARIO", "steady")
    try:
        scenario = found(name)
    except (BadScenario, OSError) as failure:
        _refuse(f"RAYLOG_SCENARIO: {failure}")
    if scenario.faults:
        _refuse(f"{name}: only `raylog loadtest` can run scenarios with faults")
    return scenario


SCENARIO = _scenario()
globals().update({one.__name__: one for one in users_of(SCENARIO)})
events.init.add_listener(_begin)  # type: ignore[no-untyped-call]  # Locust

"""A scenario under Locust's own command: `RAYLOG_SCENARIO=steady locust -f locustfile.py -H HOST`.

RAYLOG_SCENARIO is the name of a shipped scenario or a file; all processes get the same. The host is
a list of bootstrap servers. With --master, --worker and --processes several processes make the
load. The scenario says how many users there are and how long it takes, so --users, --spawn-rate and
--run-time have no effect. RAYLOG_OUT is the folder for report.html and result.json, the present one
by default. Settings of all clients, such as security.protocol, are JSON in RAYLOG_CLIENT.
SIGINT and SIGTERM end the run early, with a result and exit code 130; a second one, at once.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
from pathlib import Path
from typing import Any

import gevent
from locust import events
from locust.env import Environment
from locust.runners import WorkerRunner

from raylog.client import ClientError
from raylog.loadtest import topics
from raylog.loadtest.jobs import INTERRUPTED, Job, Progress, Said, Told
from raylog.loadtest.leading import Broken
from raylog.loadtest.report import print_result, write_html, write_json
from raylog.loadtest.running import Run, follow, set_up, users_of
from raylog.loadtest.scenario import BadScenario
from raylog.loadtest.shipped import found
from raylog.wire.errors import KafkaError

log = logging.getLogger("locust.raylog")
_RUN_BYTES = 4
_EXIT_INTERRUPTED = 130


class _Words:
    """What a run tells goes to Locust's log."""

    def tell(self, what: Told) -> None:
        """Log what a person wants to know."""
        if isinstance(what, Said):
            log.info("%s", what.text)
        elif isinstance(what, Progress):
            log.info(
                "%.0f s: %s %.0f/s, %d errors", what.at_s, what.operation, what.per_s, what.errors
            )


def _begin(environment: Environment, **_: object) -> None:
    """Locust has made its runner, and has not begun."""
    set_up(environment)
    if isinstance(environment.runner, WorkerRunner):
        follow(environment, SCENARIO)
        return
    job = Job(
        scenario=SCENARIO,
        run=secrets.token_hex(_RUN_BYTES),
        bootstrap=environment.host or "127.0.0.1:9092",
        security=json.loads(os.environ.get("RAYLOG_CLIENT", "{}")),
        target="",
        workers=0,
    )
    run = Run(environment, job, _Words(), ends_locust=True)
    run.attach()
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, _interrupt, run)  # Locust has none while a shape runs

    def finish(**_: object) -> None:
        environment.process_exit_code = _finish(run)

    environment.events.test_stop.add_listener(finish)  # type: ignore[no-untyped-call]  # Locust


def _interrupt(run: Run) -> None:
    if run.leader.stopped is None:
        run.hurry(INTERRUPTED)
        return
    names = " ".join(topics.names(run.leader.names))
    log.warning(
        "The topics of the run may still be there. Remove them with: raylog topics delete %s "
        "--bootstrap %s",
        names,
        run.leader.job.bootstrap,
    )
    os._exit(_EXIT_INTERRUPTED)


def _finish(run: Run) -> int:
    """Write and print the result; returns the exit code."""
    out = Path(os.environ.get("RAYLOG_OUT", "."))
    try:
        result = run.finish()
    except (ClientError, KafkaError, Broken, OSError) as failure:
        log.error("no result: %s", failure)
        return 1 if run.leader.stopped is None else _EXIT_INTERRUPTED
    out.mkdir(parents=True, exist_ok=True)
    write_json(result, out / "result.json")
    write_html([result], out / "report.html")
    print_result(result)
    if result.failure == INTERRUPTED:
        return _EXIT_INTERRUPTED
    return 0 if result.passed else 1


def _scenario() -> Any:
    name = os.environ.get("RAYLOG_SCENARIO", "steady")
    try:
        scenario = found(name)
    except (BadScenario, OSError) as failure:
        raise SystemExit(f"RAYLOG_SCENARIO: {failure}") from None
    if scenario.faults:
        raise SystemExit(f"{name}: faults are done by `raylog loadtest` only")
    return scenario


SCENARIO = _scenario()
globals().update({one.__name__: one for one in users_of(SCENARIO)})
events.init.add_listener(_begin)  # type: ignore[no-untyped-call]  # Locust

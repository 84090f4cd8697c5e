"""A run whose processes do not all send their last report. Locust patches the one that leads it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.support import load_results

SCRIPT = """
import gevent.monkey

gevent.monkey.patch_all()

import sys

from locust.runners import STATE_MISSING, WorkerNode

from raylog.loadtest.jobs import Job
from raylog.loadtest.leader import Leader
from raylog.loadtest.run import new_environment

done, missing, stopped, job = sys.argv[1:]
job = Job.model_validate_json(job)
environment = new_environment(job.scenario)
environment.create_master_runner("127.0.0.1", 0)
leader = Leader(environment, job, None)
leader._is_prepared, leader._workers, leader.started_us = True, ["a", "b"], 0
for name in leader._workers:
    environment.runner.clients[name] = WorkerNode(name)
    if name in missing:
        environment.runner.clients[name].state = STATE_MISSING
leader._done = set(done)
leader.stopped = stopped or None
leader.collect(0.2)
sys.stdout.write(str(leader.failure))
"""


@pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")
@pytest.mark.parametrize(
    ("done", "missing", "stopped", "expected"),
    [
        ("ab", "", "", "None"),
        ("a", "", "", "1 of 2 processes of the load did not send their last report: b"),
        ("a", "b", "", "1 of 2 processes of the load did not send their last report: b"),
        ("a", "", "interrupted", "None"),
    ],
)
def test_a_run_without_all_last_reports_fails(
    done: str, missing: str, stopped: str, expected: str
) -> None:
    """A run that was interrupted has failed already."""
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            done,
            missing,
            stopped,
            load_results.job().model_dump_json(),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.stdout == expected, ended.stderr

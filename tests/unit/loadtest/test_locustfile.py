"""Reports of a run under Locust's own command. Each process of it is patched by Locust."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from raylog.loadtest import results

pytestmark = pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")
LOCUSTFILE = Path(results.__file__).with_name("locustfile.py")
SCRIPT = """
import gevent.monkey

gevent.monkey.patch_all()

import pathlib
import sys
import types

from raylog.loadtest import locustfile
from tests.support import load_results

result = load_results.result(20)
leader = types.SimpleNamespace(stopped=sys.argv[1] or None)
run = types.SimpleNamespace(finish=lambda: result, leader=leader)
sys.exit(locustfile._finish(run, pathlib.Path("/proc/x")))
"""


@pytest.mark.parametrize(("stopped", "exit_code"), [("", 1), ("interrupted", 130)])
def test_a_result_that_cannot_be_written_is_printed(stopped: str, exit_code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, stopped],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == exit_code, done.stderr
    assert "PASSED" in done.stdout
    assert "no report: [Errno 2] No such file or directory: '/proc/x/" in done.stderr


def test_a_folder_for_reports_that_cannot_be_created_is_refused_before_the_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "-H", "127.0.0.1:1"],
        env={**os.environ, "RAYLOG_OUT": "/proc/x"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "locustfile.py: RAYLOG_OUT: /proc/x: No such file or directory" in done.stderr

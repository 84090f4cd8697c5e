"""The load test itself, briefly: it runs, every kind of user reports, nothing fails."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conformance.conftest import EXTERNAL, Target

LOCUSTFILE = Path(__file__).parents[2] / "loadtest" / "locustfile.py"


def test_users_report_no_failure(targets: Callable[[str], Target]) -> None:
    target = targets("external" if EXTERNAL else "raylog-1")
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "-H", target.bootstrap]
    options = ["--headless", "-u", "5", "-r", "5", "-t", "3s", "--json", "--skip-log"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    found = {row["method"]: row for row in json.loads(done.stdout)}
    assert set(found) == {"produce", "consume", "offsets"}
    assert all(row["num_requests"] > 0 for row in found.values())
    assert [row["num_failures"] for row in found.values()] == [0, 0, 0]

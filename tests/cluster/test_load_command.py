"""`raylog loadtest` on a cluster of this machine: faults are marked, workers run on Ray nodes."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from raylog.actors.runtime.processes import descendants
from raylog.actors.runtime.ray_node import running_nodes
from raylog.loadtest.report import read_json
from raylog.loadtest.results import Result

COMMAND = [sys.executable, "-m", "raylog.cli"]
TEXT = """
name = "mine"
question = "What is felt?"
duration_s = 8
warmup_s = 1

[topics.orders]
partitions = 3

[[users]]
kind = "producer"
topic = "orders"
count = 2
rate = 200

[[users]]
kind = "group"
topic = "orders"
group = "billing"

[[thresholds]]
operation = "produce"
errors_share = 0.0
"""


def raylog(*arguments: object, expected: int = 0) -> str:
    """What a command prints."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three brokers on two Ray nodes of this machine."""
    folder = tmp_path_factory.mktemp("data")
    raylog("up", "--brokers", 3, "--nodes", 2, "--port", 0, "--data", folder, "--detach")
    yield folder
    raylog("down", "--data", folder)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    return path


FAULTS = [
    ("{kind = 'pause-broker', at_s = 3, lasts_s = 1}", "stopped for 1 s"),
    ("{kind = 'kill-controller', at_s = 8}", "controller killed"),
    ("{kind = 'kill-leader', at_s = 14}", "killed"),
    ("{kind = 'kill-coordinator', at_s = 20}", "coordinator of billing-"),
]


@pytest.mark.long
def test_faults_are_done_and_marked(data: Path, mine: Path) -> None:
    """The group is there by second 20; a busy machine takes seconds to kill what leads it."""
    faults = ", ".join(fault for fault, _ in FAULTS)
    sets = ["--set", f"faults=[{faults}]", "--set", "duration_s=32"]
    found = Result.model_validate_json(raylog("loadtest", mine, "--data", data, *sets, "--json"))
    marks = [one for one in found.marks if one.kind == "fault"]
    planned = found.scenario.faults
    for mark, fault, (_, text) in zip(marks, planned, FAULTS, strict=True):
        assert text in mark.text
        assert mark.at_s == pytest.approx(fault.at_s, abs=2.5)
    assert found.failure is None
    assert not found.audit.findings
    watched = {one.labels["broker"] for one in found.gauges if one.name == "memory"}
    assert watched == {"0", "1", "2"}


@pytest.mark.long
def test_the_brokers_restart_in_turn_under_load(data: Path, mine: Path) -> None:
    arguments = ["--set", "faults=[{kind = 'roll', at_s = 1}]", "--set", "duration_s=120"]
    found = Result.model_validate_json(
        raylog("loadtest", mine, "--data", data, *arguments, "--json")
    )
    (mark,) = [one for one in found.marks if one.kind == "fault"]
    assert mark.text == "all brokers restarted"
    assert mark.at_s == pytest.approx(1, abs=1)
    assert found.passed


@pytest.mark.long
def test_a_paused_broker_goes_on_when_the_run_is_interrupted(
    data: Path, mine: Path, tmp_path: Path
) -> None:
    fault = "faults=[{kind = 'pause-broker', at_s = 1, lasts_s = 50}]"
    asked = ["--set", "duration_s=60", "--set", fault]
    process = subprocess.Popen(
        [*COMMAND, "loadtest", mine, "--data", data, *asked, "--out", tmp_path],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "has begun" in line:
            break
    deadline = time.monotonic() + 30
    while not (stopped := stopped_processes(data)):
        assert time.monotonic() < deadline, "a broker is paused"
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 130
    process.stderr.close()
    assert not set(stopped) & set(stopped_processes(data))
    assert read_json(tmp_path / "result.json").failure == "interrupted"


def stopped_processes(data: Path) -> list[int]:
    """Processes of the cluster that SIGSTOP holds."""
    nodes = [process for node in running_nodes(data / "run") for process in node.processes]
    found = []
    for process in descendants(nodes):
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
                found.append(process.pid)
    return found


@pytest.mark.long
def test_workers_on_ray_are_spread_over_its_nodes(data: Path, mine: Path) -> None:
    found = Result.model_validate_json(
        raylog("loadtest", mine, "--data", data, "--on-ray", 2, "--json")
    )
    assert [one.worker for one in found.generators] == [0, 1]
    assert len({one.pid for one in found.generators}) == 2
    assert found.passed
    assert found.audit.found == found.audit.acknowledged > 0

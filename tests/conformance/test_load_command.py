"""`raylog loadtest` against a broker: each shipped scenario, briefly, and possible mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from raylog.client import Admin
from raylog.loadtest.local import Local
from raylog.loadtest.report import read_json
from raylog.loadtest.results import Result
from raylog.loadtest.shipped import found, names
from raylog.loadtest.targets import TopicsRefused, checked_target
from tests.conformance.conftest import EXTERNAL, Target

QUICK = {"steady", "hot-keys"}
"""The shipped scenarios that `make test` runs."""
COMMAND = [sys.executable, "-m", "raylog.cli", "loadtest"]
LOCUSTFILE = Path(__file__).parents[2] / "loadtest" / "locustfile.py"
LOCUST = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE)]
MINE = """
name = "mine"
question = "Does it work?"
duration_s = 4
warmup_s = 1

[topics.orders]

[[users]]
kind = "producer"
topic = "orders"
count = 3
rate = 300

[[users]]
kind = "consumer"
topic = "orders"
count = 2
"""


@pytest.fixture
def target(targets: Callable[[str], Target]) -> Target:
    return targets("external" if EXTERNAL else "raylog-1")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    return path


def load(*arguments: object, expected: int = 0) -> str:
    """What the command prints to standard output."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


def result(*arguments: object, expected: int = 0) -> Result:
    """The result of a run."""
    return Result.model_validate_json(load(*arguments, "--json", expected=expected))


def requests(found: Result, operation: str) -> int:
    (one,) = [one for one in found.operations if one.name == operation]
    return sum(each.requests for each in one.intervals)


def topics_left(target: Target, found: Result) -> list[str]:
    with Admin(target.bootstrap) as admin:
        return [name for name in admin.metadata().topics if name.endswith(found.run)]


def groups_left(target: Target, found: Result) -> list[str]:
    with Admin(target.bootstrap) as admin:
        return [one.group_id for one in admin.list_groups() if one.group_id.endswith(found.run)]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in names()],
)
def test_shipped_scenarios(target: Target, name: str) -> None:
    """Thresholds are left out: nothing is said about the speed of a machine that tests share."""
    lasts_s, times = 3, ["--duration", "3"]
    if name == "capacity":  # a step takes four seconds at least
        lasts_s = 6
        times = ["--set", "duration_s=6", "--set", "warmup_s=1", "--set", "shape.hold_s=4"]
    found = result(
        *(name, "--bootstrap", target.bootstrap, *times, "--scale", 0.3),
        *("--set", "faults=[]", "--set", "thresholds=[]"),
    )
    assert found.passed
    assert found.failure is None
    assert found.audit.acknowledged > 0
    assert found.audit.found >= found.audit.acknowledged
    assert found.duration_s == pytest.approx(lasts_s, abs=0.2)
    assert not topics_left(target, found)
    assert not groups_left(target, found)


@pytest.mark.long
def test_a_run_over_several_processes(target: Target, mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = result(mine, "--bootstrap", target.bootstrap, "--processes", 2, "--out", out)
    assert [one.worker for one in found.generators] == [0, 1]
    assert len({one.pid for one in found.generators}) == 2
    assert requests(found, "produce") == found.audit.acknowledged == found.audit.found
    assert requests(found, "produce") == pytest.approx(1_200, rel=0.1)
    assert read_json(out / "result.json") == found
    assert "<html" in (out / "report.html").read_text()
    assert "<html" in (out / "locust.html").read_text()


def test_thresholds_decide_the_exit_code(target: Target, mine: Path) -> None:
    limit = "{operation = 'produce', percentile = 'p99_ms', max_ms = 0.001}"
    found = result(
        *(mine, "--bootstrap", target.bootstrap, "--set", f"thresholds=[{limit}]"), expected=1
    )
    (verdict,) = found.verdicts
    assert not verdict.held
    assert not found.audit.findings


def heeds_interrupts() -> None:
    """What runs in the background of a shell ignores SIGINT, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_run_that_is_interrupted_has_a_result(target: Target, mine: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(mine), "-b", target.bootstrap, "--duration", "60", "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heeds_interrupts,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "has begun" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    process.stderr.close()
    found = read_json(tmp_path / "result.json")
    assert found.failure == "interrupted"
    assert found.duration_s < 20
    assert not topics_left(target, found)


@pytest.mark.long
def test_a_worker_that_dies_fails_the_run(target: Target, mine: Path, tmp_path: Path) -> None:
    endless = [*COMMAND, str(mine), "-b", target.bootstrap, "--duration", "60"]
    process = subprocess.Popen(
        [*endless, "--processes", "2", "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "has begun" in line:
            break
    victim = workers_of(process.pid)[-1]
    os.kill(victim, signal.SIGKILL)
    assert process.wait(60) == 1
    process.stderr.close()
    found = read_json(tmp_path / "result.json")
    assert found.failure == f"process {victim} of the load was ended by signal 9"
    assert not found.audit.findings, "what the lost process had sent is not known"
    assert not topics_left(target, found)


def workers_of(pid: int) -> list[int]:
    """Processes that a command has started, oldest first."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    children = [int(one) for one in text.split()]
    assert len(children) >= 3, "one that leads the run, and two workers"
    return children


@pytest.mark.long
def test_two_runs_at_once_do_not_disturb_each_other(target: Target, mine: Path) -> None:
    command = [*COMMAND, str(mine), "-b", target.bootstrap, "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [Result.model_validate_json(one.communicate(timeout=120)[0]) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert len({one.run for one in found}) == 2
    assert all(one.audit.found == one.audit.acknowledged > 0 for one in found)


@pytest.mark.long
def test_clusters_are_compared_in_turn(target: Target, mine: Path, tmp_path: Path) -> None:
    other = target.bootstrap.replace("127.0.0.1", "localhost")
    if other == target.bootstrap:
        pytest.skip("a second name for the brokers is needed, such as localhost for 127.0.0.1")
    output = load(
        *(mine, "--bootstrap", target.bootstrap, "--compare", other, "--rounds", 2),
        *("--duration", 2, "--json", "--out", tmp_path),
    )
    targets = [one["target"]["bootstrap"] for one in json.loads(output)]
    assert targets == [target.bootstrap, other] * 2
    found = [read_json(tmp_path / f"result-{number}.json") for number in (1, 2, 3, 4)]
    assert all(one.passed for one in found)
    differences = json.loads(
        load("diff", tmp_path / "result-1.json", tmp_path / "result-2.json", "--json")
    )
    assert {"changes", "notes"} <= set(differences)


@pytest.mark.parametrize(
    "change", ["replication=1000", "partitions=20000", "settings={unknown='1'}"]
)
def test_topics_that_brokers_refuse_are_mistakes_of_the_scenario(
    target: Target, mine: Path, change: str
) -> None:
    scenario = found(str(mine), changes=[f"topics.orders.{change}"])
    with pytest.raises(TopicsRefused, match=r"mine at .*: topic 'orders-"):
        checked_target({}, Local(scenario, os.urandom(4).hex(), target.bootstrap))


def test_a_cluster_that_would_take_a_scenario_is_reported_by_its_name(
    target: Target, mine: Path
) -> None:
    local = Local(found(str(mine)), os.urandom(4).hex(), target.bootstrap)
    found_target = checked_target({}, local)
    assert found_target.brokers >= 1
    assert EXTERNAL or found_target.kind == "Raylog"
    with Admin(target.bootstrap) as admin:
        assert local.topic("orders") not in admin.metadata().topics


@pytest.mark.long
def test_locusts_own_command_that_is_ended(target: Target, mine: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*LOCUST, "-H", target.bootstrap, "--headless"],
        env={**os.environ, "RAYLOG_SCENARIO": str(mine), "RAYLOG_OUT": str(tmp_path)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "has begun" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    ended = read_json(tmp_path / "result.json")
    assert ended.failure == "interrupted"
    assert not topics_left(target, ended)


@pytest.mark.long
def test_locusts_own_command(target: Target, mine: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*LOCUST, "-H", target.bootstrap, "--headless", "--processes", "2"],
        env={**os.environ, "RAYLOG_SCENARIO": str(mine), "RAYLOG_OUT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = read_json(tmp_path / "result.json")
    assert made.passed
    assert len(made.generators) == 2
    assert requests(made, "produce") == made.audit.acknowledged > 0
    assert requests(made, "end-to-end") > 0


def test_locusts_own_command_asks_for_brokers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless"],
        env={name: value for name, value in os.environ.items() if name != "LOCUST_HOST"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "no brokers were named: give bootstrap servers with -H HOST:PORT" in done.stderr

"""`raylog logs` on directories, with or without a running cluster, and on Ray."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raylog.actors.decisions import ELECTION, ISR
from raylog.actors.journal import JournalAsked, JournalTold, Noted, line_of
from raylog.actors.runtime.ray import RayRuntime
from raylog.actors.supervisor.rules.desired import DesiredCluster
from raylog.cli import logs, ray_cluster
from raylog.cli.app import app
from tests.worlds.broker.supervised import labelled

NOW_MS = int(time.time() * 1000)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["logs", *arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for broker, at_ms, kind in ((0, 1_000, ELECTION), (1, 500, ISR), (1, NOW_MS, ELECTION)):
        directory = tmp_path / f"broker-{broker}" / "journal"
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "decisions").open("ab") as file:
            file.write(
                line_of(Noted(at_ms, "r", f"id/broker/{broker}", 7, kind, "t-0", f"at {at_ms}"))
            )
    return tmp_path


def test_journals_are_one_in_time_order(data: Path) -> None:
    code, output, _ = run("--data", str(data))
    assert code == 0
    assert output.splitlines()[:2] == [
        "1970-01-01T00:00:00.500Z broker/1 isr: at 500",
        "1970-01-01T00:00:01.000Z broker/0 election: at 1000",
    ]
    assert len(output.splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--kind", "isr"], [500]),
        (["--broker", "0"], [1_000]),
        (["--since", "10m"], [NOW_MS]),
        (["--since", "1970-01-01T00:00:00.800Z", "--kind", "election"], [1_000, NOW_MS]),
        (["--limit", "1"], [NOW_MS]),
    ],
)
def test_some_are_selected(data: Path, arguments: list[str], expected: list[int]) -> None:
    code, output, _ = run("--data", str(data), "--json", *arguments)
    assert (code, [one["at_ms"] for one in json.loads(output)]) == (0, expected)


def test_with_follow_each_json_object_is_one_line(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_follow", lambda *_, **__: None)
    _, output, _ = run("--data", str(data), "--json", "--follow")
    assert [json.loads(line)["at_ms"] for line in output.splitlines()] == [500, 1_000, NOW_MS]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--kind", "elections"], "expected one of election, isr"),
        (["--since", "soon"], "expected 10m, 2h, 3d or"),
    ],
)
def test_invalid_logs_arguments_are_refused(data: Path, arguments: list[str], why: str) -> None:
    code, _, errors = run("--data", str(data), *arguments)
    assert code == 2
    assert why in errors


def test_crashes_are_reported_with_the_last_decisions(data: Path) -> None:
    running = data / "broker-1" / "journal" / "running"
    running.mkdir()
    head = {"process": "id/broker/1", "pid": 7, "started": "long ago", "build": "0.1"}
    (running / "x").write_text(json.dumps(head) + "\nTraceback\nAssertionError: no\n")
    code, output, _ = run("--data", str(data), "--crashes")
    assert code == 0
    lines = output.splitlines()
    assert lines[0].endswith(" id/broker/1 (process 7, build 0.1) of broker 1")
    assert lines[1:3] == ["  Traceback", "  AssertionError: no"]
    assert lines[3] == "  1970-01-01T00:00:00.500Z isr: at 500"


def test_a_directory_of_no_cluster_is_named(tmp_path: Path) -> None:
    from raylog.cli.failures import CommandFailed

    with pytest.raises(CommandFailed, match="has no broker's data"):
        run("--data", str(tmp_path))


def test_all_controllers_on_ray_are_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class FakeRuntime(RayRuntime):
        def __init__(self) -> None:
            """Needs no Ray."""

        async def names(self, prefix: str) -> set[str]:
            return {prefix, f"{prefix}/1.2"}

        async def journal(self, name: str, request: JournalAsked, timeout_ms: int) -> JournalTold:
            return JournalTold((Noted(1, "r", name, 7, ISR, "t-0", "text"),))

    desired = DesiredCluster("c", (labelled(0),), ())
    monkeypatch.setattr(ray_cluster, "on_ray", nullcontext)
    monkeypatch.setattr(ray_cluster, "desired_clusters", lambda: [desired])
    monkeypatch.setattr(RayRuntime, "of_driver", lambda _: FakeRuntime())
    found = logs.asked_on_ray("auto", tmp_path, JournalAsked())
    assert {who: one.noted[0].process for who, one in found.journals.items()} == {
        "broker 0": "c/broker/0/0",
        "controller": "c/controller",
        "controller/1.2": "c/controller/1.2",
    }

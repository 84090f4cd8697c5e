"""Every command has --json, and its standard output is then JSON."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup
from typer.testing import CliRunner

from raylog.cli.app import app


def commands(command: object, *name: str) -> Iterator[tuple[str, TyperCommand]]:
    """All commands that can be called, by name."""
    if isinstance(command, TyperGroup):
        for part, inner in command.commands.items():
            yield from commands(inner, *name, part)
        return
    assert isinstance(command, TyperCommand)
    yield " ".join(name), command


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_json(name: str) -> None:
    options = [option for one in ALL[name].params for option in one.opts]
    assert options.count("--json") == 1
    helped = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    assert "--json" in helped.stdout


RUNS: list[tuple[str, list[str], object]] = [
    ("topics create", ["made", "-p", "2"], {"created": ["made"], "existing": []}),
    ("topics create", ["made", "--if-not-exists"], {"created": [], "existing": ["made"]}),
    (
        "topics alter",
        ["made", "-p", "3", "-c", "retention.ms=5000"],
        {"topic": "made", "configs": {"retention.ms": "5000"}, "partitions": 3},
    ),
    (
        "configs alter",
        ["topic", "made", "--unset", "retention.ms"],
        {"kind": "topic", "name": "made", "changed": {"retention.ms": None}},
    ),
    ("topics list", [], None),
    ("topics describe", ["made"], None),
    ("topics reassign", ["--topic", "made", "--brokers", "0"], None),
    ("topics elect-leaders", ["--all"], None),
    ("brokers list", [], None),
    ("quorum status", [], None),
    ("quorum add", ["0"], {}),
    ("configs list", ["retention"], None),
    ("configs describe", ["topic", "made"], None),
    ("groups list", [], None),
    ("groups reset-offsets", ["g", "--topic", "made", "--to-earliest", "--execute"], None),
    ("groups describe", ["g"], None),
    ("groups delete", ["g"], {}),
    ("transactions list", [], None),
    ("transactions describe-producers", ["made", "0"], None),
    ("transactions hanging", ["--topic", "made"], None),
    ("plugins list", [], None),
    ("rebalance", ["--dry-run"], None),
    ("topics delete", ["made", "--yes"], {"deleted": ["made"]}),
]


def test_json_output_of_every_command_parses(bootstrap: str) -> None:
    environment = {"RAYLOG_BOOTSTRAP": bootstrap}
    for name, arguments, facts in RUNS:
        done = CliRunner().invoke(app, [*name.split(), *arguments, "--json"], env=environment)
        assert done.exit_code == 0, f"{name}: {done.output} {done.exception!r}"
        found = json.loads(done.stdout)
        if facts is not None:
            messages = found.pop("done")
            assert messages
            assert all(line in done.stderr for line in messages)
            assert found == facts


def test_records_are_one_object_a_line(bootstrap: str, tmp_path: Path) -> None:
    environment = {"RAYLOG_BOOTSTRAP": bootstrap}
    source = tmp_path / "lines"
    source.write_text('{"value": "a"}\n{"value": "b"}\n')
    written = CliRunner().invoke(app, ["produce", "lines", str(source), "--json"], env=environment)
    assert (written.exit_code, written.stdout) == (0, "")
    options = ["--from", "earliest", "--exit", "--json"]
    read = CliRunner().invoke(app, ["consume", "lines", *options], env=environment)
    assert sorted(json.loads(line)["value"] for line in read.stdout.splitlines()) == ["a", "b"]


def test_failures_print_nothing_on_standard_output(bootstrap: str) -> None:
    environment = {"RAYLOG_BOOTSTRAP": bootstrap}
    done = CliRunner().invoke(app, ["topics", "delete", "absent", "--json"], env=environment)
    assert done.exception is not None
    assert done.stdout == ""
    some = CliRunner().invoke(app, ["groups", "delete", "absent", "--json"], env=environment)
    assert some.exit_code == 1
    assert json.loads(some.stdout)["done"] == []
    assert len(json.loads(some.stdout)["failed"]) == 1


def test_waiting_at_the_end_is_said_once(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two records are there; the third is written when the command says that it waits."""
    messages: list[str] = []
    source = tmp_path / "line"
    source.write_text("again\n")

    def write(text: str) -> None:
        messages.append(text)
        written = CliRunner().invoke(app, ["produce", "ended", str(source), "-b", bootstrap])
        assert written.exit_code == 0

    write("first")
    write("second")
    monkeypatch.setattr("raylog.cli.consume.print_done", write)
    options = ["--from", "earliest", "--count", "3", "-b", bootstrap]
    read = CliRunner().invoke(app, ["consume", "ended", *options])
    assert read.stdout == "again\n" * 3
    assert messages[2:] == ["At the end of ended: waiting for new records (Ctrl-C stops)"]


def test_a_group_reads_on_where_it_has_committed(bootstrap: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_text("one\ntwo\nthree\n")
    environment = {"RAYLOG_BOOTSTRAP": bootstrap}
    CliRunner().invoke(app, ["topics", "create", "grouped", "-p", "1"], env=environment)
    CliRunner().invoke(app, ["produce", "grouped", str(source)], env=environment)
    read = ["consume", "grouped", "--group", "readers", "--from", "earliest"]
    first = CliRunner().invoke(app, [*read, "--count", "2"], env=environment)
    assert first.stdout == "one\ntwo\n"
    rest = CliRunner().invoke(app, [*read, "--exit"], env=environment)
    assert rest.stdout == "three\n"
    refused = CliRunner().invoke(app, [*read, "--partition", "0"], env=environment)
    assert refused.exit_code == 2

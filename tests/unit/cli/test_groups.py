"""`raylog groups` and `raylog plugins` as users run them, on an embedded broker."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner

from raylog.cli import groups as commands
from raylog.cli.app import app
from raylog.cli.completion import complete_groups, complete_topics
from raylog.cli.failures import CommandFailed
from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import GroupIdNotFound, NotCoordinator, UnknownTopicOrPartition
from tests.support.plugins import installed

RECORDS = 10
FAILING = """
from raylog.assignors.api import Assignor

class Failing(Assignor):
    name = "failing"

    def assign(self, members, topics):
        raise ValueError("no capacity is configured")
"""


class Shell:
    """Runs commands on one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._environment = {"RAYLOG_BOOTSTRAP": bootstrap, "COLUMNS": "200", "NO_COLOR": "1"}

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command that ends with `code`; returns all that it printed."""
        result = CliRunner().invoke(
            app, list(arguments), env=self._environment, catch_exceptions=False
        )
        assert result.exit_code == code, result.output
        return result.output

    def json(self, *arguments: str) -> list[dict[str, object]]:
        """Run a command that prints a JSON list."""
        result = CliRunner().invoke(
            app, [*arguments, "--json"], env=self._environment, catch_exceptions=False
        )
        found = json.loads(result.stdout)
        assert isinstance(found, list)
        return found

    def offsets(self, group: str) -> dict[int, object]:
        """Committed offsets of a group that reads one topic."""
        (found,) = self.json("groups", "describe", group)
        rows = found["partitions"]
        assert isinstance(rows, list)
        return {row["partition"]: row["committed_offset"] for row in rows}


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with EmbeddedBroker(settings={"group.consumer.assignors": "uniform,failing"}) as broker:
        with BlockingClient(broker.bootstrap) as client:
            client.create_topics([NewTopic("t", 2)])
            with client.producer() as producer:
                for number in range(RECORDS):
                    producer.send("t", b"v", partition=number % 2, timestamp_ms=1_000 * number)
        yield Shell(broker.bootstrap)


@pytest.fixture
def group(shell: Shell, request: pytest.FixtureRequest) -> str:
    """A group that has read two records of each partition."""
    name = f"group {request.node.name}"
    with BlockingClient(shell.bootstrap) as client:
        client.commit_group_offsets(name, {TopicPartition("t", 0): 2, TopicPartition("t", 1): 2})
    return name


def test_a_group_is_listed_described_and_deleted(shell: Shell, group: str) -> None:
    listed = {row["group"]: row for row in shell.json("groups", "list", "--state", "empty")}
    assert listed[group]["type"] == "classic"
    assert group not in shell.run("groups", "list", "--type", "consumer")
    text = shell.run("groups", "describe", group)
    assert f"{group}  Empty, classic, 0 members, lag 6" in text
    assert group in shell.run("groups", "describe", "--all")
    assert f"{group} deleted" in shell.run("groups", "delete", group)
    with pytest.raises(GroupIdNotFound):
        shell.run("groups", "describe", group)
    assert "GROUP_ID_NOT_FOUND" in shell.run("groups", "delete", group, code=1)


@pytest.mark.parametrize(
    ("how", "offsets"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 5, 1: 5}),
        (("--to-current",), {0: 2, 1: 2}),
        (("--to-offset", "4"), {0: 4, 1: 4}),
        (("--to-offset", "40"), {0: 5, 1: 5}),
        (("--shift-by", "1"), {0: 3, 1: 3}),
        (("--shift-by", "-9"), {0: 0, 1: 0}),
        (("--to-datetime", "4000"), {0: 2, 1: 2}),
        (("--to-datetime", "1970-01-01T00:00:05Z"), {0: 3, 1: 2}),
        (("--by-duration", "PT1S"), {0: 5, 1: 5}),
        (("--by-duration", "P9999W"), {0: 0, 1: 0}),
        (("--to-datetime", "1950-01-01"), {0: 0, 1: 0}),
    ],
)
def test_offsets_are_shown_first_and_then_set(
    shell: Shell, group: str, how: tuple[str, ...], offsets: dict[int, int]
) -> None:
    command = ("groups", "reset-offsets", group, *how, "--all-topics")
    shown = shell.run(*command)
    assert "nothing was changed" in shown
    assert shell.offsets(group) == {0: 2, 1: 2}
    shell.run(*command, "--execute")
    assert shell.offsets(group) == offsets


def test_only_what_is_named_is_reset(shell: Shell, group: str) -> None:
    shell.run("groups", "reset-offsets", group, "--to-earliest", "-t", "t:1", "--execute")
    assert shell.offsets(group) == {0: 2, 1: 0}
    shell.run("groups", "reset-offsets", f"{group} new", "--to-latest", "-t", "t", "--execute")
    assert shell.offsets(f"{group} new") == {0: 5, 1: 5}
    shell.run("groups", "delete", group, "-t", "t:0,9")
    assert shell.offsets(group) == {1: 0}
    shell.run("groups", "delete", group, "-t", "t:1", "-t", "t:9")
    assert shell.offsets(group) == {}


@pytest.mark.parametrize("name", ["offsets.csv", "offsets.json"])
def test_offsets_go_to_a_file_and_back(shell: Shell, group: str, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    shell.run("groups", "reset-offsets", group, "--to-current", "--all-topics", "--export", path)
    shell.run("groups", "reset-offsets", group, "--to-latest", "--all-topics", "--execute")
    shell.run("groups", "reset-offsets", group, "--from-file", path, "--execute")
    assert shell.offsets(group) == {0: 2, 1: 2}
    printed = shell.run(
        "groups", "reset-offsets", group, "--to-offset", "1", "--all-topics", "--export", "-"
    )
    assert printed == "t,0,1\nt,1,1\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--all-topics",), "expected one of --to-earliest"),
        (("--to-earliest", "--to-latest", "--all-topics"), "--to-earliest and --to-latest"),
        (("--to-earliest",), "give --topic TOPIC[:0,1] or --all-topics"),
        (("--to-earliest", "-t", "t", "--all-topics"), "give --topic TOPIC[:0,1] or --all-topics"),
        (("--to-earliest", "-t", "t", "--execute", "--dry-run"), "not both"),
        (("--by-duration", "1h", "-t", "t"), "expected a duration such as PT30M"),
        (("--to-datetime", "noon", "-t", "t"), "expected a time such as 2026-01-31T12:00"),
    ],
)
def test_a_reset_that_makes_no_sense_says_what_would(
    shell: Shell, arguments: tuple[str, ...], expected: str
) -> None:
    output = shell.run("groups", "reset-offsets", "g", *arguments, code=2)
    assert expected in " ".join(output.replace("│", " ").split())


def test_a_file_that_makes_no_sense_is_reported(shell: Shell) -> None:
    with pytest.raises(CommandFailed, match="expected topic, partition and offset") as caught:
        shell.run("groups", "reset-offsets", "g", "--from-file", __file__)
    assert caught.value.failure.exit_code == 2


def test_partitions_that_are_not_there_are_reported(shell: Shell, group: str) -> None:
    reset = ("groups", "reset-offsets", group, "--to-earliest", "--topic")
    with pytest.raises(CommandFailed, match="t has the partitions 0 to 1, found 2"):
        shell.run(*reset, "t:0,2")
    with pytest.raises(UnknownTopicOrPartition):
        shell.run(*reset, "nowhere")
    with pytest.raises(CommandFailed, match="has no committed offsets"):
        shell.run("groups", "reset-offsets", "nobody", "--to-earliest", "--all-topics")


def test_watching_shows_each_look_and_bears_a_coordinator_that_moves(
    shell: Shell, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read = commands._read

    def sometimes(client: BlockingClient, names: list[str] | None) -> object:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise NotCoordinator("moved")
        if looks == 4:
            raise KeyboardInterrupt
        return read(client, names)

    monkeypatch.setattr(commands, "_read", sometimes)
    watch = ("groups", "describe", group, "--watch", "--interval", "0.1")
    output = shell.run(*watch)
    assert output.count(f"{group}  Empty") == 2
    assert "NotCoordinator: moved" in output
    looks = 0
    lines = [line for line in shell.run(*watch, "--json").splitlines() if line.startswith("[")]
    assert [json.loads(line)[0]["lag"] for line in lines] == [6, 6]


def test_names_complete(shell: Shell, group: str) -> None:
    import typer

    def completing(bootstrap: str, complete: Callable[..., list[str]], begun: str) -> list[str]:
        command = typer.main.get_command(app)
        with typer.Context(command) as context:
            context.params["bootstrap"] = bootstrap
            return complete(context, begun)

    assert group in completing(shell.bootstrap, complete_groups, "group ")
    assert completing(shell.bootstrap, complete_groups, "nobody") == []
    assert completing(shell.bootstrap, complete_topics, "") == ["t"]
    assert completing(shell.bootstrap, complete_topics, "__c") == ["__consumer_offsets"]
    assert completing("127.0.0.1:1", complete_groups, "") == []
    assert completing("127.0.0.1:1", complete_topics, "") == []


def test_why_an_assignor_failed_is_seen(shell: Shell, tmp_path: Path) -> None:
    entries = {"failing": "Failing"}
    with installed(tmp_path, "raylog.assignors", FAILING, entries):
        member = Consumer(
            {
                "bootstrap.servers": shell.bootstrap,
                "group.id": "failing",
                "group.protocol": "consumer",
                "group.remote.assignor": "failing",
            }
        )
        member.subscribe(["t"])
        deadline = time.monotonic() + 30
        text = ""
        while "last assignment failed" not in text and time.monotonic() < deadline:
            member.poll(0.2)
            if any(row["group"] == "failing" for row in shell.json("groups", "list")):
                text = shell.run("groups", "describe", "failing")
        member.close()
    assert "last assignment failed:" in text
    assert "no capacity is configured" in text


def test_installed_plugins_are_listed(shell: Shell, tmp_path: Path) -> None:
    rows = shell.json("plugins", "list")
    assert {row["state"] for row in rows} == {"ready"}
    named = {(row["kind"], row["name"]) for row in rows}
    assert named >= {("assignor", "range"), ("interceptor", "json-schema")}
    broken = "raise ImportError('no such library')"
    with installed(tmp_path, "raylog.assignors", broken, {"broken": "Broken"}):
        output = shell.run("plugins", "list", code=1)
    assert "strangers" in output
    assert "no such library" in output

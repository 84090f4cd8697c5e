"""`raylog quorum` as users run it, on three embedded brokers."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.cli.failures import CommandFailed, explain
from raylog.cli.quorum import _tolerance
from raylog.client import BlockingClient, NewTopic
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import RequestTimedOut, VoterNotFound


class Shell:
    """Runs commands on one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._environment = {"RAYLOG_BOOTSTRAP": bootstrap, "COLUMNS": "200", "NO_COLOR": "1"}

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command that ends with `code`; returns what it printed."""
        result = CliRunner().invoke(app, ["quorum", *arguments], env=self._environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.output

    def rows(self) -> dict[int, dict[str, object]]:
        """Each copy of the metadata log, by broker."""
        return {row["broker"]: row for row in json.loads(self.run("status", "--json"))}

    def voters(self) -> list[int]:
        return [broker for broker, row in self.rows().items() if row["role"] != "observer"]


@pytest.fixture
def shell() -> Iterator[Shell]:
    with EmbeddedBroker(brokers=3) as brokers:
        yield Shell(brokers.bootstrap)


def test_voters_are_shown_removed_and_added(shell: Shell) -> None:
    shown = shell.run("status")
    assert "3 brokers vote; 1 of them may be lost" in shown
    assert sorted(shell.voters()) == [0, 1, 2]
    assert "broker 1 is already a voter" in shell.run("add", "1")
    said = shell.run("remove", "0", "--yes")
    assert "broker 0 is no longer a voter; 2 brokers vote; none of them may be lost" in said
    rows = shell.rows()
    assert rows[0]["role"] == "observer"
    assert rows[0]["directory"]
    with pytest.raises(CommandFailed, match="broker 0 is not a voter"):
        shell.run("remove", "0")
    shell.run("remove", "1", "--directory", str(rows[1]["directory"]))
    with pytest.raises(CommandFailed, match="broker 2 is the last voter") as last:
        shell.run("remove", "2")
    problem = explain(last.value)
    assert problem is not None
    assert problem.hint == "Add another voter first: raylog quorum add BROKER"
    with BlockingClient(shell.bootstrap) as client:
        with pytest.raises(VoterNotFound, match="Cannot remove voter ReplicaKey"):
            client.remove_voter(2, str(rows[2]["directory"]))
        with pytest.raises(RequestTimedOut, match="since it is lagging behind"):
            client.add_voter(0, str(rows[1]["directory"]))
        client.create_topics([NewTopic("meanwhile")])
    assert "2 brokers vote" in shell.run("add", "0")
    assert "3 brokers vote; 1 of them may be lost" in shell.run("add", "1")
    assert sorted(shell.voters()) == [0, 1, 2]


def test_silent_voters_count_as_lost() -> None:
    assert _tolerance(3) == "3 brokers vote; 1 of them may be lost"
    away = "3 brokers vote; 1 has been silent for 10 s: no other one may be lost"
    assert _tolerance(3, [1]) == away
    assert _tolerance(5, [1]).endswith("1 more may be lost")


def test_nobody_who_is_not_there_is_added_or_removed(shell: Shell) -> None:
    with pytest.raises(CommandFailed, match="broker 7 is not known"):
        shell.run("add", "7")
    with pytest.raises(CommandFailed, match="broker 1 is not a voter with nothing"):
        shell.run("remove", "1", "--directory", "nothing")
    assert "expected NAME=HOST:PORT" in shell.run("remove", "1", "--yes", code=0) + shell.run(
        "add", "1", "--listener", "wrong", code=2
    )

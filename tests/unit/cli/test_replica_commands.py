"""Commands about replicas and brokers as users run them, on three embedded brokers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.cli.failures import CommandFailed, explain
from raylog.client import BlockingClient, TopicPartition
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import BrokerIdNotRegistered

DEADLINE_S = 30


class Shell:
    """Runs commands on one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._environment = {"RAYLOG_BOOTSTRAP": bootstrap, "COLUMNS": "200", "NO_COLOR": "1"}

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command that ends with `code`; returns what it printed."""
        result = CliRunner().invoke(app, list(arguments), env=self._environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.output

    def json(self, *arguments: str) -> list[dict[str, object]]:
        """Run a command that prints a JSON list."""
        found = json.loads(self.run(*arguments, "--json"))
        assert isinstance(found, list)
        return found

    def replicas(self, topic: str) -> list[list[int]]:
        """Replicas of each partition."""
        found = json.loads(self.run("topics", "describe", topic, "--json"))
        return [row["replicas"] for row in found["partitions"]]


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with EmbeddedBroker(brokers=3) as brokers:
        yield Shell(brokers.bootstrap)


def filled(shell: Shell, topic: str, records: int = 300) -> None:
    with BlockingClient(shell.bootstrap) as client, client.producer() as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number, partition=number % 2)


def test_a_topic_placed_by_hand_and_described(shell: Shell) -> None:
    shell.run("topics", "create", "placed", "--assignment", "1:0,2:1")
    assert shell.replicas("placed") == [[1, 0], [2, 1]]
    text = shell.run("topics", "describe", "placed")
    assert "1,0" in text
    assert "eligible" not in text
    described = json.loads(shell.run("topics", "describe", "placed", "--json"))
    first = described["partitions"][0]
    assert (first["leader"], first["replicas"], first["isr"]) == (1, [1, 0], [0, 1])
    assert (first["elr"], first["offline"], first["high_watermark"]) == ([], [], 0)
    assert "cannot be combined" in shell.run(
        "topics", "create", "x", "--assignment", "0", "-p", "2", code=2
    )


def test_topics_describe_filters_unhealthy_partitions(shell: Shell) -> None:
    shell.run("topics", "create", "sound", "-p", "2", "--replication-factor", "3")
    for condition in ("--under-replicated", "--under-min-isr", "--unavailable"):
        assert "no such partitions" in shell.run("topics", "describe", "sound", condition)
        assert shell.json("topics", "describe", "sound", condition) == []
    shell.run("topics", "create", "strict", "-r", "2", "-c", "min.insync.replicas=3")
    rows = shell.json("topics", "describe", "sound", "strict", "--under-min-isr")
    assert [row["topic"] for row in rows] == ["strict"]


def test_a_topic_moves_and_moves_back(shell: Shell, tmp_path: Path) -> None:
    shell.run("topics", "create", "mover", "--assignment", "0,0")
    filled(shell, "mover")
    before = tmp_path / "before.json"
    asked = ("topics", "reassign", "--topic", "mover", "--brokers", "1,2", "-r", "2")
    shown = shell.run(*asked, "--export", str(before))
    assert "2 of 2 partitions change, 4 replicas are copied" in shown
    assert "add --execute" in shown
    assert shell.replicas("mover") == [[0], [0]]
    assert "all 2 partitions are where the plan puts them" in shell.run(
        *asked, "--execute", "--wait"
    )
    assert [sorted(one) for one in shell.replicas("mover")] == [[1, 2], [1, 2]]
    assert "every partition is where the plan puts it" in shell.run(*asked, "--execute")
    rows = json.loads(shell.run(*asked, "--verify", "--json"))
    assert [row["state"] for row in rows] == ["there", "there"]
    back = ("topics", "reassign", "--from-file", str(before))
    with pytest.raises(CommandFailed, match="2 of 2 partitions neither are"):
        shell.run(*back, "--verify")
    shell.run(*back, "--execute", "--wait")
    assert shell.replicas("mover") == [[0], [0]]
    with BlockingClient(shell.bootstrap) as client:
        keys = [TopicPartition("mover", index) for index in range(2)]
        found = client.list_offsets(dict.fromkeys(keys, -1))
    assert [found[key].offset for key in keys] == [150, 150]
    assert "nothing moves" in shell.run("topics", "reassign", "--verify")
    assert "nothing moves" in shell.run("topics", "reassign", "--topic", "mover", "--cancel")


def throttles(shell: Shell, kind: str, name: str) -> dict[object, object]:
    """The throttling settings that a topic or broker has of its own."""
    rows = shell.json("configs", "describe", kind, name)
    return {row["key"]: row["value"] for row in rows if "throttled" in str(row["key"])}


@pytest.mark.long
def test_a_throttled_move_takes_its_time_and_writers_do_not_notice(shell: Shell) -> None:
    """KIP-73: 4 MB at 0.05 MB/s, until it is let go; a second's worth goes at once."""
    shell.run("topics", "create", "slow", "--assignment", "0")
    key = TopicPartition("slow", 0)
    with BlockingClient(shell.bootstrap) as client, client.producer() as producer:
        for _ in range(400):
            producer.send("slow", bytes(10_000), partition=0)
        producer.flush()
        begun = time.monotonic()
        move = ("topics", "reassign", "--topic", "slow", "--brokers", "1")
        said = shell.run(*move, "--execute", "--throttle", "50000")
        assert "brokers 0, 1 copy at most 50,000 bytes/s for the moves" in said
        rates = dict.fromkeys(
            ("leader.replication.throttled.rate", "follower.replication.throttled.rate"), "50000"
        )
        assert throttles(shell, "broker", "0") == throttles(shell, "broker", "1") == rates
        assert throttles(shell, "broker", "2") == {}
        assert throttles(shell, "topic", "slow") == {
            "leader.replication.throttled.replicas": "0:0",
            "follower.replication.throttled.replicas": "0:1",
        }
        assert "moving" in shell.run(*move, "--verify")
        assert throttles(shell, "broker", "0") == rates, "it is not done"
        while time.monotonic() - begun < 1.5:
            producer.send("slow", b"meanwhile", partition=0)
            producer.flush()
        assert client.list_reassignments([key]), "it is not done"
        shell.run(*move, "--execute", "--throttle", "100000000")
        while client.list_reassignments([key]):
            assert time.monotonic() - begun < DEADLINE_S
    said = shell.run(*move, "--verify")
    assert "throttles removed: broker 0, broker 1, slow" in said
    assert not any(throttles(shell, "broker", name) for name in "012")
    assert throttles(shell, "topic", "slow") == {}
    assert "throttles" not in shell.run(*move, "--verify")


def test_throttles_are_removed_when_all_has_moved_unless_they_are_to_stay(shell: Shell) -> None:
    shell.run("topics", "create", "brisk", "--assignment", "0,1")
    filled(shell, "brisk")
    there = ("topics", "reassign", "--topic", "brisk", "--brokers", "2", "--execute", "--wait")
    said = shell.run(*there, "--throttle", "50000000", "--preserve-throttles")
    assert "throttles removed" not in said
    lists = throttles(shell, "topic", "brisk")
    assert lists["leader.replication.throttled.replicas"] == "0:0,1:1"
    assert lists["follower.replication.throttled.replicas"] == "0:2,1:2"
    back = ("topics", "reassign", "--topic", "brisk", "--brokers", "0,1", "--execute", "--wait")
    said = shell.run(*back, "--throttle", "60000000")
    assert "throttles removed: broker 0, broker 1, broker 2, brisk" in said
    assert throttles(shell, "topic", "brisk") == {}


def test_a_move_that_is_called_off_leaves_no_throttle(shell: Shell) -> None:
    shell.run("topics", "create", "off", "--assignment", "0")
    with BlockingClient(shell.bootstrap) as client, client.producer() as producer:
        for _ in range(300):
            producer.send("off", bytes(10_000), partition=0)
    move = ("topics", "reassign", "--topic", "off", "--brokers", "1")
    shell.run(*move, "--execute", "--throttle", "1000")
    assert "called off" in shell.run(*move, "--cancel", "--preserve-throttles")
    assert throttles(shell, "topic", "off") != {}
    shell.run(*move, "--execute", "--throttle", "1000")
    said = shell.run(*move, "--cancel")
    assert "throttles removed: broker 0, broker 1, off" in said
    assert shell.replicas("off") == [[0]]


def test_leaders_are_elected(shell: Shell) -> None:
    shell.run("topics", "create", "elect", "--assignment", "0:1")
    assert shell.json("topics", "elect-leaders", "elect")[0]["outcome"] == "not needed"
    with BlockingClient(shell.bootstrap) as client:
        client.alter_reassignments({TopicPartition("elect", 0): [1, 0]})
    assert shell.json("topics", "elect-leaders", "elect:0")[0]["outcome"] == "elected"
    deadline = time.monotonic() + DEADLINE_S
    while (row := shell.json("topics", "describe", "elect", "elect")[0])["leader"] != 1:
        assert time.monotonic() < deadline, row
    assert "no partition needs another leader" in shell.run("topics", "elect-leaders", "--all")
    with pytest.raises(CommandFailed, match="there is no partition elect-9"):
        shell.run("topics", "elect-leaders", "elect:9")


@pytest.mark.parametrize(
    "arguments",
    [
        ("elect-leaders",),
        ("elect-leaders", "placed", "--all"),
        ("reassign",),
        ("reassign", "--topic", "placed"),
        ("reassign", "--execute", "--cancel"),
        ("reassign", "--wait"),
        ("reassign", "--topic", "placed", "--brokers", "0", "--throttle", "1000"),
        ("reassign", "--topic", "placed", "--brokers", "0", "--execute", "--throttle", "0"),
    ],
)
def test_invalid_topics_arguments_are_a_usage_error(
    shell: Shell, arguments: tuple[str, ...]
) -> None:
    shell.run("topics", *arguments, code=2)


def test_brokers_are_listed_and_forgotten(shell: Shell) -> None:
    rows = shell.json("brokers", "list")
    assert [(row["broker"], row["state"]) for row in rows] == [(n, "live") for n in range(3)]
    assert "live" in shell.run("brokers", "list")
    with pytest.raises(BrokerIdNotRegistered) as refused:
        shell.run("brokers", "unregister", "9", "--yes")
    failure = explain(refused.value)
    assert failure is not None
    assert failure.hint == "List the brokers with: raylog brokers list"
    with pytest.raises(CommandFailed, match="broker 1 is live: it would register again"):
        shell.run("brokers", "unregister", "1", "--yes")
    shell.run("topics", "create", "stays")
    with pytest.raises(CommandFailed, match=r"expected live brokers \(0, 1, 2\), found 7"):
        shell.run("topics", "reassign", "--topic", "stays", "--brokers", "0,7")

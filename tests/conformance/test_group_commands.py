"""`raylog groups` while a consumer runs, in both protocols; the same on Apache Kafka."""

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.client import BlockingClient, NewTopic
from tests.conformance.conftest import Target

RECORDS = 40
PARTITIONS = 4


class Shell:
    """Runs commands on one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {"RAYLOG_BOOTSTRAP": bootstrap, "COLUMNS": "200", "NO_COLOR": "1"}

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command that ends with `code`; returns all that it printed."""
        result = CliRunner().invoke(app, ["groups", *arguments], env=self._environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.output

    def refused(self, *arguments: str) -> str:
        """Why the broker or the command refuses."""
        with pytest.raises(Exception, match=r".") as caught:
            CliRunner().invoke(
                app, ["groups", *arguments], env=self._environment, catch_exceptions=False
            )
        return f"{type(caught.value).__name__}: {caught.value}"

    def describe(self, group: str) -> dict[str, object]:
        """A group as JSON."""
        (found,) = json.loads(self.run("describe", group, "--json"))
        assert isinstance(found, dict)
        return found


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def consumer(target: Target, topic: str, protocol: str) -> Iterator[Consumer]:
    """A member that has read everything and committed it."""
    with BlockingClient(target.bootstrap) as client:
        client.create_topics([NewTopic(topic, PARTITIONS)])
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    member = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": f"group-{topic}",
            "group.protocol": protocol,
            "client.id": "someone",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.subscribe([topic])
    read = 0
    deadline = time.monotonic() + 60
    while read < RECORDS:
        assert time.monotonic() < deadline, f"{read} of {RECORDS} records were read"
        message = member.poll(0.5)
        read += message is not None and message.error() is None
    member.commit(asynchronous=False)
    yield member
    member.close()


def test_a_group_is_described_refused_moved_and_deleted(
    target: Target, topic: str, protocol: str, consumer: Consumer
) -> None:
    shell, group = Shell(target.bootstrap), f"group-{topic}"
    listed = json.loads(shell.run("list", "--state", "stable", "--type", protocol, "--json"))
    assert [row["type"] for row in listed if row["group"] == group] == [protocol]
    found = shell.describe(group)
    members = found["members"]
    assert isinstance(members, list)
    assert (found["type"], found["state"], found["lag"], len(members)) == (protocol, "Stable", 0, 1)
    assert (members[0]["client_id"], members[0]["host"]) == ("someone", "/127.0.0.1")
    assert members[0]["partitions"] == {topic: [0, 1, 2, 3]}
    assert found["assignor"] == ("uniform" if protocol == "consumer" else "range")

    reset = ("reset-offsets", group, "--topic", f"{topic}:1,2", "--shift-by", "-3")
    assert "--execute would be refused" in shell.run(*reset)
    assert "is Stable with 1 active member" in shell.refused(*reset, "--execute")
    assert "NON_EMPTY_GROUP" in shell.run("delete", group, code=1)
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in shell.run("delete", group, "-t", topic, code=1)

    consumer.close()
    assert "nothing was changed" in shell.run(*reset)
    assert shell.describe(group)["lag"] == 0
    shell.run(*reset, "--execute")
    found = shell.describe(group)
    partitions = found["partitions"]
    assert isinstance(partitions, list)
    assert (found["state"], [row["lag"] for row in partitions]) == ("Empty", [0, 3, 3, 0])
    shell.run("delete", group, "--topic", f"{topic}:0")
    assert len(shell.describe(group)["partitions"]) == PARTITIONS - 1  # type: ignore[arg-type]  # a list
    shell.run("delete", group)
    assert "GroupIdNotFound" in shell.refused("describe", group)


def test_a_consumer_goes_on_where_it_was_put(
    target: Target, topic: str, protocol: str, consumer: Consumer
) -> None:
    shell, group = Shell(target.bootstrap), f"group-{topic}"
    consumer.close()
    shell.run("reset-offsets", group, "--to-offset", "8", "--topic", topic, "--execute")
    again = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "error",
        }
    )
    again.subscribe([topic])
    read: list[int] = []
    deadline = time.monotonic() + 60
    while len(read) < 2 * PARTITIONS and time.monotonic() < deadline:
        message = again.poll(0.5)
        if message is not None and message.error() is None:
            read.append(message.offset() or 0)
    again.close()
    assert sorted(read) == [8] * PARTITIONS + [9] * PARTITIONS

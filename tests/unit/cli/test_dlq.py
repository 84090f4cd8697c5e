"""`raylog dlq` with dead letters that no parallel consumer wrote, or that are ambiguous."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from raylog.cli.app import app
from raylog.client import (
    BlockingClient,
    CommittedOffset,
    NewTopic,
    TopicPartition,
)
from raylog.client.parallel.letters import Origin, letter, value_left_out
from raylog.client.parallel.policy import Failure, FailureKind
from raylog.testing import EmbeddedBroker
from raylog.wire.record import Record

FAILURE = Failure(FailureKind.RAISED, "ValueError", "no")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(settings={"auto.create.topics.enable": "false"}) as broker:
        yield broker.bootstrap


@pytest.fixture
def source(client: BlockingClient, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("_", "-")[:100]
    client.create_topics([NewTopic(name, 1), NewTopic(f"{name}.dlq", 1)])
    return name


def write(client: BlockingClient, source: str, count: int, *, large: bool = False) -> None:
    """Letters of a topic's partition 0."""
    with client.producer() as producer:
        for number in range(count):
            record = Record(number, 5, b"k", b"%d" % number, [("own", None)])
            made = letter(
                f"{source}.dlq",
                record,
                Origin(source, 0, number, 5, 3),
                FAILURE,
                group="g",
                now_ms=7,
                delay_ms=None,
            )
            made = value_left_out(made) if large else made
            assert isinstance(made.key, bytes)
            assert made.value is None or isinstance(made.value, bytes)
            producer.send(made.topic, made.value, made.key, list(made.headers))


def dlq(bootstrap: str, *arguments: str) -> Result:
    environment = {"RAYLOG_BOOTSTRAP": bootstrap, "COLUMNS": "200", "NO_COLOR": "1"}
    return CliRunner().invoke(app, ["dlq", *arguments], env=environment)


def refused(bootstrap: str, *arguments: str) -> str:
    found = dlq(bootstrap, *arguments)
    assert found.exception is not None
    return str(found.exception) + found.output


def replayed(bootstrap: str, source: str, *arguments: str) -> dict[str, object]:
    found = dlq(bootstrap, "replay", f"{source}.dlq", "--json", *arguments)
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert isinstance(facts, dict)
    return facts


def test_letters_that_others_wrote_are_shown_and_stay_unless_a_topic_is_named(
    client: BlockingClient, bootstrap: str, source: str
) -> None:
    hostile = [
        ("raylog-original-topic", source.encode()),
        ("raylog-original-partition", b"-1"),
        ("raylog-original-offset", b"9" * 400),
        ("raylog-attempts", b"\xff"),
        ("raylog-failure", None),
    ]
    with client.producer() as producer:
        producer.send(f"{source}.dlq", b"\xff\x00", None, hostile)
        producer.send(f"{source}.dlq", None)
    write(client, source, 1)
    (row,) = json.loads(dlq(bootstrap, "list", f"{source}.dlq", "--json").stdout)
    assert row["reasons"] == {"unknown": 2, "raised": 1}
    text = dlq(bootstrap, "show", f"{source}.dlq").stdout
    assert text.count("it is not a dead letter of a ParallelConsumer") == 2
    lines = dlq(bootstrap, "show", f"{source}.dlq", "--value-format", "json", "--json").stdout
    first, second, third = map(json.loads, lines.splitlines())
    assert (first["value_base64"], first["original"]) == ("/wA=", None)
    assert (second["value"], third["value"]) == (None, 0)
    facts = replayed(bootstrap, source, "--yes")
    assert (facts["letters"], facts["left"]) == (1, 2)
    client.create_topics([NewTopic(f"{source}-to", 1)])
    facts = replayed(bootstrap, source, "--to", f"{source}-to", "--yes")
    assert (facts["letters"], facts["left"], facts["replayed_before"]) == (2, 0, 1)


def test_a_letter_without_its_value_is_not_replayed_as_a_tombstone(
    client: BlockingClient, bootstrap: str, source: str
) -> None:
    write(client, source, 2, large=True)
    facts = replayed(bootstrap, source, "--yes")
    assert (facts["letters"], facts["left"]) == (0, 2)
    assert "too large" in str(facts["done"])
    assert "was too large for the letter" in dlq(bootstrap, "show", f"{source}.dlq").stdout


def test_replay_refuses_unreadable_progress(
    client: BlockingClient, bootstrap: str, source: str
) -> None:
    write(client, source, 3)
    group, key = f"raylog-dlq-replay-{source}.dlq", TopicPartition(f"{source}.dlq", 0)
    client.commit_group_offsets(group, {key: CommittedOffset(1, metadata="another tool's")})
    assert "cannot read" in refused(bootstrap, "replay", f"{source}.dlq", "--yes")
    client.commit_group_offsets(group, {key: 99})
    assert "was created again" in refused(bootstrap, "replay", f"{source}.dlq", "--yes")
    client.commit_group_offsets(group, {key: 1})
    assert replayed(bootstrap, source, "--yes")["letters"] == 2


def test_a_partition_that_is_named_twice_is_replayed_once(
    client: BlockingClient, bootstrap: str, source: str
) -> None:
    write(client, source, 2)
    assert replayed(bootstrap, source, "--yes", "-p", "0", "-p", "0")["letters"] == 2


def test_dead_letter_content_is_escaped(
    client: BlockingClient, bootstrap: str, source: str
) -> None:
    with client.producer() as producer:
        for number in range(12):
            headers = [("raylog-failure", b"\x1b[2J%d\nx" % number), ("h\n  from: me", b"\x1b[2J")]
            producer.send(f"{source}.dlq", b"one\n  key: two\x1b[2J", None, headers)
    shown = dlq(bootstrap, "show", f"{source}.dlq").stdout
    assert "\x1b" not in shown
    assert "\n  from: me" not in shown
    assert "\n  key: two" not in shown
    listed = dlq(bootstrap, "list", f"{source}.dlq").stdout
    assert "\x1b" not in listed


def test_topics_and_partitions_that_are_not_there_are_named(
    client: BlockingClient, bootstrap: str, source: str
) -> None:
    write(client, source, 1)
    assert "found 4" in refused(bootstrap, "show", f"{source}.dlq", "--partition", "4")
    to_itself = ("replay", f"{source}.dlq", "--to", f"{source}.dlq", "--yes")
    assert "topic that they are read from" in refused(bootstrap, *to_itself)
    assert "nowhere" in refused(bootstrap, "replay", f"{source}.dlq", "--to", "nowhere", "--yes")
    client.delete_topics([source])
    missing = refused(bootstrap, "replay", f"{source}.dlq", "--yes")
    assert f"the original topic of the letters, {source}, does not exist" in missing


def test_a_pattern_that_no_topic_has_says_so(bootstrap: str) -> None:
    found = dlq(bootstrap, "list", "--pattern", "*.nothing")
    assert "no topics with names like *.nothing" in found.stderr

"""The commands as users run them, on an embedded broker."""

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import raylog
from raylog.cli.app import app
from raylog.cli.failures import Failure, explain
from raylog.cli.output import print_failure
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import BrokerIdNotRegistered, EncodeError


class Shell:
    """Runs commands on one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {"RAYLOG_BOOTSTRAP": bootstrap, "COLUMNS": "200", "NO_COLOR": "1"}

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command that ends with `code`; returns what it printed."""
        result = CliRunner().invoke(app, list(arguments), env=self._environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.stdout

    def json(self, *arguments: str) -> object:
        """Run a command that prints JSON."""
        return json.loads(self.run(*arguments, "--json"))


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with EmbeddedBroker() as broker:
        yield Shell(broker.bootstrap)


@pytest.fixture
def topic(shell: Shell, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    shell.run("topics", "create", name, "--partitions", "2")
    return name


def test_topics_from_creation_to_deletion(shell: Shell) -> None:
    shell.run("topics", "create", "a", "b", "-p", "3", "-c", "retention.ms=5000")
    shell.run("topics", "create", "a", "--if-not-exists")
    listed = shell.json("topics", "list")
    assert isinstance(listed, list)
    assert {row["name"]: row["partitions"] for row in listed}.items() >= {"a": 3, "b": 3}.items()
    described = shell.json("topics", "describe", "a")
    assert isinstance(described, dict)
    assert described["configs"] == {"retention.ms": "5000"}
    assert [row["high_watermark"] for row in described["partitions"]] == [0, 0, 0]
    shell.run("topics", "alter", "a", "-p", "4", "-c", "segment.bytes=2000000")
    shell.run("topics", "alter", "a", "--unset", "retention.ms")
    text = shell.run("topics", "describe", "a")
    assert "segment.bytes" in text
    assert text.count("0 B") == 4
    assert "a " in shell.run("topics", "list")
    shell.run("topics", "delete", "a", "b", "--yes")
    assert not {"a", "b"} & set(shell.run("topics", "list").split())


def test_records_from_a_file_and_back(shell: Shell, topic: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"k1:one\nk2:two\nk1:three\r\nk1:\nlast:no line end")
    shell.run("produce", topic, str(source), "-K", ":", "--codec", "zstd", "-Z", "-H", "from=test")
    lines = shell.run("consume", topic, "--from", "earliest", "--exit", "-K", "=").splitlines()
    assert sorted(lines) == ["k1=", "k1=one", "k1=three", "k2=two", "last=no line end"]
    rows = shell.run("consume", topic, "-f", "earliest", "-e", "--json").splitlines()
    records = [json.loads(row) for row in rows]
    assert {record["value"] for record in records if record["key"] == "k1"} == {
        "one",
        "three",
        None,
    }
    assert all(record["headers"] == [["from", "test"]] for record in records)


def test_json_lines_are_read_as_they_are_printed(shell: Shell, topic: str, tmp_path: Path) -> None:
    sent = [
        {
            "partition": 1,
            "timestamp": 1_000,
            "key": "ключ",
            "value": "text",
            "headers": [["a", "1"], ["b", None]],
        },
        {"partition": 1, "timestamp": 2_000, "key_base64": "/w==", "value_base64": "AP8="},
        {"partition": 1, "timestamp": 3_000, "key": None, "value": None},
        {"partition": 0, "timestamp": 4_000, "key": "k", "value": {"nested": [1]}},
    ]
    source = tmp_path / "rows"
    source.write_text("\n".join(json.dumps(row) for row in sent))
    shell.run("produce", topic, str(source), "--json")
    printed = shell.run("consume", topic, "-f", "earliest", "-n", "3", "-p", "1", "--json")
    found = [json.loads(row) for row in printed.splitlines()]
    for row in found:
        assert row.pop("topic") == topic
        row.pop("offset")
    assert found == sent[:3]
    assert shell.run("consume", topic, "-f", "earliest", "-e", "-p", "0") == '{"nested":[1]}\n'


def test_reading_from_an_offset_or_a_time(shell: Shell, topic: str, tmp_path: Path) -> None:
    source = tmp_path / "rows"
    rows = [{"partition": 0, "timestamp": at * 1_000, "value": f"v{at}"} for at in range(5)]
    source.write_text("\n".join(json.dumps(row) for row in rows))
    shell.run("produce", topic, str(source), "--json", "--acks", "1")
    read = ("consume", topic, "-p", "0", "-e", "--from")
    assert shell.run(*read, "3") == "v3\nv4\n"
    assert shell.run(*read, "@2500") == "v3\nv4\n"
    assert shell.run(*read, "1970-01-01T00:00:04+00:00") == "v4\n"
    assert shell.run(*read, "latest") == ""
    assert "found 'yesterday'" in failing(shell, *read, "yesterday", code=2)
    assert "found 7" in failing(shell, "consume", topic, "-p", "7", code=2)


def test_consume_without_from_explains_how_to_read_existing_records(
    shell: Shell, topic: str
) -> None:
    def errors(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["consume", topic, *arguments], env=shell._environment)
        assert (result.exit_code, result.stdout) == (0, "")
        return result.stderr

    assert f"new records of {topic} only" in errors("-e")
    assert "--from earliest" in errors("-e")
    assert errors("-e", "--from", "latest") == ""


def failing(shell: Shell, *arguments: str, code: int) -> str:
    """What a failing command says, with line breaks and frames taken out."""
    result = CliRunner().invoke(app, list(arguments), env=shell._environment)
    assert result.exit_code == code, result.output
    return " ".join(result.output.replace("│", " ").split())


def test_settings_are_documented(shell: Shell) -> None:
    documented = shell.json("configs", "list")
    assert isinstance(documented, dict)
    assert {"topic", "broker", "group", "client-metrics"} == set(documented)
    keys = {row["key"]: row for row in documented["topic"]}
    assert keys["retention.ms"]["default"] == "604800000"
    assert all(row["documentation"] for rows in documented.values() for row in rows)
    assert "retention.ms" in shell.run("configs")
    assert "min.insync.replicas" not in shell.run("configs", "list", "retention")


def test_settings_of_a_live_topic(shell: Shell, topic: str) -> None:
    shell.run("configs", "alter", "topic", topic, "--set", "retention.ms=7000")
    described = shell.json("configs", "describe", "topic", topic)
    assert described == [{"key": "retention.ms", "value": "7000", "source": "topic"}]
    shell.run("configs", "alter", "topic", topic, "-u", "retention.ms")
    assert shell.json("configs", "describe", "topic", topic) == []
    assert "retention.ms" in shell.run("configs", "describe", "topic", topic, "--all")


def test_a_subscription_of_client_metrics(shell: Shell) -> None:
    alter = ("configs", "alter", "client-metrics", "slow")
    shell.run(*alter, "--set", "metrics=org.apache.kafka.producer.", "--set", "interval.ms=10000")
    described = shell.json("configs", "describe", "client-metrics", "slow")
    assert described == [
        {"key": "interval.ms", "value": "10000", "source": "client_metrics"},
        {"key": "metrics", "value": "org.apache.kafka.producer.", "source": "client_metrics"},
    ]
    shell.run(*alter, "-u", "metrics", "-u", "interval.ms")
    assert shell.json("configs", "describe", "client-metrics", "slow") == []


def test_usage_errors_name_what_was_expected(shell: Shell, topic: str) -> None:
    assert "KEY=VALUE" in failing(shell, "topics", "create", "x", "-c", "retention", code=2)
    assert "--partitions" in failing(shell, "topics", "alter", topic, code=2)
    assert "--set" in failing(shell, "configs", "alter", "topic", topic, code=2)


def test_an_id_that_is_too_long_for_the_protocol_is_reported(shell: Shell) -> None:
    with pytest.raises(EncodeError) as refused:
        shell.run("groups", "describe", "g" * 40_000)
    failure = explain(refused.value)
    assert failure is not None
    assert "40000 bytes of text, at most 32767 are allowed" in failure.message


@pytest.mark.parametrize("name", ["7", "x", "\N{SUPERSCRIPT TWO}", "9" * 5_000])
def test_a_broker_that_there_is_not_is_reported_with_those_there_are(
    shell: Shell, name: str
) -> None:
    with pytest.raises(BrokerIdNotRegistered, match="expected one of the live brokers 0, found '"):
        shell.run("configs", "alter", "broker", name, "--set", "max.connections=5")


def test_a_failure_is_reported_without_raw_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    print_failure(Failure("group 'a\x1b[2Jb'\n  of two lines" + "x" * 9_000, "do this"))
    said = capsys.readouterr().err
    assert "group 'a\\x1b[2Jb'\n  of two lines" in said
    assert said.endswith("characters)\ndo this\n")


def test_version(shell: Shell) -> None:
    assert shell.run("--version") == f"{raylog.__version__}\n"
    assert importlib.metadata.version("raylog") == raylog.__version__

"""Formats of keys and values in `raylog produce` and `raylog consume`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.client import BlockingClient
from tests.worlds.servers import registry as fake_registry
from tests.worlds.servers.registry import FakeRegistry

USER = """
{"type": "record", "name": "User", "fields": [
  {"name": "name", "type": "string"},
  {"name": "age", "type": ["null", "int"], "default": null},
  {"name": "born", "type": {"type": "int", "logicalType": "date"}}
]}
"""
PERSON = '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
ORDERS = """
syntax = "proto3";
message Order { string id = 1; int32 item_count = 2; }
message Basket { message Line { string item = 1; } repeated Line lines = 1; }
"""


class Shell:
    """Runs commands on one broker and one registry."""

    def __init__(self, bootstrap: str, registry: str) -> None:
        self.environment = {
            "RAYLOG_BOOTSTRAP": bootstrap,
            "RAYLOG_REGISTRY": registry,
            "COLUMNS": "500",
            "NO_COLOR": "1",
        }
        self.bootstrap = bootstrap

    def run(self, *arguments: str) -> str:
        """Run a command that succeeds; returns what it printed."""
        result = CliRunner().invoke(app, list(arguments), env=self.environment)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def fail(self, *arguments: str) -> str:
        """Run a command that fails; returns what it raised or said."""
        result = CliRunner().invoke(app, list(arguments), env=self.environment)
        assert result.exit_code != 0, result.output
        return f"{result.exception} {result.output} {result.stderr}"

    def read(self, topic: str, *arguments: str) -> list[str]:
        """Lines of a topic of one partition."""
        return self.run("consume", topic, "--from", "earliest", "--exit", *arguments).splitlines()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry.running() as registry:
        yield registry


@pytest.fixture
def shell(bootstrap: str, registry: FakeRegistry) -> Shell:
    return Shell(bootstrap, registry.url)


@pytest.fixture
def topic(shell: Shell, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    shell.run("topics", "create", name, "--partitions", "1")
    return name


def file(folder: Path, name: str, *lines: str) -> str:
    path = folder / name
    path.write_text("\n".join(lines))
    return str(path)


AVRO_LINES = (
    '{"name":"Åsa","age":{"int":41},"born":20454}',
    '{"name":"b","age":null,"born":-1}',
)


def test_avro_is_written_with_a_file_and_then_with_the_latest(
    shell: Shell, topic: str, tmp_path: Path, registry: FakeRegistry
) -> None:
    schema, lines = file(tmp_path, "user.avsc", USER), file(tmp_path, "lines", *AVRO_LINES)
    avro = ("--value-format", "avro")
    shell.run("produce", topic, lines, *avro, "--schema", schema)
    assert [call.method for call in registry.calls] == ["POST"]
    shell.run("produce", topic, lines, *avro)
    assert shell.read(topic, *avro) == [*AVRO_LINES, *AVRO_LINES]
    (raw, *_) = shell.read(topic, "--json")
    assert json.loads(raw)["value"].startswith("\0\0\0\0\1") or "value_base64" in json.loads(raw)
    (printed, *_) = shell.read(topic, *avro, "--json")
    assert json.loads(printed)["value"] == json.loads(AVRO_LINES[0])


def test_json_lines_of_a_format_are_read_as_they_are_printed(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    formats = ("--key-format", "avro", "--value-format", "json-schema")
    schemas = (
        "--key-schema",
        file(tmp_path, "key.avsc", '"string"'),
        "--schema",
        file(tmp_path, "person.json", PERSON),
    )
    lines = file(
        tmp_path,
        "lines",
        '{"key":"k","value":{"name":"a"},"headers":[["h","1"]]}',
        '{"key":"gone","value":null}',
    )
    shell.run("produce", topic, lines, "--json", *formats, *schemas)
    printed = [json.loads(line) for line in shell.read(topic, "--json", *formats)]
    assert [(line["key"], line["value"]) for line in printed] == [
        ("k", {"name": "a"}),
        ("gone", None),
    ]
    again = file(tmp_path, "again", *map(json.dumps, printed))
    shell.run("produce", topic, again, "--json", *formats)
    twice = [json.loads(line) for line in shell.read(topic, "--json", *formats)]
    assert [line["value"] for line in twice] == [{"name": "a"}, None] * 2
    assert shell.read(topic, *formats, "-K", "=")[:2] == ['"k"={"name":"a"}', '"gone"=']


def test_protobuf_of_a_proto_file(shell: Shell, topic: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    protobuf = ("--value-format", "protobuf")
    schema = file(tmp_path, "orders.proto", ORDERS)
    first = file(tmp_path, "first", '{"id":"7","item_count":2}')
    shell.run("produce", topic, first, *protobuf, "--schema", schema)
    nested = file(tmp_path, "nested", '{"item":"x"}')
    line = ("--schema", schema, "--message", "Basket.Line")
    shell.run("produce", topic, nested, *protobuf, *line)
    shell.run("produce", topic, first, *protobuf)
    lines = ['{"id":"7","item_count":2}', '{"item":"x"}', '{"id":"7","item_count":2}']
    assert shell.read(topic, *protobuf) == lines


def test_string_and_json_are_checked(shell: Shell, topic: str, tmp_path: Path) -> None:
    lines = file(tmp_path, "lines", '{"a": 1}', '"text"')
    shell.run("produce", topic, lines, "--value-format", "json")
    assert shell.read(topic, "--value-format", "json") == ['{"a":1}', '"text"']
    assert shell.read(topic, "--value-format", "string") == ['{"a": 1}', '"text"']
    said = shell.fail("produce", topic, file(tmp_path, "bad", "1", "{"), "--value-format", "json")
    assert "line 2: expected JSON, found b'{'" in said


def test_a_line_that_does_not_fit_is_named_and_those_before_it_are_written(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    schema = file(tmp_path, "user.avsc", USER)
    lines = file(tmp_path, "lines", AVRO_LINES[0], '{"name":"c","age":5,"born":0}')
    avro = ("--value-format", "avro")
    said = shell.fail("produce", topic, lines, *avro, "--schema", schema)
    assert "line 2: expected Avro's JSON encoding of one value" in said
    assert shell.read(topic, *avro) == [AVRO_LINES[0]]


def test_a_record_of_another_format_is_named_with_the_way_on(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    shell.run("produce", topic, file(tmp_path, "plain", "plain text"))
    said = shell.fail("consume", topic, "--from", "earliest", "--exit", "--value-format", "avro")
    assert f"{topic}-0, offset 0: expected the wire format of a schema registry" in said


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_registry_must_be_named(shell: Shell, command: str) -> None:
    del shell.environment["RAYLOG_REGISTRY"]
    said = shell.fail(command, "t", "--value-format", "avro")
    assert "need a schema registry: --registry URL" in said


def test_a_schema_needs_a_format(shell: Shell, tmp_path: Path) -> None:
    said = shell.fail("produce", "t", "--schema", file(tmp_path, "user.avsc", USER))
    assert "--schema needs one of the formats avro, json-schema, protobuf" in said


def test_a_topic_without_a_schema_is_reported(shell: Shell, topic: str, tmp_path: Path) -> None:
    lines = file(tmp_path, "lines", "{}")
    said = shell.fail("produce", topic, lines, "--value-format", "avro")
    assert f'subject "{topic}-value" not found' in said


def test_bytes_stay_as_they_are(shell: Shell, topic: str) -> None:
    with BlockingClient(shell.bootstrap) as client, client.producer() as producer:
        producer.send(topic, b"\xff\0", b"k")
    assert shell.read(topic, "-K", " ", "--key-format", "string") == ["k \ufffd\0"]

"""`--client-config` and `-X`: commands that connect to listeners with TLS and SASL."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from raylog.cli.app import app
from raylog.cli.connecting import read_properties
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import SaslAuthenticationFailed
from tests.support.certificates import Authority, authority, server_context
from tests.worlds.servers.secure_broker import PASSWORD, USER, SecureBroker


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("certificates"))


def run(*arguments: str, **environment: str) -> Result:
    usual = {"COLUMNS": "200", "NO_COLOR": "1", "RAYLOG_BOOTSTRAP": "", "RAYLOG_CLIENT_CONFIG": ""}
    return CliRunner().invoke(app, list(arguments), env={**usual, **environment})


def test_commands_log_in_over_tls_as_a_file_says(signer: Authority, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with SecureBroker(server_context(signer.issue("broker")), ("PLAIN",)).running() as broker:
        file.write_text(
            "# as for kafka-topics.sh --command-config\n"
            "security.protocol=SASL_SSL\n"
            f"ssl.truststore.location={signer.certificate}\n"
            "sasl.mechanism = PLAIN\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
            f'   username="{USER}" password="{PASSWORD}";\n'
        )
        asked = ("topics", "list", "--json", "-b", broker.address)
        for found in (
            run(*asked, "--client-config", str(file)),
            run(*asked, RAYLOG_CLIENT_CONFIG=str(file)),
            run(
                *asked[:3],
                "--client-config",
                str(file),
                "-X",
                f"bootstrap.servers={broker.address}",
            ),
        ):
            assert found.exit_code == 0, found.output
            assert json.loads(found.stdout) == []
        refused = run(
            *asked,
            *("--client-config", str(file)),
            *("-X", 'sasl.jaas.config=PlainLoginModule required username="ann" password="wrong";'),
        )
    assert isinstance(refused.exception, SaslAuthenticationFailed)


def test_settings_one_by_one(signer: Authority) -> None:
    with SecureBroker(None, ("SCRAM-SHA-256",)).running() as broker:
        pairs = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl_username": USER,
            "sasl.password": PASSWORD,
        }
        given = [word for pair in pairs.items() for word in ("-X", "=".join(pair))]
        found = run("topics", "list", "--json", "-b", broker.address, *given)
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-X", "security.protocol"), "expected KEY=VALUE, found 'security.protocol'"),
        (("-X", "sasl.user=ann"), "unknown setting 'sasl.user': the nearest is 'sasl.username'"),
        (("-X", "linger.ms=5"), "linger.ms is a setting of producers, not of this client"),
        (("--client-config", "no/such/file"), "no/such/file"),
    ],
)
def test_settings_that_make_no_sense(arguments: tuple[str, ...], message: str) -> None:
    refused = run("topics", "list", *arguments)
    assert refused.exit_code != 0, refused.output
    output = f"{refused.output} {refused.exception}"
    assert message in " ".join(output.replace("│", " ").split())


def test_a_file_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol\n")
    refused = run("topics", "list", "--client-config", str(file))
    assert "line 1: expected NAME=VALUE" in " ".join(refused.output.replace("│", " ").split())


def test_settings_reach_producers_and_consumers_of_commands(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\n")
    with EmbeddedBroker() as broker:
        servers = ("-X", f"bootstrap.servers={broker.bootstrap}")
        written = run("produce", "pages", str(file), *servers)
        assert written.exit_code == 0, written.output
        found = run("consume", "pages", "--from", "earliest", "--exit", *servers)
        described = run("groups", "list", "--json", *servers)
    assert found.stdout == "one\n"
    assert described.exit_code == 0, described.output


def test_all_commands_that_connect_take_them() -> None:
    def without(typers: typer.Typer) -> list[str]:
        found = []
        for command in typers.registered_commands:
            assert command.callback is not None
            names = inspect.signature(command.callback).parameters
            if "bootstrap" in names and "client_config" not in names:
                found.append(command.callback.__module__)
        for group in typers.registered_groups:
            assert group.typer_instance is not None
            found += without(group.typer_instance)
        return found

    assert set(without(app)) == {"raylog.cli.pipeline"}, "Spark connects by what the pipeline says"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("  a.b : c d  \n", {"a.b": "c d"}),
        ("a b", {"a": "b"}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("#x\n!y\n\na=1\r\n", {"a": "1"}),
        ("a=b\\\n   c\\\n  d\ne=f", {"a": "bcd", "e": "f"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\=b=\\u00e9\\t\\x", {"a=b": "é\tx"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_properties_are_read_as_java_does(text: str, found: dict[str, str]) -> None:
    assert read_properties(text) == found


def test_a_malformed_property_is_named_by_its_line() -> None:
    with pytest.raises(ValueError, match="line 4: expected NAME=VALUE, found 'x'"):
        read_properties("a=1\\\n2\\\n3\nx\n")

"""Completion of names in the shell: which settings its client gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from raylog.cli import completion
from raylog.cli.app import app
from raylog.cli.completion import complete_topics
from tests.worlds.servers.secure_broker import PASSWORD, USER, SecureBroker


def completing(**params: object) -> typer.Context:
    context = typer.Context(typer.main.get_command(app))
    context.params.update(params)
    return context


def test_names_complete_where_a_login_is_required(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={USER}\n"
    )
    with SecureBroker(mechanisms=("PLAIN",)).running() as broker:
        context = completing(
            bootstrap=broker.address,
            client_config=file,
            client_setting=[f"sasl.password={PASSWORD}"],
        )
        with completion._client(context) as client:
            assert client.metadata().topics == {}


def test_bootstrap_servers_of_a_file_apply_without_the_option(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=h:1\nrequest.timeout.ms=60000\n")
    for bootstrap, expected in ("127.0.0.1:9092", ("h", 1)), ("i:2", ("i", 2)):
        with completion._client(completing(bootstrap=bootstrap, client_config=file)) as client:
            assert client._settings.bootstrap == (expected,)
            assert client._settings.request_timeout_ms == 2_000


@pytest.mark.parametrize("setting", ["no value", "unknown=1", "bootstrap.servers="])
def test_wrong_settings_print_nothing(setting: str) -> None:
    assert complete_topics(completing(client_setting=[setting]), "") == []


def test_an_unreadable_file_prints_nothing(tmp_path: Path) -> None:
    assert complete_topics(completing(client_config=tmp_path), "") == []
    (tmp_path / "file").write_bytes(b"\xff")
    assert complete_topics(completing(client_config=tmp_path / "file"), "") == []

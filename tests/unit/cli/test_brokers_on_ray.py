"""`raylog brokers add` and `drain`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from raylog.actors.metadata.records import BrokerWanted
from raylog.cli import rebalance
from raylog.cli.app import app
from raylog.cli.brokers_on_ray import _common
from raylog.client import BlockingClient


def test_a_new_broker_takes_what_is_not_anothers_alone() -> None:
    settings = {
        "listeners": "PLAINTEXT://h:1",
        "advertised.listeners": "PLAINTEXT://i:1",
        "broker.rack": "a",
        "num.partitions": "3",
    }
    assert _common(BrokerWanted(0, {}, "/d", settings, 1, 1)) == {"num.partitions": "3"}


def test_drain_connects_with_the_settings_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    drained = []

    def drain(client: BlockingClient, broker: int, throttle: int | None) -> None:
        drained.append((client._settings.bootstrap, client._settings.client_id, broker, throttle))

    monkeypatch.setattr(rebalance, "drain_broker", drain)
    arguments = ["brokers", "drain", "1", "-b", "h:1", "--throttle", "5", "-X", "client.id=ann"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert drained == [((("h", 1),), "ann", 1, 5)]

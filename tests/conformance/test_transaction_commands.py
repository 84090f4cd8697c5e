"""`raylog transactions` beside an open transaction."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.client import BlockingClient, NewTopic
from raylog.wire.errors import TransactionalIdNotFound
from tests.conformance.conftest import Target


def test_list_and_describe(target: Target, topic: str) -> None:
    environment = {"RAYLOG_BOOTSTRAP": target.bootstrap, "COLUMNS": "200", "NO_COLOR": "1"}

    def run(*arguments: str) -> str:
        command = ["transactions", *arguments]
        result = CliRunner().invoke(app, command, env=environment, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    with BlockingClient(target.bootstrap) as client:
        client.create_topics([NewTopic(topic, 2, 1)])
    settings = {"bootstrap.servers": target.bootstrap, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(20)

    listed = json.loads(run("list", "--state", "Ongoing", "--json"))
    (own,) = [one for one in listed if one["transactional_id"] == topic]
    described = json.loads(run("describe", topic, "--json"))
    assert described["state"] == own["state"] == "Ongoing"
    assert described["coordinator"] == own["coordinator"]
    assert (described["producer_id"], described["producer_epoch"]) == (own["producer_id"], 0)
    assert described["partitions"] == [f"{topic}-1"]
    assert described["start_ms"] > 0
    assert topic in run("list")
    assert f"{topic}-1" in run("describe", topic)

    producer.abort_transaction(20)
    assert topic not in run("list", "--state", "Ongoing")
    with pytest.raises(TransactionalIdNotFound):
        run("describe", f"{topic}-unknown")

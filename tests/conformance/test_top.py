"""`raylog top` and `raylog doctor` on a cluster; the same on Apache Kafka."""

import json

from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.client import Admin, NewTopic, Producer, TopicPartition
from tests.conformance.conftest import Target


def run(*arguments: str) -> dict[str, list[dict[str, object]]]:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    found: dict[str, list[dict[str, object]]] = json.loads(result.stdout)
    return found


def test_a_look_at_groups_and_transactions(target: Target, topic: str) -> None:
    key = TopicPartition(topic, 0)
    with Admin(target.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2)])
        admin.commit_group_offsets(topic, {key: 1})
        with Producer(target.bootstrap, transactional_id=topic) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(3):
                producer.send(topic, b"one", partition=0)
            producer.flush()
            found = run("top", "-b", target.bootstrap)
            producer.abort_transaction()
        admin.delete_groups([topic])
    (group,) = [one for one in found["groups"] if one["group"] == topic]
    assert (group["lag"], group["state"]) == (2, "Empty")
    (transaction,) = [one for one in found["transactions"] if one["transactional_id"] == topic]
    assert (transaction["state"], transaction["topics"]) == ("Ongoing", topic)
    assert {one["state"] for one in found["brokers"]} == {"live"}
    assert not found["not_known"]


def test_doctor_checks_of_a_client(target: Target, topic: str) -> None:
    with Admin(target.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    found = run("doctor", "-b", target.bootstrap)["findings"]
    statuses = {str(one["check"]): one["status"] for one in found}
    addresses = {status for check, status in statuses.items() if check.startswith("bro")}
    assert addresses == {"ok"}
    assert statuses["clocks"] == "ok"

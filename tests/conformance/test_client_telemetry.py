"""Real clients push their metrics to a broker that subscribes to them (KIP-714)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer

from raylog.client import BlockingClient, NewTopic
from raylog.client.admin.topics import Resource, ResourceType
from raylog.testing import EmbeddedBroker
from tests.conformance.tools import TOOLS, java_tools
from tests.support.ray_clusters import wait_until

TOPIC = "orders"
_SERIES = re.compile(r'(\w+)="([^"]*)"')
Pushed = dict[tuple[str, str], set[str]]
"""Client id and attributes -> metrics."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"health.listener": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
    with EmbeddedBroker(settings=settings) as running:
        with BlockingClient(running.bootstrap) as client:
            client.create_topics([NewTopic(TOPIC, 1)])
            for name, settings in (
                ("all", {"metrics": "*", "interval.ms": "1000"}),
                ("nobody", {"metrics": "a.", "interval.ms": "100", "match": "client_id=nobody"}),
            ):
                client.alter_configs(Resource(ResourceType.CLIENT_METRICS, name), settings)
        yield running


def scraped(broker: EmbeddedBroker) -> list[str]:
    (status,) = broker.statuses
    with urlopen(f"http://{status.http}/metrics", timeout=10) as answer:
        return [line for line in answer.read().decode().splitlines() if not line.startswith("#")]


def pushed(broker: EmbeddedBroker) -> Pushed:
    found: Pushed = {}
    for line in scraped(broker):
        if line.startswith("raylog_client_metric{"):
            labels = dict(_SERIES.findall(line))
            found.setdefault((labels["client_id"], labels["attributes"]), set()).add(
                labels["metric"].removeprefix("org.apache.kafka.")
            )
    return found


def refused(broker: EmbeddedBroker) -> list[str]:
    """Pushes that were answered with an error."""
    return [
        line
        for line in scraped(broker)
        if line.startswith("raylog_client_pushes_total") and 'code="NONE"' not in line
    ]


def test_librdkafka_pushes_what_is_asked_for(broker: EmbeddedBroker) -> None:
    own = {"bootstrap.servers": broker.bootstrap}
    producer = Producer({**own, "client.id": "rd-writer"})
    consumer = Consumer(
        {**own, "client.id": "rd-reader", "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])

    def works() -> bool:
        producer.produce(TOPIC, b"x")
        producer.poll(0.1)
        consumer.poll(0.1)
        found = pushed(broker)
        return "producer.request.latency.avg" in found.get(
            ("rd-writer", ""), ()
        ) and "consumer.coordinator.assigned.partitions" in found.get(
            ("rd-reader", "group_id=g"), ()
        )

    wait_until(works, "metrics of librdkafka")
    producer.flush()
    consumer.close()
    assert not refused(broker)


def test_java_pushes_what_is_asked_for(broker: EmbeddedBroker) -> None:
    command = java_tools().brief(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", broker.bootstrap, "--topic", TOPIC),
        *("--command-property", "client.id=java-writer"),
    )
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stdin is not None

    def works() -> bool:
        assert process.stdin is not None
        process.stdin.write(b"x\n")
        process.stdin.flush()
        found = pushed(broker).get(("java-writer", f"topic={TOPIC}"), set())
        return "producer.topic.record.send.total" in found

    try:
        wait_until(works, "metrics of Java")
    finally:
        _, said = process.communicate(timeout=60)  # the end of its input ends it
    assert len(pushed(broker)["java-writer", ""]) > 50
    assert not refused(broker), said.decode()

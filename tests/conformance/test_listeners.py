"""A real client works over each of several listeners, and learns of no other."""

import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from raylog.testing import EmbeddedBroker

BROKERS, RECORDS, DEADLINE_S = 2, 20, 60


def _another_host() -> str:
    """The IPv6 address of this machine alone; a name where there is none."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return "localhost"
    return "::1"


HOSTS = {"INTERNAL": "127.0.0.1", "EXTERNAL": _another_host()}
SETTINGS = {
    "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://{EXTERNAL}:0".format(**HOSTS),
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    """Two brokers with two listeners; a topic with a partition on each."""
    with EmbeddedBroker(BROKERS, settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_topics([NewTopic("t", BROKERS, 1)]).values():
            made.result(DEADLINE_S)
        yield cluster


@pytest.mark.parametrize("listener", HOSTS)
def test_a_client_works_over_the_listener_that_it_came_on(
    cluster: EmbeddedBroker, listener: str
) -> None:
    bootstrap = cluster.bootstrap_of(listener)
    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=DEADLINE_S)
    expected = {
        (status.broker_id, endpoint.host, endpoint.port)
        for status in cluster.statuses
        for endpoint in status.endpoints
        if endpoint.listener == listener
    }
    assert {(one.id, str(one.host), one.port) for one in known.brokers.values()} == expected
    assert {host for _, host, _ in expected} == {HOSTS[listener]}
    assert {part.leader for part in known.topics["t"].partitions.values()} == set(range(BROKERS))

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": listener})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    sent = {f"{listener} {number}".encode() for number in range(RECORDS)}
    for number, value in enumerate(sorted(sent)):
        producer.produce("t", value, partition=number % BROKERS)
    producer.commit_transaction(DEADLINE_S)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": listener, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    received: set[bytes] = set()
    deadline = time.monotonic() + DEADLINE_S
    while not sent <= received:
        assert time.monotonic() < deadline, received
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            received.add(message.value() or b"")
    consumer.close()

"""Consumers of librdkafka and Java read from the replica in their rack (KIP-392)."""

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.client import Consumer as OwnConsumer
from raylog.testing import EmbeddedBroker
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.conformance.tools import TOOLS, java
from tests.support.wire_client import WireClient

RACKS = ("near", "far", "farther")
RECORDS = 3_000
DEADLINE_S = 60
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    """Three brokers, each in a rack of its own; topic `t` is led by broker 0, in rack `near`."""
    with (
        EmbeddedBroker(3, racks=RACKS, settings={"replica.selector.class": SELECTOR}) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        client.create_topics([NewTopic("t", assignments={0: [0, 1, 2]})])
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.send("t", b"value %d" % number)
        yield cluster


def test_librdkafka_reads_from_its_rack(cluster: EmbeddedBroker) -> None:
    received: dict[str, int] = {}

    def count(statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            if broker["nodeid"] >= 0:
                received[str(broker["nodeid"])] = broker["rxbytes"]

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reads-far",
            "client.rack": "far",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 200,
            "stats_cb": count,
        }
    )
    consumer.subscribe(["t"])
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(values) < RECORDS or received.get("1", 0) < RECORDS:
        assert time.monotonic() < deadline, (len(values), received)
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            values.append(message.value() or b"")
    consumer.close()
    assert values == [b"value %d" % number for number in range(RECORDS)]
    assert received["1"] > sum(map(len, values)) > received["0"] + received["2"]


@pytest.mark.java
def test_the_java_consumer_reads_from_its_rack(cluster: EmbeddedBroker) -> None:
    said = java(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", "t", "--from-beginning"),
        *("--command-property", "client.rack=farther", "--max-messages", str(RECORDS)),
    )
    assert said.splitlines() == [f"value {number}" for number in range(RECORDS)]


def test_fetch_answers_of_leader_and_follower(cluster: EmbeddedBroker) -> None:
    def fetched(broker: int, rack: str, version: int) -> FetchResponse:
        host, _, port = cluster.bootstrap_servers[broker].rpartition(":")
        part = FetchPartition(partition=0, fetch_offset=10, partition_max_bytes=1_000_000)
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1_000_000, rack_id=rack, session_epoch=-1
        )
        request.topics = [FetchTopic(topic="t", partitions=[part])]
        with WireClient(host, int(port)) as client:
            answer = client.ask(request, version)
        assert isinstance(answer, FetchResponse)
        return answer

    def outcome(answer: FetchResponse) -> tuple[int, int, bool, int]:
        (data,) = answer.responses[0].partitions
        return (
            data.error_code,
            data.preferred_read_replica,
            bool(data.records),
            data.high_watermark,
        )

    assert outcome(fetched(0, "far", 11)) == (0, 1, False, RECORDS)
    assert outcome(fetched(0, "farther", 12)) == (0, 2, False, RECORDS)
    assert outcome(fetched(0, "near", 12)) == (0, -1, True, RECORDS)
    assert outcome(fetched(0, "elsewhere", 12)) == (0, -1, True, RECORDS)
    assert outcome(fetched(1, "far", 12)) == (0, -1, True, RECORDS)
    assert outcome(fetched(1, "", 12)) == (0, -1, True, RECORDS)
    assert outcome(fetched(1, "", 10)) == (6, -1, False, -1)


def test_our_consumer_reads_from_its_rack_and_goes_back_to_the_leader() -> None:
    key = TopicPartition("t", 0)
    settings = {"replica.selector.class": SELECTOR}
    with (
        EmbeddedBroker(3, racks=RACKS, settings=settings) as cluster,
        BlockingClient(cluster.bootstrap) as client,
        client.producer() as producer,
        OwnConsumer(cluster.bootstrap, client_rack="far") as consumer,
    ):
        client.create_topics([NewTopic("t", assignments={0: [0, 1, 2]})])
        consumer.assign({key: 0})

        def home_of(start: int, count: int) -> int:
            """Write and read some records; where the last were fetched from."""
            for number in range(start, start + count):
                producer.send("t", b"%d" % number)
            producer.flush()
            values: list[bytes | None] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(values) < count:
                assert time.monotonic() < deadline, len(values)
                values += (record.value for record in consumer.poll_records(200))
            assert values == [b"%d" % number for number in range(start, start + count)]
            progress = consumer._core.fetcher.progress_of(key)
            assert progress is not None
            return progress.home

        assert home_of(0, 100) == 1
        cluster.stop_broker(1)
        assert home_of(100, 100) == 0

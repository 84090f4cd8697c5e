"""An embedded broker's metrics report exactly what was done to it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.metrics.counts import OTHERS
from raylog.testing import EmbeddedBroker
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.frame import encode_request
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.records import Record, encode_batch
from raylog.wire.schema import layout_of
from tests.support.scraping import Scraped, scrape
from tests.support.wire_client import CLIENT_ID, WireClient
from tests.worlds.gateway.producing import codes, produce

LISTENER = {"health.listener": "127.0.0.1:0"}
RECORDS = 10
BATCH = encode_batch([Record(n, 1_000_000, None, b"v" * 100, []) for n in range(RECORDS)])


class Counting(WireClient):
    """A connection that counts the bytes it sent and received."""

    sent = 0
    received = 0

    def __enter__(self) -> Counting:
        return self

    def send(self, request: Any, version: int) -> tuple[ApiKey, int]:
        api_key = layout_of(type(request)).api_key
        assert api_key is not None
        self.sent += sum(map(len, encode_request(api_key, version, 1, CLIENT_ID, request)))
        return super().send(request, version)

    def _exactly(self, size: int) -> bytes:
        self.received += size
        return super()._exactly(size)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    settings = LISTENER | {"metrics.topics.max": "3", "replica.actors.max": "1"}
    with EmbeddedBroker(settings=settings) as running:
        yield running


def connected(broker: EmbeddedBroker) -> Counting:
    host, _, port = broker.bootstrap.rpartition(":")
    return Counting(host, int(port))


def create(client: WireClient, *names: str) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    answer = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
    assert {one.error_code for one in answer.topics} == {0}


def fetch(topic: str) -> FetchRequest:
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=asked)],
    )


def send_unknown(broker: EmbeddedBroker, api_key: int) -> None:
    """Send a request of an API that nobody knows, which closes the connection."""
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"\0\0\0\x0a" + api_key.to_bytes(2, "big") + bytes(8))
        assert connection.recv(1) == b""


def test_embedded_broker_metrics_count_requests_and_errors(broker: EmbeddedBroker) -> None:
    (url,) = broker.metrics_urls
    with connected(broker) as client:
        create(client, "t")
        for _ in range(7):
            assert codes(client.ask(produce((0, BATCH)), 9)) == [ErrorCode.NONE]
        refused = codes(client.ask(produce((0, BATCH), (5, BATCH), (6, BATCH)), 9))
        assert refused == [ErrorCode.NONE, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]
        for _ in range(3):
            client.ask(fetch("t"), 11)
        found = scrape(url)
    assert found.total("raylog_requests_total", api="Produce") == 8
    assert found.total("raylog_requests_total", api="Fetch") == 3
    assert found.total("raylog_request_seconds_count", api="Produce") == 8
    for stage in ("queue", "local", "remote", "send"):
        in_stage = {"api": "Produce", "stage": stage}
        assert found.total("raylog_request_stage_seconds_count", **in_stage) == 8
    assert found.total("raylog_errors_total") == 2
    errors = {"api": "Produce", "code": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert found.total("raylog_errors_total", **errors) == 2
    assert found.total("raylog_network_bytes_total", direction="in") == client.sent
    assert found.total("raylog_network_bytes_total", direction="out") == client.received
    assert found.total("raylog_topic_batches_in_total", topic="t") == 8
    assert found.total("raylog_topic_records_in_total", topic="t") == 8 * RECORDS
    assert found.total("raylog_topic_bytes_in_total", topic="t") == 8 * len(BATCH)
    assert found.total("raylog_log_size_bytes", topic="t") == 8 * len(BATCH)
    assert found.total("raylog_topic_bytes_out_total", topic="t") == 3 * 8 * len(BATCH)
    assert found.total("raylog_connections", listener="PLAINTEXT") == 1
    assert found.total("raylog_connections_accepted_total") == 1
    assert found.total("raylog_partitions", state="leader") == 1
    assert found.total("raylog_under_replicated_partitions") == 0
    assert found.total("raylog_offline_replicas") == 0
    assert found.matching("raylog_broker_state", state="running")[0].value == 1
    cpu = found.matching("raylog_process_cpu_seconds_total")
    assert [one.labels["process"] for one in cpu] == ["broker-0"], "one process, told once"
    assert cpu[0].value > 0
    assert found.total("raylog_process_open_fds") <= len(os.listdir("/proc/self/fd")) + 10


def test_an_event_loop_is_watched_from_the_first_scrape_on(broker: EmbeddedBroker) -> None:
    (url,) = broker.metrics_urls
    assert scrape(url).total("raylog_event_loop_lag_seconds_count") == 0
    while not scrape(url).total("raylog_event_loop_lag_seconds_count"):
        pass


def test_a_client_cannot_add_series(broker: EmbeddedBroker) -> None:
    """Whatever it is called, asks for, or sends that is no request."""
    (url,) = broker.metrics_urls

    def series(found: Scraped) -> set[tuple[str, str]]:
        return {(one.name, str(sorted(one.labels.items()))) for one in found.samples}

    hostile = ['a"b', "a\nb", 'x"} 1\nforged{a="', "n" * 300, "\\", "é"]
    with connected(broker) as client:
        create(client, "t")
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="missing")])
        asked.allow_auto_topic_creation = False
        client.ask(asked, 8)
        client.ask(produce((0, BATCH), topic="missing"), 9)
        client.ask(fetch("missing"), 11)
        send_unknown(broker, 99)
        scrape(url)
        before = series(scrape(url))
        for name in hostile:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            asked.allow_auto_topic_creation = False
            client.ask(asked, 8)
            client.ask(produce((0, BATCH), topic=name), 9)
            client.ask(fetch(name), 11)
        for api_key in range(200, 220):
            send_unknown(broker, api_key)
        after = scrape(url)
    new = series(after) - before
    assert {name for name, _ in new} <= {"raylog_errors_total"}
    assert len(new) <= 3, "one for each API that was asked"


def test_thousands_of_topics_have_no_more_series_than_the_setting_says(
    broker: EmbeddedBroker,
) -> None:
    (url,) = broker.metrics_urls
    names = [f"t{number}" for number in range(50)]
    with connected(broker) as client:
        create(client, *names)
        for name in names:
            assert codes(client.ask(produce((0, BATCH), topic=name), 9)) == [ErrorCode.NONE]
            client.ask(fetch(name), 11)
        found = scrape(url)
        for family in ("raylog_topic_bytes_in_total", "raylog_topic_bytes_out_total"):
            assert len(found.values(family, "topic")) == 4
            assert found.total(family) == 50 * len(BATCH)
            assert found.total(family, topic=OTHERS) == 47 * len(BATCH)
        assert found.total("raylog_log_size_bytes", topic=OTHERS) == 47 * len(BATCH)
        deleting = [DeleteTopicState(name=name) for name in names]
        client.ask(DeleteTopicsRequest(topics=deleting, timeout_ms=30_000), 6)
        while scrape(url).values("raylog_topic_bytes_in_total", "topic") - {OTHERS}:
            pass


def test_each_of_three_brokers_tells_its_own_and_one_tells_for_all() -> None:
    with EmbeddedBroker(brokers=3, settings=LISTENER) as cluster:
        found = scrape(*cluster.metrics_urls)
    assert found.values("raylog_broker_info", "broker") == {"0", "1", "2"}
    assert len(found.matching("raylog_active_controllers")) == 3
    assert found.values("raylog_process_cpu_seconds_total", "broker") == {"0", "1", "2"}
    assert found.total("raylog_metadata_voter") == 3


def test_the_port_is_the_same_after_a_restart_unless_it_is_taken(tmp_path: Path) -> None:
    urls = []
    for _ in range(2):
        with EmbeddedBroker(settings=LISTENER, data=tmp_path) as running:
            urls += running.metrics_urls
    assert urls[0] == urls[1]
    port = int(urls[0].rpartition(":")[2].partition("/")[0])
    with (
        socket.create_server(("127.0.0.1", port)),
        EmbeddedBroker(settings=LISTENER, data=tmp_path) as running,
    ):
        assert running.metrics_urls != urls[:1]
        assert scrape(*running.metrics_urls).total("raylog_replicas") == 0


def test_a_broker_tells_nothing_unless_it_is_asked_to() -> None:
    with EmbeddedBroker() as running:
        assert running.metrics_urls == []

"""Topics that do not exist, or that the consumer may not read."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator

import pytest

from raylog.client import Admin, Consumer, NewTopic, TopicPartition
from raylog.client.cluster import ClusterView, PartitionView, TopicView
from raylog.client.consumer.missing import MissingTopics
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import InvalidTopicException, UnknownTopicOrPartition
from raylog.wire.uuids import ZERO_UUID

PATIENCE_S = 30.0
SETTINGS = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(settings=SETTINGS) as broker:
        yield broker.bootstrap


def polled(consumer: Consumer[bytes, bytes], is_over: Callable[[], bool]) -> None:
    """Poll until something has happened."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_over() and time.monotonic() < deadline:
        assert consumer.poll_records(timeout_ms=100) == []
    assert is_over()


def test_a_missing_topic_is_warned_of_once_until_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, now_ms = ClusterView(), [0.0]
    missing = MissingTopics(cluster, lambda: now_ms[0])
    cluster.failures["t"] = UnknownTopicOrPartition()
    missing.look(["t"])
    now_ms[0] = 999.0
    missing.look(["t"])
    assert not caplog.records  # it may just be created
    for now_ms[0] in (1_000.0, 9_000.0):
        missing.look(["t"])
    assert caplog.messages == [
        "waiting for topic 't': the broker answers UNKNOWN_TOPIC_OR_PARTITION"
    ]
    failure = cluster.failures.pop("t")
    missing.look(["t"])
    cluster.failures["t"] = failure
    for now_ms[0] in (10_000.0, 11_000.0):
        missing.look(["t"])
    assert len(caplog.records) == 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_waits_for_a_topic_with_a_word(
    bootstrap: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        Consumer(bootstrap, group_id=f"waits-{protocol}", group_protocol=protocol) as consumer,
    ):
        consumer.subscribe(["misspelled"])
        polled(consumer, lambda: "waiting for topic 'misspelled': the broker" in caplog.text)


def test_a_partition_of_a_missing_topic(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition("nowhere", 0)])
        polled(consumer, lambda: "waiting for topic 'nowhere': the broker" in caplog.text)


def test_a_partition_that_a_topic_does_not_have(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("small", 2)])
        producer = admin.producer()
        producer.send("small", b"there", partition=1)
        producer.flush()
    with caplog.at_level(logging.WARNING), Consumer(bootstrap) as consumer:
        consumer.assign({TopicPartition("small", 7): 0, TopicPartition("small", 1): 0})
        assert [record.value for record in consumer.poll_records(30_000)] == [b"there"]
        polled(consumer, lambda: bool(caplog.messages))
    assert caplog.messages == [
        "waiting for partition 7 of topic 'small', which has 2: expected one below that"
    ]


def test_a_missing_partition_is_warned_of_once_until_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, now_ms = ClusterView({"t": TopicView("t", ZERO_UUID)}), [0.0]
    missing, key = MissingTopics(cluster, lambda: now_ms[0]), TopicPartition("t", 0)
    for now_ms[0] in (0.0, 999.0, 1_000.0, 9_000.0):
        missing.look_at(key)
    assert len(caplog.records) == 1
    cluster.topics["t"].partitions[0] = PartitionView(0, 1, 0)
    missing.look_at(key)
    del cluster.topics["t"].partitions[0]
    for now_ms[0] in (10_000.0, 11_000.0):
        missing.look_at(key)
    assert len(caplog.records) == 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("name", ["no topic", "", ".", "..", "ä", "t" * 250, "t\n", 5])
def test_a_name_that_no_topic_may_have(bootstrap: str, protocol: str, name: str) -> None:
    expected = re.escape("1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'") + ".*found "
    with Consumer(bootstrap, group_id=f"name-{protocol}", group_protocol=protocol) as consumer:
        with pytest.raises(InvalidTopicException, match=expected + re.escape(repr(name))):
            consumer.subscribe(["pages", name])
        with pytest.raises(InvalidTopicException, match=expected):
            consumer.assign([TopicPartition(name, 0)])
        consumer.subscribe(["t" * 249])

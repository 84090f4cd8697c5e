"""Topics that are not there, or that the consumer may not read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest

from raylog.client import Consumer, TopicPartition
from raylog.client.cluster import ClusterView
from raylog.client.consumer.missing import MissingTopics
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import InvalidTopicException, UnknownTopicOrPartition

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


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_name_that_no_topic_may_have(bootstrap: str, protocol: str) -> None:
    with Consumer(bootstrap, group_id=f"name-{protocol}", group_protocol=protocol) as consumer:
        consumer.subscribe(["no topic"])
        with pytest.raises(InvalidTopicException, match="topic 'no topic'"):
            polled(consumer, lambda: False)

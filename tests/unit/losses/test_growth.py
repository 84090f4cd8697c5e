"""A cluster that grew from one broker to three: any of them may be lost."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from raylog.client import (
    BlockingClient,
    CommittedOffset,
    NewTopic,
    ProducerSettings,
    Resource,
    ResourceType,
    TopicPartition,
)
from raylog.testing import EmbeddedBroker
from tests.worlds.embedded.lost_directories import VALUES, read, write

SETTINGS = {
    "offsets.topic.num.partitions": "12",
    "transaction.state.log.num.partitions": "3",
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "1000",
}
INTERNAL = ["__consumer_offsets", "__transaction_state"]
OFFSET = {TopicPartition("t", 0): CommittedOffset(7)}


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def begun(data: Path) -> None:
    """One broker with a topic, a group's offset and a transaction."""
    with (
        EmbeddedBroker(1, data=data, settings=SETTINGS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        client.create_topics([NewTopic("t", 1, 1)])
        client.commit_group_offsets("g", OFFSET)
        transact(client)
        assert factors(client) == {1}


def transact(client: BlockingClient) -> None:
    with client.producer(ProducerSettings(transactional_id="x")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        producer.commit_transaction()


def factors(client: BlockingClient) -> set[int]:
    """How many replicas of the internal topics are in sync."""
    return {len(one.isr) for one in client.describe_partitions(INTERNAL).values()}


def in_sync_wanted(client: BlockingClient) -> str | None:
    """The min.insync.replicas of the transactions' topic."""
    entries = client.describe_configs(Resource(ResourceType.TOPIC, INTERNAL[1]))
    return next(one.value for one in entries if one.name == "min.insync.replicas")


def test_whatever_it_was_begun_with_survives_the_first_broker(tmp_path: Path) -> None:
    begun(tmp_path)
    with (
        EmbeddedBroker(3, data=tmp_path, settings=SETTINGS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        wait_until(lambda: len(client.describe_quorum().voters) == 3, "three voters")
        wait_until(lambda: factors(client) == {3}, "three replicas")
        transact(client)
        client.create_topics([NewTopic("u", 1, 3)])
        write(cluster.bootstrap, "u")
        wait_until(lambda: in_sync_wanted(client) == "2", "two in sync for transactions")
    shutil.rmtree(tmp_path / "broker-0")
    with (
        EmbeddedBroker(3, data=tmp_path, settings=SETTINGS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        assert client.group_offsets("g") == OFFSET
        assert [one.transactional_id for one in client.list_transactions()] == ["x"]
        assert read(cluster.bootstrap, "u") == VALUES

"""Directories that are lost: what the others have is kept, whoever starts first."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from raylog.client import EARLIEST, BlockingClient, NewTopic, TopicPartition
from raylog.testing import EmbeddedBroker

RECORDS = 300
SETTINGS = {"default.replication.factor": "3", "controller.quorum.auto.join.enable": "false"}


def write(bootstrap: str, topic: str) -> None:
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=0)


def read(bootstrap: str, topic: str) -> list[bytes | None]:
    values: list[bytes | None] = []
    with BlockingClient(bootstrap) as client:
        consumer = client.consumer()
        consumer.assign({TopicPartition(topic, 0): EARLIEST})
        for _ in range(50):
            values += (r.value for group in consumer.poll(200) for r in group.records)
            if len(values) >= RECORDS:
                break
    return values


def contents(data: Path, *brokers: int) -> dict[str, bytes]:
    """Everything that is in partitions' segments of some brokers."""
    return {
        str(path.relative_to(data)): path.read_bytes().rstrip(b"\0")
        for broker_id in brokers
        for path in (data / f"broker-{broker_id}" / "topics").rglob("*.log")
    }


def two_brokers(data: Path) -> tuple[int, ...]:
    """Two brokers, of which the first alone votes; the others have what it leads."""
    with EmbeddedBroker(2, data=data, settings=SETTINGS) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", 1, 2), NewTopic("u", 3, 2)])
        write(cluster.bootstrap, "t")
    return (1,)


def grown_to_three(data: Path) -> tuple[int, ...]:
    """Begun with one broker, which has the only vote, and grown to three."""
    with EmbeddedBroker(1, data=data, settings=SETTINGS):
        pass
    with EmbeddedBroker(3, data=data, settings=SETTINGS) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", 1, 3)])
        write(cluster.bootstrap, "t")
    return (1, 2)


def one_broker(data: Path) -> tuple[int, ...]:
    """One broker."""
    with EmbeddedBroker(1, data=data, settings=SETTINGS) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", 1, 1)])
        write(cluster.bootstrap, "t")
    return (0,)


@pytest.mark.parametrize(
    ("begin", "lost"),
    [
        (two_brokers, "broker-0"),
        (grown_to_three, "broker-0"),
        (one_broker, "broker-0/metadata"),
    ],
)
def test_the_only_voter_lost_its_directory_and_nothing_else_is_lost(
    tmp_path: Path, begin: Callable[[Path], tuple[int, ...]], lost: str
) -> None:
    holders = begin(tmp_path)
    before = contents(tmp_path, *holders)
    assert before
    shutil.move(tmp_path / lost, tmp_path / "saved")
    brokers = max(1, len(holders) + 1) if lost == "broker-0" else 1
    with (
        pytest.raises(Exception, match="metadata"),
        EmbeddedBroker(brokers, data=tmp_path, settings=SETTINGS),
    ):
        pass
    assert contents(tmp_path, *holders) == before
    shutil.rmtree(tmp_path / lost, ignore_errors=True)
    shutil.move(tmp_path / "saved", tmp_path / lost)
    with EmbeddedBroker(brokers, data=tmp_path, settings=SETTINGS) as cluster:
        assert read(cluster.bootstrap, "t") == [b"%d" % number for number in range(RECORDS)]

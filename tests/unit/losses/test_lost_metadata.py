"""Lost directories: the data of the others is kept, in any order of starts."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from raylog.client import BlockingClient, NewTopic
from raylog.testing import EmbeddedBroker
from tests.worlds.embedded.lost_directories import VALUES, contents, read, write

SETTINGS = {"default.replication.factor": "3", "controller.quorum.auto.join.enable": "false"}


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
        assert read(cluster.bootstrap, "t") == VALUES


def put(cluster: EmbeddedBroker, *values: bytes) -> None:
    """Write records to partition 0 of t."""
    with BlockingClient(cluster.bootstrap) as client, client.producer() as producer:
        for value in values:
            producer.send("t", value, partition=0)


def test_an_older_copy_that_went_on_is_refused_by_who_knew_the_lost_history(tmp_path: Path) -> None:
    """Both histories go on from the copy with the same controller epochs."""
    with EmbeddedBroker(2, data=tmp_path, settings=SETTINGS) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", assignments={0: [0, 1]})])
        put(cluster, b"common")
        cluster.stop_broker(1)
    shutil.copytree(tmp_path / "broker-0", tmp_path / "copy")
    with EmbeddedBroker(2, data=tmp_path, settings=SETTINGS) as cluster:
        put(cluster, b"first history")
    shutil.rmtree(tmp_path / "broker-0")
    shutil.move(tmp_path / "copy", tmp_path / "broker-0")
    shutil.move(tmp_path / "broker-1", tmp_path / "away")
    with EmbeddedBroker(1, data=tmp_path, settings=SETTINGS) as cluster:
        put(cluster, b"second history")
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic(f"x{number}", 1, 1) for number in range(12)])
    shutil.move(tmp_path / "away", tmp_path / "broker-1")
    before = contents(tmp_path, 1)
    assert any(b"first history" in data for data in before.values())
    with (
        pytest.raises(Exception, match="is of another controller epoch"),
        EmbeddedBroker(2, data=tmp_path, settings=SETTINGS),
    ):
        pass
    assert contents(tmp_path, 1) == before

"""The directory of a replica in sync is lost: the others have all its data."""

import shutil
from pathlib import Path

import pytest

from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.testing import EmbeddedBroker
from tests.worlds.embedded.lost_directories import VALUES, contents, read, write

SETTINGS = {"controller.quorum.auto.join.enable": "false"}
KEY = TopicPartition("t", 0)


def begun(data: Path) -> None:
    """Broker 1 stops first: broker 0 alone is in sync."""
    with EmbeddedBroker(2, data=data, settings=SETTINGS) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", assignments={0: [0, 1]})])
        write(cluster.bootstrap, "t")
        cluster.stop_broker(1)


@pytest.mark.parametrize("lost", ["topics", "topics/t-0.*"])
def test_a_log_that_begins_anew_does_not_lead(tmp_path: Path, lost: str) -> None:
    begun(tmp_path)
    before = contents(tmp_path, 1)
    (path,) = (tmp_path / "broker-0").glob(lost)
    shutil.move(path, tmp_path / "saved")
    with (
        EmbeddedBroker(2, data=tmp_path, settings=SETTINGS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        assert client.describe_partitions(["t"])[KEY].leader == -1
    assert contents(tmp_path, 1) == before
    shutil.rmtree(path)
    shutil.move(tmp_path / "saved", path)
    with EmbeddedBroker(2, data=tmp_path, settings=SETTINGS) as cluster:
        assert read(cluster.bootstrap, "t") == VALUES


def test_an_emptied_directory_does_not_lead_either(tmp_path: Path) -> None:
    """As one whose maker was ended before it had written anything to it."""
    begun(tmp_path)
    before = contents(tmp_path, 1)
    (path,) = (tmp_path / "broker-0").glob("topics/t-0.*")
    shutil.rmtree(path)
    path.mkdir()
    with (
        EmbeddedBroker(2, data=tmp_path, settings=SETTINGS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        assert client.describe_partitions(["t"])[KEY].leader == -1
    assert contents(tmp_path, 1) == before

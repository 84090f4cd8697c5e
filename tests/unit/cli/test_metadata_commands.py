"""`raylog metadata rebuild`: after the loss of all voters everything is served again."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from raylog.actors.broker.identity import read_identity
from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.metadata.records import BrokerWanted, decode_record
from raylog.actors.supervisor.rules.desired import DesiredCluster
from raylog.cli.failures import CommandFailed
from raylog.cli.metadata import brokers_directories
from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.storage.disk import OsDisk
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import InconsistentClusterId
from tests.worlds.embedded.lost_directories import call, lose_metadata

ARCHIVES = Path(__file__).parents[2] / "compat" / "data"
CUT = "long-" + "n" * 244


def files(data: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in sorted(data.rglob("*")) if one.is_file()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three brokers that were shut down, with a topic that has settings of its own."""
    with EmbeddedBroker(3, data=tmp_path) as cluster, BlockingClient(cluster.bootstrap) as client:
        settings = {"retention.ms": "-1", "cleanup.policy": "compact"}
        client.create_topics([NewTopic("orders", 2, 3, configs=settings)])
        with client.producer() as producer:
            for number in range(100):
                producer.send("orders", b"v%d" % number, key=b"k%d" % number)
        client.commit_group_offsets("readers", {TopicPartition("orders", 0): 7})
    return tmp_path


def values(client: BlockingClient) -> list[bytes | None]:
    with contextlib.closing(client.consumer()) as consumer:
        keys = [TopicPartition("orders", one) for one in range(2)]
        consumer.assign(dict.fromkeys(keys, 0))
        found: list[bytes | None] = []
        while len(found) < 100:
            found += [record.value for one in consumer.poll() for record in one.records]
    return sorted(found, key=str)


def test_all_is_served_again_after_all_voters_were_lost(data: Path) -> None:
    lose_metadata(data)
    before = files(data)
    code, output = call("--data", data)
    assert code == 0, output
    assert "Nothing was changed" in output
    assert f"reading 52 partitions in {data / 'broker-0'}" in output
    assert files(data) == before
    assert call(data) == (code, output), "the folder may be given without an option"
    code, output = call("--data", data, "--execute")
    assert code == 0, output
    with EmbeddedBroker(data=data) as cluster, BlockingClient(cluster.bootstrap) as client:
        assert values(client) == sorted([b"v%d" % number for number in range(100)], key=str)
        offsets = client.group_offsets("readers")
        assert offsets[TopicPartition("orders", 0)].offset == 7
        with client.producer() as producer:
            producer.send("orders", b"later", key=b"later")
        assert len(client.describe_quorum().voters) == 3


def test_settings_and_what_is_found_stand_in_the_plan(data: Path) -> None:
    lose_metadata(data)
    code, output = call("--data", data, "--json")
    assert code == 0, output
    plan = json.loads(output[: output.rindex("}") + 1][output.index("{") :])
    (orders,) = [one for one in plan["topics"] if one["topic"] == "orders"]
    assert orders["settings"] == {"retention.ms": "-1", "cleanup.policy": "compact"}
    assert orders["settings_known"]
    copies = [len(one["copies"]) for one in orders["partitions"]]
    assert copies == [3, 3]


def test_a_majority_that_is_left_is_not_replaced(data: Path) -> None:
    shutil.rmtree(data / "broker-1" / "metadata")
    code, output = call("--data", data, "--execute")
    assert code != 0
    assert "a majority of the voters is left" in output


def note_wanted(directory: Path, offset: int, *broker_ids: int) -> None:
    """What a broker notes of where brokers shall run."""
    wanted = tuple(
        BrokerWanted(one, {"raylog-broker": str(one)}, f"/srv/broker-{one}", {}, 0.5, 1, "old")
        for one in broker_ids
    )
    known = DesiredCluster("c", wanted, (), offset=offset)
    (directory / "wanted.json").write_bytes(known.to_bytes())


def test_where_brokers_shall_run_is_known_again(data: Path) -> None:
    lose_metadata(data)
    note_wanted(data / "broker-0", 10, 0, 1, 2)
    note_wanted(data / "broker-1", 20, 0, 1, 2, 7)
    (data / "broker-2" / "wanted.json").write_text("{")
    code, output = call("--data", data, "--execute")
    assert code == 0, output
    assert f"ignoring {data / 'broker-2' / 'wanted.json'}" in output
    with contextlib.closing(MetadataLog(data / "broker-0" / "metadata", OsDisk())) as log:
        records = [decode_record(one) for one in log.copy.snapshot.records]
    found = {one.broker_id: one for one in records if isinstance(one, BrokerWanted)}
    assert sorted(found) == [0, 1, 2, 7]
    identity = read_identity(data / "broker-2")
    assert identity is not None
    assert found[2].directory_id == identity.directory_id, "the one that is there"
    assert found[7].directory_id == "old", "to be replaced by command, if it is lost"
    with EmbeddedBroker(data=data) as cluster, BlockingClient(cluster.bootstrap) as client:
        assert len(values(client)) == 100


def test_names_come_from_a_copy_that_is_left(data: Path) -> None:
    for broker in (0, 1):
        shutil.rmtree(data / f"broker-{broker}" / "metadata")
    code, output = call("--data", data, "--execute")
    assert code == 0, output
    assert "older copy of the metadata is kept" in output
    with EmbeddedBroker(data=data) as cluster, BlockingClient(cluster.bootstrap) as client:
        assert len(values(client)) == 100


def test_a_copy_that_comes_back_later_is_refused(data: Path) -> None:
    older = data.parent / f"{data.name}-older"
    shutil.copytree(data / "broker-2", older)
    lose_metadata(data)
    shutil.rmtree(data / "broker-2")
    code, output = call("--data", data, "--execute")
    assert code != 0
    assert "broker 2 was in the cluster, and its directory was not given" in output
    code, output = call("--data", data, "--execute", "--without", "2")
    assert code == 0, output
    older.rename(data / "broker-2")
    with pytest.raises(InconsistentClusterId, match="broker 2 cannot follow the metadata"):
        EmbeddedBroker(3, data=data).start()
    assert len(list((data / "broker-2" / "topics").glob("orders-*"))) == 2
    assert not list((data / "broker-2" / "topics").glob("*-stray"))


def test_directories_in_use_are_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path):
        code, output = call("--data", tmp_path, "--execute")
    assert code != 0
    assert "is in use by another broker process" in output


def test_a_folder_without_brokers_is_reported(tmp_path: Path) -> None:
    code, output = call("--data", tmp_path)
    assert code != 0
    assert "neither is a broker's directory nor contains one" in output


def test_the_folder_of_the_brokers_may_be_given_instead_of_their_directories(
    tmp_path: Path,
) -> None:
    for broker in (0, 1):
        (tmp_path / f"broker-{broker}").mkdir()
    inside = [tmp_path / "broker-0", tmp_path / "broker-1"]
    assert brokers_directories([tmp_path]) == inside
    assert brokers_directories([tmp_path, inside[1]]) == inside, "each once"
    assert brokers_directories(inside[1:]) == inside[1:]
    with pytest.raises(CommandFailed, match="neither is a broker's directory"):
        brokers_directories([tmp_path / "other"])


@pytest.mark.parametrize(
    "archive", sorted(ARCHIVES.glob("*/crashed.tar.xz")), ids=lambda one: str(one.parent.name)
)
def test_directories_of_an_earlier_commit_with_a_broker_lost(archive: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(archive, tmp_path)
    lose_metadata(tmp_path)
    shutil.rmtree(tmp_path / "broker-1")
    code, output = call("--data", tmp_path)
    assert code != 0
    (cut,) = {one.name.rpartition(".")[2] for one in tmp_path.glob("broker-0/topics/long-*")}
    assert f"--name {cut}=NAME" in output
    code, output = call("--data", tmp_path, "--name", f"{cut}={CUT}", "--without", "1", "--execute")
    assert code == 0, output
    expected = json.loads((archive.parent / "contents.json").read_text())
    kept = {"offsets.retention.minutes": "2147483647"}
    with (
        EmbeddedBroker(2, data=tmp_path, settings=kept) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        assert set(expected["topics"]) <= set(client.metadata().topics)
        offsets = client.group_offsets("group-classic")
        assert offsets[TopicPartition("plain", 2)].offset == 102

"""Other data is lost with the metadata, or comes back older: a rebuilt cluster removes nothing."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from raylog.client import (
    EARLIEST,
    LATEST,
    BlockingClient,
    NewTopic,
    Resource,
    ResourceType,
    TopicPartition,
)
from raylog.storage.layout import PARTITION_FILE
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import ErrorCode, InconsistentClusterId
from raylog.wire.records import Record, encode_batch
from tests.support.ray_clusters import wait_until
from tests.support.wire_client import WireClient
from tests.worlds.embedded.lost_directories import (
    RECORDS,
    VALUES,
    call,
    contents,
    lose_metadata,
    read,
    write,
)
from tests.worlds.gateway.producing import codes, produce

KEY = TopicPartition("t", 0)
MONTH_MS = 30 * 24 * 60 * 60 * 1_000
ONE_VOTER = {"controller.quorum.auto.join.enable": "false"}
SWEEPS = {**ONE_VOTER, "log.retention.check.interval.ms": "100"}


def rebuild(data: Path, *arguments: object) -> str:
    code, output = call("--data", data, "--execute", *arguments)
    assert code == 0, output
    return output


def directory(data: Path, broker_id: int, partition: int = 0) -> Path:
    (found,) = (data / f"broker-{broker_id}" / "topics").glob(f"t-{partition}.*")
    return found


def write_old(bootstrap: str, topic: str) -> None:
    """All records, with timestamps of a month ago."""
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        for value in VALUES:
            old = int(time.time() * 1_000) - MONTH_MS
            producer.send(topic, value, partition=0, timestamp_ms=old)


def swept(client: BlockingClient, bootstrap: str) -> None:
    """Wait until retention has looked at every log: one that it shall empty is empty."""
    client.create_topics([NewTopic("control", 1, 1, configs={"retention.ms": "1000"})])
    write_old(bootstrap, "control")
    key = TopicPartition("control", 0)

    def is_empty() -> bool:
        offsets = [client.list_offsets({key: which})[key].offset for which in (EARLIEST, LATEST)]
        return offsets == [RECORDS, RECORDS]

    wait_until(is_empty, "the sweep")


# ---- directories that do not come back -----------------------------------------------------------


@pytest.mark.parametrize("lost", ["topics/t-0.*", "topics"])
def test_a_leaders_log_that_is_not_brought_back_takes_no_others(tmp_path: Path, lost: str) -> None:
    with EmbeddedBroker(2, data=tmp_path, settings=ONE_VOTER) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", assignments={0: [0, 1]})])
        write(cluster.bootstrap, "t")
    lose_metadata(tmp_path)
    rebuild(tmp_path)
    before = contents(tmp_path, 1)
    assert any(before.values())
    (path,) = (tmp_path / "broker-0").glob(lost)
    shutil.rmtree(path)
    with (
        EmbeddedBroker(2, data=tmp_path, settings=ONE_VOTER) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        assert client.describe_partitions(["t"])[KEY].leader == -1
        client.elect_leaders([KEY], unclean=True)
        assert read(cluster.bootstrap, "t") == VALUES
    assert {one: data for one, data in before.items() if data} == {
        one: data for one, data in contents(tmp_path, 1).items() if data
    }


def test_a_follower_that_comes_back_without_its_log_is_filled_again(tmp_path: Path) -> None:
    with EmbeddedBroker(2, data=tmp_path, settings=ONE_VOTER) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", assignments={0: [0, 1]})])
        write(cluster.bootstrap, "t")
    lose_metadata(tmp_path)
    rebuild(tmp_path)
    shutil.rmtree(directory(tmp_path, 1))
    with (
        EmbeddedBroker(2, data=tmp_path, settings=ONE_VOTER) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        wait_until(lambda: len(client.describe_partitions(["t"])[KEY].isr) == 2, "the follower")
        assert read(cluster.bootstrap, "t") == VALUES
    logs = [b"".join(contents(tmp_path, one).values()) for one in (0, 1)]
    assert logs[0] == logs[1] != b""


def test_a_broker_that_comes_back_blank_takes_no_others_records(tmp_path: Path) -> None:
    with EmbeddedBroker(3, data=tmp_path) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", assignments={0: [1, 2]})])
        write(cluster.bootstrap, "t")
    lose_metadata(tmp_path)
    rebuild(tmp_path)
    shutil.rmtree(tmp_path / "broker-1")
    with (
        EmbeddedBroker(3, data=tmp_path) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        assert client.describe_partitions(["t"])[KEY].leader == -1
        client.elect_leaders([KEY], unclean=True)
        assert read(cluster.bootstrap, "t") == VALUES


def test_a_partition_of_which_nothing_is_left_keeps_its_number(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", 2, 1)])
            client.create_partitions("t", 4)
        write(cluster.bootstrap, "t")
    lose_metadata(tmp_path)
    for partition in (2, 3):
        shutil.rmtree(directory(tmp_path, 0, partition))
    code, output = call("--data", tmp_path, "--execute")
    assert code != 0
    assert "topic t has 4 partitions, and there is no copy of 2, 3" in output
    rebuild(tmp_path, "--accept-missing")
    with EmbeddedBroker(data=tmp_path) as cluster, BlockingClient(cluster.bootstrap) as client:
        partitions = client.describe_partitions(["t"])
        assert [partitions[TopicPartition("t", one)].leader for one in range(4)] == [0] * 4
        assert read(cluster.bootstrap, "t") == VALUES


# ---- settings ------------------------------------------------------------------------------------


def test_a_copy_that_missed_a_change_of_settings_does_not_bring_the_old_ones_back(
    tmp_path: Path,
) -> None:
    with (
        EmbeddedBroker(2, data=tmp_path, settings=SWEEPS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        client.create_topics([NewTopic("t", assignments={0: [0, 1]})])
        cluster.stop_broker(1)
        client.alter_configs(Resource(ResourceType.TOPIC, "t"), {"retention.ms": "-1"})
        write_old(cluster.bootstrap, "t")
    lose_metadata(tmp_path)
    rebuild(tmp_path)
    with (
        EmbeddedBroker(2, data=tmp_path, settings=SWEEPS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        swept(client, cluster.bootstrap)
        assert read(cluster.bootstrap, "t") == VALUES
        configs = client.describe_configs(Resource(ResourceType.TOPIC, "t"))
        assert {one.value for one in configs if one.name == "retention.ms"} == {"-1"}


def test_nothing_goes_by_defaults_that_were_not_in_force(tmp_path: Path) -> None:
    everywhere = Resource(ResourceType.BROKER, "")
    with (
        EmbeddedBroker(data=tmp_path, settings=SWEEPS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        client.alter_configs(everywhere, {"log.retention.ms": "-1"})
        client.create_topics([NewTopic("t", 1, 1)])
        write_old(cluster.bootstrap, "t")
    lose_metadata(tmp_path)
    output = rebuild(tmp_path)
    assert "raylog configs alter broker --unset" in output
    with (
        EmbeddedBroker(data=tmp_path, settings=SWEEPS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        swept(client, cluster.bootstrap)
        assert read(cluster.bootstrap, "t") == VALUES


def test_the_clusters_settings_come_from_a_copy_of_the_metadata_that_is_left(
    tmp_path: Path,
) -> None:
    everywhere = Resource(ResourceType.BROKER, "")
    with (
        EmbeddedBroker(3, data=tmp_path) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        client.alter_configs(everywhere, {"log.retention.ms": "1234567"})
        client.create_topics([NewTopic("t", 1, 3)])
    for broker_id in (0, 1):
        shutil.rmtree(tmp_path / f"broker-{broker_id}" / "metadata")
    output = rebuild(tmp_path)
    assert "Note:" not in output
    with (
        EmbeddedBroker(3, data=tmp_path) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        configs = client.describe_configs(everywhere)
        assert {one.name: one.value for one in configs} == {"log.retention.ms": "1234567"}


# ---- what others have written --------------------------------------------------------------------


def test_a_producer_id_that_a_client_made_up_ends_no_producers(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", 1, 1)])
        record = Record(0, int(time.time() * 1_000), None, b"x", [])
        batch = encode_batch([record], producer_id=2**63 - 1, producer_epoch=0, base_sequence=0)
        host, _, port = cluster.bootstrap.rpartition(":")
        with WireClient(host, int(port)) as stranger:
            assert codes(stranger.ask(produce((0, batch)), 9)) == [ErrorCode.NONE]
    lose_metadata(tmp_path)
    assert f"producer id {2**63 - 1} was found" in rebuild(tmp_path)
    with (
        EmbeddedBroker(data=tmp_path) as cluster,
        BlockingClient(cluster.bootstrap) as client,
        client.producer() as producer,
    ):
        producer.send("t", b"y", partition=0)


def test_a_name_that_leads_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as cluster, BlockingClient(cluster.bootstrap) as client:
        client.create_topics([NewTopic("t", 1, 1)])
    lose_metadata(tmp_path)
    path = directory(tmp_path, 0) / PARTITION_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"topic": "../x"}))
    code, output = call("--data", tmp_path, "--execute")
    assert code != 0
    assert "cannot be called '../x'" in output


def test_a_log_that_its_broker_began_anew_goes_after_its_equals(tmp_path: Path) -> None:
    with EmbeddedBroker(2, data=tmp_path) as cluster, BlockingClient(cluster.bootstrap) as client:
        client.create_topics([NewTopic("t", 1, 2)])
    lose_metadata(tmp_path)
    path = directory(tmp_path, 0) / PARTITION_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"begun_anew": True}))
    code, output = call("--data", tmp_path, "--json")
    assert code == 0, output
    plan = json.loads(output[output.index("{") : output.rindex("}") + 1])
    (topic,) = [one for one in plan["topics"] if one["topic"] == "t"]
    assert topic["partitions"][0]["replicas"] == [1, 0]


# ---- copies of the metadata ----------------------------------------------------------------------


def test_a_copy_of_the_metadata_that_brokers_refuse_is_put_aside(tmp_path: Path) -> None:
    metadata, older = tmp_path / "broker-0" / "metadata", tmp_path / "older"
    with EmbeddedBroker(data=tmp_path):
        pass
    shutil.copytree(metadata, older)
    with EmbeddedBroker(data=tmp_path) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", 1, 1)])
        write(cluster.bootstrap, "t")
    shutil.rmtree(metadata)
    shutil.copytree(older, metadata)
    with pytest.raises(InconsistentClusterId, match="raylog metadata rebuild"):
        EmbeddedBroker(data=tmp_path).start()
    output = rebuild(tmp_path)
    assert "an older copy of the metadata is kept as" in output
    (kept,) = (tmp_path / "broker-0").glob("metadata.*-replaced")
    assert (kept / "log").exists()
    with EmbeddedBroker(data=tmp_path) as cluster:
        assert read(cluster.bootstrap, "t") == VALUES


def test_a_copy_of_the_metadata_that_is_damaged_is_put_aside(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("t", 1, 1)])
        write(cluster.bootstrap, "t")
    (tmp_path / "broker-0" / "metadata" / "snapshot").write_bytes(b"damaged")
    assert "which is damaged" in rebuild(tmp_path)
    with EmbeddedBroker(data=tmp_path) as cluster:
        assert read(cluster.bootstrap, "t") == VALUES

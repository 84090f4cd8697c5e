"""A cluster that was stopped, or lost all its processes at once, still has all its data."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from raylog.actors.runtime.processes import descendants, is_running
from raylog.actors.runtime.ray_node import running_nodes
from raylog.wire.errors import ErrorCode
from tests.support.load import Reader, Writer, assert_nothing_lost
from tests.support.ray_clusters import DEADLINE_S, NewCluster, RayCluster, create, wait_until
from tests.support.sequenced import SequencedProducer
from tests.support.wire_client import WireClient

RECORDS = 40
SOME = 100
DELETED = 15
UP_S = 60.0


def write(cluster: RayCluster, topic: str, partitions: int) -> None:
    """RECORDS records to each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "lz4"})
    for number in range(RECORDS):
        for partition in range(partitions):
            value = f"{partition}:{number}".encode()
            producer.produce(
                topic,
                value,
                key=b"k",
                partition=partition,
                timestamp=1_700_000_000_000 + number,
                headers=[("h", b"\x00")],
            )
    assert producer.flush(DEADLINE_S) == 0


def read(cluster: RayCluster, topic: str, partitions: int) -> dict[int, list[object]]:
    """All records of a topic, by partition, with all that a client sees of them."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none"}
    consumer = Consumer(settings | {"enable.auto.commit": "false"})
    found: dict[int, list[object]] = {}
    for partition in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_S)
        consumer.assign([TopicPartition(topic, partition, low)])
        records = [consumer.poll(DEADLINE_S) for _ in range(low, high)]
        found[partition] = [low, high] + [
            None if m is None else (m.offset(), m.key(), m.value(), m.timestamp(), m.headers())
            for m in records
        ]
    consumer.close()
    return found


def topics(admin: AdminClient) -> dict[str, int]:
    """Names and partition counts of all topics of ours."""
    listed = admin.list_topics(timeout=DEADLINE_S).topics
    return {
        name: len(topic.partitions) for name, topic in listed.items() if not name.startswith("__")
    }


def settings_of(admin: AdminClient, topic: str) -> dict[str, str | None]:
    """The settings of a topic as they apply."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return {name: entry.value for name, entry in entries.items()}


@pytest.mark.long
def test_a_clean_stop_and_start(new_cluster: NewCluster) -> None:
    cluster = new_cluster(settings={"broker.rack": "r1"})
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(
        cluster.bootstrap, "t", 2, {"retention.ms": "123456789012345", "segment.bytes": "1048576"}
    )
    create(cluster.bootstrap, "sequenced")
    create(cluster.bootstrap, "deleted")
    admin.delete_topics(["deleted"])["deleted"].result(DEADLINE_S)
    write(cluster, "t", 2)
    below = TopicPartition("t", 1, DELETED)
    assert admin.delete_records([below])[below].result(DEADLINE_S).low_watermark == DELETED
    with WireClient("127.0.0.1", cluster.ports[0]) as client:
        producer = SequencedProducer(client)
        offsets = [producer.send(client, "sequenced", at).base_offset for at in range(3)]
    assert offsets == [0, 1, 2]
    before = (topics(admin), settings_of(admin, "t"), read(cluster, "t", 2))
    assert before[0] == {"t": 2, "sequenced": 1}
    assert before[1]["retention.ms"] == "123456789012345"
    assert before[2][1][:2] == [DELETED, RECORDS]

    assert cluster.stop() == {}
    assert wait_until(lambda: not cluster.actors(), "the end of all actors")
    cluster.start()

    create(cluster.bootstrap, "later")
    admin.delete_topics(["later"])["later"].result(DEADLINE_S)  # a client that lived through it
    assert (topics(admin), settings_of(admin, "t"), read(cluster, "t", 2)) == before
    with WireClient("127.0.0.1", cluster.ports[0]) as client:
        again = producer.send(client, "sequenced", 2)
        assert (again.error_code, again.base_offset) == (0, 2), "a retry is told where it was"
        assert producer.send(client, "sequenced", 3).base_offset == 3
        gap = producer.send(client, "sequenced", 7)
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        another = SequencedProducer(client)
        assert another.send(client, "sequenced", 0).base_offset == 4
    assert [r[2] for r in read(cluster, "sequenced", 1)[0][2:]] == [  # type: ignore[index]
        b"s0",
        b"s1",
        b"s2",
        b"s3",
        b"s0",
    ]


@pytest.fixture
def raylog(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Runs the command line on data of this test; at the end nothing of it runs any more."""
    data = tmp_path / "d"

    def run(command: str, *options: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "raylog.cli", command, "--data", str(data), *options],
            capture_output=True,
            text=True,
            timeout=2 * UP_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run
    if running_nodes(data / "run"):
        run("down")


def kill_everything(run: Path) -> None:
    """End Ray and all that runs on it by SIGKILL."""
    processes = [process for node in running_nodes(run) for process in node.processes]
    processes += descendants(processes)
    living = [process for process in processes if is_running(process)]
    assert len(living) > 5, "Ray, controller, broker, gateway, replicas"
    for process in living:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, living)), "the end of all processes")


@pytest.mark.ray
def test_acknowledged_records_survive_killing_everything_at_once(
    raylog: Callable[..., str], tmp_path: Path
) -> None:
    """Clients that live through it find all that was acknowledged, once and in order."""
    bootstrap = raylog("up", "--detach", "--port", "0").split()[0]
    create(bootstrap, "t", 2)
    with Reader(bootstrap, "t", 2) as reader, Writer(bootstrap, "t", 2) as writer:
        writer.until_acknowledged(SOME)
        kill_everything(tmp_path / "d" / "run")
        assert raylog("up", "--detach", "--port", "0").split()[0] == bootstrap
        writer.until_acknowledged(SOME)
        writer.finish()
        assert_nothing_lost(writer, reader)

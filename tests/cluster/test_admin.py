"""Admin requests over real sockets to an embedded cluster: answered changes take effect at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from raylog.testing import EmbeddedBroker
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raylog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raylog.wire.messages.delete_topics import DeleteTopicsRequest
from raylog.wire.messages.describe_cluster import DescribeClusterRequest
from raylog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.records import Record, decode_batch, encode_batch
from tests.support.wire_client import WireClient

EARLIEST, LATEST = -2, -1


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    """Three brokers with ids 0 to 2."""
    with EmbeddedBroker(brokers=3) as running:
        yield running


def connect(cluster: EmbeddedBroker, broker: int = 0) -> WireClient:
    host, _, port = cluster.bootstrap_servers[broker].rpartition(":")
    return WireClient(host, int(port))


@pytest.fixture
def client(cluster: EmbeddedBroker) -> Iterator[WireClient]:
    """A connection to broker 0."""
    with connect(cluster) as connected:
        yield connected


def create(client: WireClient, name: str, partitions: int = 1, **settings: str) -> ErrorCode:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ],
    )
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    return ErrorCode(answer.topics[0].error_code)


def metadata(client: WireClient, *names: str, **more: Any) -> dict[str, Any]:
    """Topics by name."""
    topics = [MetadataRequestTopic(name=name) for name in names]
    answer = client.ask(MetadataRequest(topics=topics, **more), 13)
    return {topic.name: topic for topic in answer.topics}


def leaders(client: WireClient, topic: str) -> list[int]:
    """The leader of each partition."""
    described = metadata(client, topic, allow_auto_topic_creation=False)[topic]
    return [part.leader_id for part in described.partitions]


def write(client: WireClient, topic: str, partition: int, *values: bytes) -> tuple[ErrorCode, int]:
    """Write one batch; (error, base offset)."""
    batch = encode_batch([Record(n, 1000, None, value, []) for n, value in enumerate(values)])
    data = [PartitionProduceData(index=partition, records=batch)]
    answer = client.ask(
        ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        ),
        12,
    )
    (found,) = answer.responses[0].partition_responses
    return ErrorCode(found.error_code), found.base_offset


def read(client: WireClient, topic: str, partition: int, offset: int = 0) -> list[bytes | None]:
    """The values of the batch at an offset."""
    asked = [FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)]
    answer = client.ask(
        FetchRequest(
            max_wait_ms=1000, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=asked)]
        ),
        12,
    )
    (found,) = answer.responses[0].partitions
    assert found.error_code == 0
    return [record.value for record in decode_batch(found.records)]


def offset_at(client: WireClient, topic: str, timestamp: int) -> int:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    answer = client.ask(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)]),
        9,
    )
    offset = answer.topics[0].partitions[0].offset
    assert isinstance(offset, int)
    return offset


def test_a_topic_is_served_when_its_creation_is_answered(
    cluster: EmbeddedBroker, client: WireClient
) -> None:
    for number in range(5):
        name = f"made-{number}"
        assert create(client, name, 3) is ErrorCode.NONE
        mine = leaders(client, name).index(0)
        assert write(client, name, mine, b"x") == (ErrorCode.NONE, 0)
        assert read(client, name, mine) == [b"x"]


def test_partitions_are_led_by_all_brokers_and_served_by_their_leader_only(
    cluster: EmbeddedBroker, client: WireClient
) -> None:
    assert create(client, "spread", 6) is ErrorCode.NONE
    led = leaders(client, "spread")
    assert sorted(led) == [0, 0, 1, 1, 2, 2]
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(cluster, broker)) for broker in range(3)]
        for broker, connected in enumerate(clients):
            await_metadata(connected, "spread")
            for partition, leader in enumerate(led):
                error, _ = write(connected, "spread", partition, b"v")
                expected = ErrorCode.NONE if leader == broker else ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert error is expected, f"partition {partition} of {leader} at {broker}"


def await_metadata(client: WireClient, topic: str) -> None:
    """Wait until a broker other than the one that was asked to create a topic knows it.

    A request for a topic that is being created waits for it itself.
    """
    assert metadata(client, topic)[topic].error_code == 0


def test_every_broker_tells_the_addresses_of_all(cluster: EmbeddedBroker) -> None:
    addresses = []
    for broker in range(3):
        with connect(cluster, broker) as client:
            answer = client.ask(DescribeClusterRequest(), 1)
            assert answer.controller_id == broker
            addresses.append([f"{one.host}:{one.port}" for one in answer.brokers])
    assert addresses == [cluster.bootstrap_servers] * 3


def asked_until_made(client: WireClient, name: str) -> Any:
    """A topic that Metadata has made on the way: unknown at first, as in Apache Kafka."""
    deadline_s = time.monotonic() + 20
    while (topic := metadata(client, name)[name]).error_code:
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert time.monotonic() < deadline_s, f"{name} is not made"
    return topic


def test_a_topic_that_metadata_makes_can_be_written_soon(client: WireClient) -> None:
    topic = asked_until_made(client, "by-itself")
    deadline_s = time.monotonic() + 20
    for part in topic.partitions:
        if part.leader_id == 0:
            while (answer := write(client, "by-itself", part.partition_index, b"x"))[0]:
                assert answer == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), "it is being opened"
                assert time.monotonic() < deadline_s
            assert answer == (ErrorCode.NONE, 0)


def test_a_topic_created_by_several_at_once_is_created_once(cluster: EmbeddedBroker) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="contended")])
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(cluster, n % 3)) for n in range(6)]
        sent = [(client, client.send(request, 13)) for client in clients]
        for client, asked in sent:
            client.receive(*asked)
        ids = {asked_until_made(client, "contended").topic_id for client in clients}
    assert len(ids) == 1


def test_more_partitions_are_served_when_that_is_answered(client: WireClient) -> None:
    assert create(client, "growing", 1) is ErrorCode.NONE
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="growing", count=9, assignments=None)],
        timeout_ms=30_000,
    )
    assert client.ask(request, 3).results[0].error_code == 0
    led = leaders(client, "growing")
    assert len(led) == 9
    for partition, leader in enumerate(led):
        if leader == 0:
            assert write(client, "growing", partition, b"x") == (ErrorCode.NONE, 0)


def test_a_deleted_topic_is_gone_and_comes_back_empty(client: WireClient) -> None:
    assert create(client, "brief", 3) is ErrorCode.NONE
    mine = leaders(client, "brief").index(0)
    assert write(client, "brief", mine, b"old") == (ErrorCode.NONE, 0)
    request = DeleteTopicsRequest(topic_names=["brief"], timeout_ms=30_000)
    assert client.ask(request, 5).responses[0].error_code == 0
    known = metadata(client, "brief", allow_auto_topic_creation=False)
    assert known["brief"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert create(client, "brief", 3) is ErrorCode.NONE
    mine = leaders(client, "brief").index(0)
    assert write(client, "brief", mine, b"new") == (ErrorCode.NONE, 0)
    assert read(client, "brief", mine) == [b"new"]


def test_producer_ids_of_all_brokers_differ(cluster: EmbeddedBroker) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    given = []
    for broker in range(3):
        with connect(cluster, broker) as client:
            given += [client.ask(request, 5).producer_id for _ in range(20)]
    assert len(set(given)) == 60
    assert min(given) >= 0


def test_deleted_records_stay_deleted_over_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker, connect(broker) as client:
        assert create(client, "short") is ErrorCode.NONE
        for value in (b"a", b"b", b"c"):
            write(client, "short", 0, value)
        asked = [DeleteRecordsPartition(partition_index=0, offset=2)]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="short", partitions=asked)], timeout_ms=10_000
        )
        (result,) = client.ask(request, 2).topics[0].partitions
        assert (result.error_code, result.low_watermark) == (0, 2)
    with EmbeddedBroker(data=tmp_path) as broker, connect(broker) as client:
        assert (offset_at(client, "short", EARLIEST), offset_at(client, "short", LATEST)) == (2, 3)
        assert read(client, "short", 0, 2) == [b"c"]


def test_records_of_a_compacted_topic_are_not_deleted(client: WireClient) -> None:
    assert create(client, "compacted", 3, cleanup_policy="compact") is ErrorCode.NONE
    mine = leaders(client, "compacted").index(0)
    asked = [DeleteRecordsPartition(partition_index=mine, offset=0)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="compacted", partitions=asked)], timeout_ms=10_000
    )
    (result,) = client.ask(request, 2).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (ErrorCode.POLICY_VIOLATION, -1)


@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, ErrorCode.NONE), (1, ErrorCode.OFFSET_OUT_OF_RANGE)]
)
def test_a_fetch_after_an_epoch_that_the_log_does_not_know(
    client: WireClient, epoch: int, expected: ErrorCode
) -> None:
    name = f"epoch-{epoch}"
    assert create(client, name, 3) is ErrorCode.NONE
    mine = leaders(client, name).index(0)
    write(client, name, mine, b"x")
    asked = [
        FetchPartition(
            partition=mine, fetch_offset=1, last_fetched_epoch=epoch, partition_max_bytes=1000
        )
    ]
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=name, partitions=asked)])
    (found,) = client.ask(request, 12).responses[0].partitions
    assert found.error_code == expected


def test_log_directories_tell_the_sizes_of_partitions(client: WireClient) -> None:
    assert create(client, "sized", 3) is ErrorCode.NONE
    mine = leaders(client, "sized").index(0)
    write(client, "sized", mine, bytes(1000))
    topics = [DescribableLogDirTopic(topic="sized", partitions=[0, 1, 2])]
    (directory,) = client.ask(DescribeLogDirsRequest(topics=topics), 4).results
    (topic,) = directory.topics
    assert [part.partition_index for part in topic.partitions] == [mine]
    assert topic.partitions[0].partition_size > 1000
    assert 0 < directory.usable_bytes <= directory.total_bytes


def test_a_thousand_partitions(client: WireClient) -> None:
    assert create(client, "wide", 1000) is ErrorCode.NONE
    led = leaders(client, "wide")
    assert {leader: led.count(leader) >= 333 for leader in range(3)} == {0: True, 1: True, 2: True}
    mine = [partition for partition, leader in enumerate(led) if leader == 0]
    assert write(client, "wide", mine[-1], b"x") == (ErrorCode.NONE, 0)
    asked = [ListOffsetsPartition(partition_index=n, timestamp=LATEST) for n in mine]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="wide", partitions=asked)]
    )
    found = client.ask(request, 9).topics[0].partitions
    assert all(part.error_code == 0 for part in found)
    assert sum(part.offset for part in found) == 1

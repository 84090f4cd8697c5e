"""Both clients over real sockets on an embedded broker: every operation once."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from raylog.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AsyncClient,
    BlockingClient,
    Codec,
    ConfigSource,
    ConnectionLost,
    ConsumerSettings,
    DeliveryFailed,
    NewTopic,
    NotConnected,
    NotKafka,
    ProducerSettings,
    Record,
    Resource,
    ResourceType,
    TopicPartition,
)
from raylog.client.admin.topics import HIGH_WATERMARK
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidPartitions,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from tests.worlds.decorators import in_loop

names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(brokers=2, first_broker_id=1) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(client: BlockingClient) -> str:
    name = next(names)
    client.create_topics([NewTopic(name, partitions=3)])
    return name


def read(client: BlockingClient, *keys: TopicPartition, count: int) -> list[Record]:
    consumer = client.consumer()
    consumer.assign(dict.fromkeys(keys, EARLIEST))
    records: list[Record] = []
    for _ in range(50):
        records += (record for group in consumer.poll(200) for record in group.records)
        if len(records) >= count:
            break
    consumer.close()
    return records


def becomes(value: Callable[[], object], expected: object) -> bool:
    """Whether a value that brokers learn of a little later comes to be so."""
    return any(value() == expected for _ in range(500))


def test_topics_are_created_described_grown_and_deleted(client: BlockingClient) -> None:
    name = next(names)
    client.create_topics([NewTopic(name, assignments={0: [2], 1: [1]})], validate_only=True)
    assert name not in client.metadata().topics
    client.create_topics([NewTopic(name, assignments={0: [2], 1: [1]})])
    view = client.describe_topic(name)
    assert {index: at.leader for index, at in view.partitions.items()} == {0: 2, 1: 1}
    with pytest.raises(TopicAlreadyExists, match=name):
        client.create_topics([NewTopic(name)])
    with pytest.raises(InvalidPartitions):
        client.create_partitions(name, 1)
    client.create_partitions(name, 4)
    assert len(client.describe_topic(name).partitions) == 4
    client.delete_topics([name])
    with pytest.raises(UnknownTopicOrPartition, match=name):
        client.describe_topic(name)


def test_configs_are_set_and_unset(client: BlockingClient, topic: str) -> None:
    resource = Resource(ResourceType.TOPIC, topic)

    def value() -> tuple[str | None, ConfigSource]:
        (entry,) = [e for e in client.describe_configs(resource) if e.name == "retention.ms"]
        return entry.value, entry.source

    assert value() == ("604800000", ConfigSource.DEFAULT)
    client.alter_configs(resource, {"retention.ms": "1000"})
    assert becomes(value, ("1000", ConfigSource.TOPIC))
    client.alter_configs(resource, {"retention.ms": None})
    assert becomes(value, ("604800000", ConfigSource.DEFAULT))
    with pytest.raises(InvalidConfig):
        client.alter_configs(resource, {"retention.ms": "soon"})
    broker = client.describe_configs(Resource(ResourceType.BROKER, "2"), documentation=True)
    assert all(entry.documentation for entry in broker)
    with pytest.raises(BrokerIdNotRegistered, match="the live brokers 1, 2, found '7'"):
        client.describe_configs(Resource(ResourceType.BROKER, "7"))


def test_the_cluster_and_its_log_directories(client: BlockingClient, topic: str) -> None:
    described = client.describe_cluster()
    assert [broker.broker_id for broker in described.brokers] == [1, 2]
    with client.producer() as producer:
        producer.send(topic, b"x" * 1000, partition=0)
    directories = client.describe_log_dirs()
    assert {directory.broker_id for directory in directories} == {1, 2}
    sizes = {
        at.partition: at.size_bytes
        for directory in directories
        for at in directory.partitions
        if at.topic == topic
    }
    assert sizes[0] > 1000
    assert sizes[1] == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back_as_they_were(client: BlockingClient, topic: str, codec: Codec) -> None:
    key = TopicPartition(topic, 1)
    sent = [
        Record(0, 1_000, b"key", b"value", [("h", b"1"), ("h", None), ("é", b"")]),
        Record(1, 2_000, None, None, ()),
        Record(2, 1_500, b"", b"", ()),
        Record(3, 3_000, b"k" * 1000, bytes(range(256)) * 100, ()),
    ]
    with client.producer(ProducerSettings(codec=codec)) as producer:
        for record in sent:
            producer.send(topic, record.value, record.key, record.headers, record.timestamp, 1)
    assert read(client, key, count=4) == sent
    timestamps = {EARLIEST: 0, LATEST: 4, MAX_TIMESTAMP: 3, 1_200: 1, 5_000: -1}
    for timestamp, offset in timestamps.items():
        assert client.list_offsets({key: timestamp})[key].offset == offset


def test_records_below_an_offset_are_deleted(client: BlockingClient, topic: str) -> None:
    key = TopicPartition(topic, 0)
    with client.producer() as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    assert client.delete_records({key: 4}) == {key: 4}
    consumer = client.consumer(ConsumerSettings(reset="none"))
    consumer.assign({key: 3})
    with pytest.raises(OffsetOutOfRange):
        consumer.poll(2_000)
    consumer.seek(key, 4)
    assert consumer.poll(2_000)[0].records[0].value == b"4"
    assert client.delete_records({key: HIGH_WATERMARK}) == {key: 10}
    with pytest.raises(OffsetOutOfRange):
        client.delete_records({key: 99})


def test_keyed_records_keep_their_order(client: BlockingClient, topic: str) -> None:
    with client.producer(ProducerSettings(batch_bytes=2_000)) as producer:
        for number in range(1_000):
            producer.send(topic, b"%d" % number, b"k%d" % (number % 7))
        producer.flush()
        assert producer.delivered_count == 1_000
    records = read(client, *(TopicPartition(topic, index) for index in range(3)), count=1_000)
    assert sorted(int(record.value or b"") for record in records) == list(range(1_000))
    for key in {record.key for record in records}:
        numbers = [int(record.value or b"") for record in records if record.key == key]
        assert numbers == sorted(numbers)


def test_a_refused_record_fails_alone(client: BlockingClient, topic: str) -> None:
    producer = client.producer()
    producer.send(topic, b"x" * 2_000_000, partition=0)
    with pytest.raises(DeliveryFailed, match=r"1 records .* MESSAGE_TOO_LARGE"):
        producer.flush()
    producer.send(topic, b"small", partition=0)
    producer.flush()
    assert [record.value for record in read(client, TopicPartition(topic, 0), count=1)] == [
        b"small"
    ]


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acks(client: BlockingClient, topic: str, acks: int) -> None:
    with client.producer(ProducerSettings(acks=acks, idempotent=False)) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=2)
        if acks == 0:
            producer.flush()
            assert len(read(client, TopicPartition(topic, 2), count=100)) == 100
    assert len(read(client, TopicPartition(topic, 2), count=100)) == 100


def test_topics_are_made_on_first_use(client: BlockingClient) -> None:
    name = next(names)
    with client.producer() as producer:
        producer.send(name, b"first")
    assert read(client, TopicPartition(name, 0), count=1)[0].value == b"first"


def test_unused_address_and_another_server_are_reported() -> None:
    with (
        BlockingClient("127.0.0.1:1") as client,
        pytest.raises(NotConnected, match=r"127\.0\.0\.1:1"),
    ):
        client.metadata()
    with (
        serve(lambda data: b"HTTP/1.1 400 Bad Request\r\n\r\n") as port,
        BlockingClient(f"127.0.0.1:{port}") as client,
        pytest.raises((NotKafka, NotConnected), match="Kafka listener"),
    ):
        client.metadata()
    with (
        serve(lambda data: b"") as port,
        BlockingClient(f"127.0.0.1:{port}") as client,
        pytest.raises((ConnectionLost, NotConnected), match="ended the connection"),
    ):
        client.describe_cluster()


class serve:  # noqa: N801 - used as a function
    """A server of one connection that answers the first bytes and closes."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        import socket

        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            connection.sendall(self.answer(connection.recv(1000)))

    def __enter__(self) -> int:
        self.thread.start()
        port: int = self.listener.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self.thread.join(60)
        self.listener.close()


@in_loop
async def test_the_asyncio_client_does_the_same(bootstrap: str) -> None:
    name = next(names)
    async with AsyncClient(bootstrap) as client:
        await client.create_topics([NewTopic(name, partitions=2)])
        async with client.producer(ProducerSettings(batch_bytes=500)) as producer:
            for number in range(300):
                await producer.send(name, b"%d" % number)
            await producer.flush()
            assert producer.delivered_count == 300
        consumer = client.consumer()
        consumer.assign({TopicPartition(name, index): EARLIEST for index in range(2)})
        numbers: list[int] = []
        while len(numbers) < 300:
            for group in await consumer.poll():
                numbers += (int(record.value or b"") for record in group.records)
        assert sorted(numbers) == list(range(300))
        await consumer.seek_to_timestamp([TopicPartition(name, 0)], 1)
        assert await consumer.position(TopicPartition(name, 0)) == 0
        await consumer.close()


@in_loop
async def test_an_asyncio_producer_sends_what_lingered_without_a_flush(bootstrap: str) -> None:
    name = next(names)
    async with AsyncClient(bootstrap) as client:
        producer = client.producer(ProducerSettings(linger_ms=20))

        async def send(task: int) -> None:
            for number in range(20):
                await producer.send(name, b"%d-%d" % (task, number))

        await asyncio.gather(*(send(task) for task in range(10)))
        for _ in range(200):
            if producer.delivered_count == 200:
                break
            await asyncio.sleep(0.01)
        assert producer.delivered_count == 200
        await producer.send(name, b"x" * 2_000_000)
        with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE"):
            await producer.flush()
        await producer.close()


@in_loop
async def test_an_asyncio_client_without_a_broker_says_so() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(NotConnected, match=r"127\.0\.0\.1:1"):
            await client.describe_cluster()

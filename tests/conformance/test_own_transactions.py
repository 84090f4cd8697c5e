"""Transactions of our own clients, in both versions, on Raylog and on Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from raylog.client import (
    EARLIEST,
    AbortRequired,
    AsyncClient,
    BlockingClient,
    BlockingProducer,
    ConsumerSettings,
    GroupMetadata,
    NewTopic,
    ProducerSettings,
    ProducerUnusable,
    TopicPartition,
)
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import BlockingIo
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import ErrorCode, InvalidProducerEpoch, MessageTooLarge, ProducerFenced
from raylog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.conformance.conftest import OF_KAFKA

pytestmark = pytest.mark.timeout(300)  # an Apache Kafka starts within the first test's time

FEATURE = "transaction.version"
UPGRADE, DOWNGRADE = 1, 2
READ_COMMITTED = ConsumerSettings(read_committed=True, group_id="readers", max_wait_ms=50)
READ_ALL = ConsumerSettings(max_wait_ms=50)


def level(bootstrap: str) -> int:
    """The version of transactions that a client finds when it connects."""
    core = Core(BlockingIo(), ClientSettings(parse_bootstrap(bootstrap)))
    run_blocking(core.refresh([]))
    found = core.feature_level(FEATURE)
    core.close()
    return found


def set_level(bootstrap: str, wanted: int) -> None:
    """Change it, as Kafka's kafka-features.sh does, and wait until a client finds it."""
    found = level(bootstrap)
    if found == wanted:
        return
    kind = UPGRADE if wanted > found else DOWNGRADE
    update = FeatureUpdateKey(feature=FEATURE, max_version_level=wanted, upgrade_type=kind)
    core = Core(BlockingIo(), ClientSettings(parse_bootstrap(bootstrap)))
    request = UpdateFeaturesRequest(feature_updates=[update])
    answer = run_blocking(core.ask_controller(request, UpdateFeaturesResponse))
    core.close()
    assert answer.error_code == ErrorCode.NONE, answer
    assert any(level(bootstrap) == wanted for _ in range(1_000))


@pytest.fixture(
    params=[
        ("raylog", 2),
        ("raylog", 1),
        pytest.param(("kafka", 2), marks=OF_KAFKA),
        pytest.param(("kafka", 1), marks=OF_KAFKA),
    ],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def bootstrap(request: pytest.FixtureRequest, own_clusters: Callable[[str], str]) -> str:
    """A cluster with transactions of one version or the other."""
    kind, version = request.param
    address = own_clusters(kind)
    set_level(address, version)
    return address


@pytest.fixture
def client(bootstrap: str) -> Iterator[BlockingClient]:
    with BlockingClient(bootstrap) as client:
        yield client


@pytest.fixture
def made(client: BlockingClient, topic: str) -> str:
    """A topic of two partitions."""
    client.create_topics([NewTopic(topic, 2, 1)])
    return topic


def producer_of(client: BlockingClient, transactional_id: str) -> BlockingProducer[bytes, bytes]:
    producer = client.producer(ProducerSettings(transactional_id=transactional_id))
    producer.init_transactions()
    return producer


def read(client: BlockingClient, topic: str, count: int, settings: ConsumerSettings) -> list[bytes]:
    """The first `count` records, and whatever comes with them, in order."""
    consumer = client.consumer(settings)
    consumer.assign({TopicPartition(topic, partition): EARLIEST for partition in (0, 1)})
    found: list[bytes] = []
    for _ in range(200):
        found += [record.value or b"" for group in consumer.poll(100) for record in group.records]
        if len(found) >= count:
            break
    consumer.close()
    return sorted(found)


def is_settled(client: BlockingClient, group: str, topic: str, offset: int) -> bool:
    """Whether a group's offset comes to be so; markers may still be on their way."""
    key = TopicPartition(topic, 0)
    for _ in range(500):
        found = client.group_offsets(group, [key], require_stable=True)
        if key in found and found[key].offset == offset:
            return True
    return False


def test_records_and_offsets_count_together_or_not_at_all(
    client: BlockingClient, made: str
) -> None:
    group = GroupMetadata(f"{made}-group")
    producer = producer_of(client, f"{made}-id")
    for round_, word in enumerate(["kept", "lost", "kept"]):
        producer.begin_transaction()
        for number in range(4):
            producer.send(made, b"%s %d %d" % (word.encode(), round_, number), partition=number % 2)
        producer.send_offsets_to_transaction({TopicPartition(made, 0): 10 + round_}, group)
        producer.flush()
        if word == "kept":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        assert is_settled(client, group.group_id, made, 10 if round_ < 2 else 12)
    kept = [b"kept %d %d" % (round_, number) for round_ in (0, 2) for number in range(4)]
    assert read(client, made, 8, READ_COMMITTED) == kept
    assert len(read(client, made, 12, READ_ALL)) == 12
    producer.close()


def test_the_asyncio_client_does_the_same(
    client: BlockingClient, made: str, bootstrap: str
) -> None:
    async def work() -> None:
        async with AsyncClient(bootstrap) as aio:
            settings = ProducerSettings(transactional_id=f"{made}-id", linger_ms=1)
            async with aio.producer(settings) as producer:
                await producer.init_transactions()
                for round_, word in enumerate(["kept", "lost", "kept"]):
                    producer.begin_transaction()
                    await asyncio.gather(
                        *(
                            producer.send(
                                made,
                                b"%s %d %03d" % (word.encode(), round_, number),
                                b"%d" % number,
                            )
                            for number in range(200)
                        )
                    )
                    await producer.send_offsets_to_transaction(
                        {TopicPartition(made, 0): round_}, GroupMetadata(f"{made}-group")
                    )
                    if word == "kept":
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()
                producer.begin_transaction()
                await producer.send(made, b"lost: left open")
                await producer.flush()
            described = await aio.describe_transaction(f"{made}-id")
            assert described.state in ("PrepareAbort", "CompleteAbort")

    asyncio.run(asyncio.wait_for(work(), 60))
    kept = [b"kept %d %03d" % (round_, number) for round_ in (0, 2) for number in range(200)]
    assert read(client, made, 400, READ_COMMITTED) == kept
    assert is_settled(client, f"{made}-group", made, 2)


def test_a_second_producer_fences_the_first(client: BlockingClient, made: str) -> None:
    """It ends the first's open transaction, under a higher epoch."""
    first = producer_of(client, f"{made}-id")
    first.begin_transaction()
    first.send(made, b"lost", partition=0)
    first.flush()
    second = producer_of(client, f"{made}-id")
    first.send(made, b"lost too", partition=0)
    with pytest.raises(AbortRequired) as broken:
        first.commit_transaction()
    assert isinstance(broken.value.__cause__, InvalidProducerEpoch)
    with pytest.raises(ProducerUnusable) as fenced:
        first.abort_transaction()
    assert isinstance(fenced.value.__cause__, ProducerFenced | InvalidProducerEpoch)
    second.begin_transaction()
    second.send(made, b"kept", partition=1)
    second.commit_transaction()
    assert read(client, made, 1, READ_COMMITTED) == [b"kept"]


def test_a_fenced_commit_commits_nothing(client: BlockingClient, made: str) -> None:
    first = producer_of(client, f"{made}-id")
    first.begin_transaction()
    first.send(made, b"lost", partition=0)
    first.flush()
    second = producer_of(client, f"{made}-id")
    with pytest.raises(ProducerUnusable):
        first.commit_transaction()
    second.begin_transaction()
    second.send(made, b"kept", partition=0)
    second.commit_transaction()
    assert read(client, made, 1, READ_COMMITTED) == [b"kept"]


def test_an_open_transaction_holds_committed_readers_back(
    client: BlockingClient, made: str
) -> None:
    producer = producer_of(client, f"{made}-id")
    producer.begin_transaction()
    producer.send(made, b"open", partition=0)
    producer.flush()
    with client.producer() as plain:
        plain.send(made, b"plain", partition=0)
    assert read(client, made, 2, READ_ALL) == [b"open", b"plain"]
    consumer = client.consumer(READ_COMMITTED)
    consumer.assign({TopicPartition(made, 0): EARLIEST})
    assert consumer.poll(200) == []
    producer.commit_transaction()
    assert read(client, made, 2, READ_COMMITTED) == [b"open", b"plain"]
    consumer.close()


def test_a_record_that_is_refused_leaves_the_abort_and_the_next_transaction(
    client: BlockingClient, made: str
) -> None:
    producer = producer_of(client, f"{made}-id")
    producer.begin_transaction()
    producer.send(made, b"lost", partition=0)
    producer.flush()
    producer.send(made, b"x" * 2_000_000, partition=0)
    with pytest.raises(AbortRequired) as broken:
        producer.commit_transaction()
    assert isinstance(broken.value.__cause__, MessageTooLarge)
    producer.abort_transaction()
    for number in range(2):
        producer.begin_transaction()
        producer.send(made, b"kept %d" % number, partition=0)
        producer.commit_transaction()
    assert read(client, made, 2, READ_COMMITTED) == [b"kept 0", b"kept 1"]


def test_offsets_of_one_who_is_no_member_break_the_transaction(
    client: BlockingClient, made: str
) -> None:
    producer = producer_of(client, f"{made}-id")
    producer.begin_transaction()
    stranger = GroupMetadata(f"{made}-group", generation_id=5, member_id="nobody")
    with pytest.raises(AbortRequired):
        producer.send_offsets_to_transaction({TopicPartition(made, 0): 7}, stranger)
    producer.abort_transaction()
    producer.begin_transaction()
    group = GroupMetadata(f"{made}-group")
    producer.send_offsets_to_transaction({TopicPartition(made, 0): 8}, group)
    producer.commit_transaction()
    assert is_settled(client, f"{made}-group", made, 8)


def test_consume_transform_produce_is_exactly_once(client: BlockingClient, topic: str) -> None:
    """Copiers die inside their transactions; each successor goes on where the last commit was."""
    source, target = f"{topic}-in", f"{topic}-out"
    client.create_topics([NewTopic(source, 2, 1), NewTopic(target, 2, 1)])
    keys = [TopicPartition(source, partition) for partition in (0, 1)]
    with client.producer() as writer:
        for number in range(100):
            writer.send(source, b"%02d" % number, partition=number % 2)
    settings = ConsumerSettings(read_committed=True, group_id=f"{topic}-copiers", max_wait_ms=50)
    copied = 0
    for life in range(20):
        producer = producer_of(client, f"{topic}-id")
        consumer = client.consumer(settings)
        starts = client.group_offsets(f"{topic}-copiers", keys, require_stable=True)
        consumer.assign({key: starts[key].offset if key in starts else EARLIEST for key in keys})
        copied = sum(offset.offset for offset in starts.values())
        if copied == 100:
            consumer.close()
            producer.close()
            break
        producer.begin_transaction()
        for got in consumer.poll(2_000, max_records=1):
            key = TopicPartition(got.topic, got.partition)
            records = got.records[:30]
            for record in records:
                producer.send(target, record.value, partition=got.partition)
            offsets = {key: records[-1].offset + 1}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.flush()
        if life % 3 != 1:  # else it dies
            producer.commit_transaction()
        consumer.close()
        producer.close()
    assert copied == 100
    assert read(client, target, 100, READ_COMMITTED) == [b"%02d" % n for n in range(100)]


# ---- Raylog alone --------------------------------------------------------------------------


def test_a_coordinator_and_leaders_may_go_within_a_transaction(topic: str) -> None:
    settings = {
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "3",
    }
    with (
        EmbeddedBroker(brokers=3, settings=settings) as broker,
        BlockingClient(broker.bootstrap) as client,
    ):
        client.create_topics([NewTopic(topic, 2, 3)])
        producer = producer_of(client, topic)
        kept = []
        for round_ in range(12):
            producer.begin_transaction()
            values = [b"%02d-%d" % (round_, number) for number in range(4)]
            for number, value in enumerate(values):
                producer.send(topic, value, partition=number % 2)
                producer.flush()
                if (round_, number) == (4, 1):
                    broker.stop_broker(client.describe_transaction(topic).coordinator)
            offsets = {TopicPartition(topic, 0): round_}
            producer.send_offsets_to_transaction(offsets, GroupMetadata(f"{topic}-group"))
            if round_ % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                kept += values
        assert read(client, topic, len(kept), READ_COMMITTED) == kept
        assert is_settled(client, f"{topic}-group", topic, 10)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_timed_out_cannot_be_committed(topic: str, version: int) -> None:
    """In version 2 its producer goes on after the abort (KIP-890), in version 1 it is fenced."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    with EmbeddedBroker(settings=settings) as broker, BlockingClient(broker.bootstrap) as client:
        set_level(broker.bootstrap, version)
        client.create_topics([NewTopic(topic, 2, 1)])
        for end, goes_on in (("commit", False), ("abort", version == 2)):
            timeout_ms = 2_000 if goes_on else 100  # within which the last one is committed
            producer = client.producer(
                ProducerSettings(transactional_id=topic, transaction_timeout_ms=timeout_ms)
            )
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"lost", partition=0)
            producer.flush()
            ended = (
                client.describe_transaction(topic).state == "CompleteAbort" for _ in range(20_000)
            )
            assert any(ended)
            if not goes_on:
                call = (
                    producer.commit_transaction if end == "commit" else producer.abort_transaction
                )
                with pytest.raises(ProducerUnusable):
                    call()
                continue
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send(topic, b"kept", partition=0)
            producer.commit_transaction()
            assert read(client, topic, 1, READ_COMMITTED) == [b"kept"]

"""Producers with brokers that do not answer, answer nonsense, or cannot be reached."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from raylog.client import (
    EARLIEST,
    Admin,
    AsyncProducer,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from raylog.client.connection import Connection
from raylog.client.errors import (
    AbortRequired,
    ClientError,
    ConnectionLost,
    DeliveryFailed,
    NotConnected,
    NotKafka,
)
from raylog.client.io import Io, run_blocking
from raylog.client.producer.accumulator import Accumulator
from raylog.client.settings import ProducerSettings
from raylog.client.sockets import BlockingIo
from raylog.client.streams import AsyncIo
from raylog.testing import EmbeddedBroker
from raylog.wire import frame
from raylog.wire.api import ApiKey
from raylog.wire.compression import Codec
from raylog.wire.errors import DecodeError, SaslAuthenticationFailed, UnknownTopicOrPartition
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.unit.client.test_accumulator import KEY as A
from tests.unit.client.test_producer import Rig, rig
from tests.unit.client.test_transactional import GROUP, KEY
from tests.unit.client.test_transactional import Rig as TransactionalRig
from tests.worlds.client.cluster import NOTHING
from tests.worlds.decorators import in_loop
from tests.worlds.servers.black_hole import BlackHole

B = A._replace(partition=A.partition + 1)


def disconnect(test: Rig, broker_id: int) -> None:
    """Its connection ends."""
    test.producer._core._channels[broker_id].end(ConnectionLost("gone"))


def refuse_connections(
    test: Rig, broker_id: int, error: Exception, after_ms: float = 0.0
) -> Callable[[], object]:
    """No connection to a broker can be made any more; returns what mends that."""
    io = test.producer._core.io
    connect = io.connect

    async def refused(
        host: str,
        port: int,
        connection: Connection,
        timeout_ms: float,
        tls: ssl.SSLContext | None = None,
    ) -> object:
        if port == 9000 + broker_id:
            await io.pause(after_ms)
            raise error
        return await connect(host, port, connection, timeout_ms, tls)

    io.connect = refused  # type: ignore[method-assign, assignment]  # a fake's own
    return lambda: setattr(io, "connect", connect)


def test_a_batch_that_fails_for_good_does_not_end_the_turn_of_other_brokers() -> None:
    """It leaves a gap in the sequences: the others leave under the next identity."""
    test = rig(ProducerSettings(delivery_timeout_ms=1_000), topics={"t": {0: 1, 1: 2}})
    test.send(1, 0)
    test.send(1, 1)
    test.flush()
    disconnect(test, 1)
    refuse_connections(test, 1, SaslAuthenticationFailed("who are you"))
    test.producer.append("t", b"a", partition=0)
    test.producer.append("t", b"b", partition=1)
    with pytest.raises(DeliveryFailed, match="who are you"):
        test.flush()
    assert test.logs.values == {("t", 0): [b"0"], ("t", 1): [b"0", b"b"]}


def test_a_login_that_is_refused_is_not_repeated_with_each_batch() -> None:
    test = rig(topics={"t": {0: 1}})
    test.send(1, 0)
    test.flush()
    attempts = []
    disconnect(test, 1)
    refuse_connections(test, 1, SaslAuthenticationFailed("who are you"))
    core = test.producer._core
    opened, core._open = core._open, lambda *a: attempts.append(a) or opened(*a)  # type: ignore[method-assign, func-returns-value]  # counts
    for _ in range(10):
        test.producer.append("t", b"a", partition=0)
        with pytest.raises(DeliveryFailed, match="who are you"):
            test.flush()
    assert len(attempts) == 1


def test_an_answer_that_cannot_be_decoded_fails_its_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decode = frame.decode_response

    def cut(api_key: ApiKey, version: int, answer: memoryview) -> object:
        if api_key is ApiKey.PRODUCE:
            raise DecodeError("cut off")
        return decode(api_key, version, answer)

    test = rig(topics={"t": {0: 1}})
    test.send(1, 0)
    test.flush()
    monkeypatch.setattr("raylog.client.connection.decode_response", cut)
    test.producer.append("t", b"a", partition=0)
    with pytest.raises(DeliveryFailed, match="cut off"):
        test.flush()
    assert isinstance(test.deliveries[-1].failure, NotKafka)
    assert test.producer.is_idle


@pytest.mark.parametrize("io", [AsyncIo, BlockingIo])
@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", 70_000),
        ("127.0.0.1", -1),
        ("kafka..svc", 9092),
        ("a" * 64, 9092),
        ("a\0b", 9092),
    ],
)
@in_loop
async def test_connecting_to_an_invalid_address_fails(
    io: Callable[[], Io], host: str, port: int
) -> None:
    """Metadata of a misconfigured broker brings such."""

    with pytest.raises(NotConnected):
        await io().connect(host, port, Connection("c"), 1_000)


def test_without_idempotence_one_request_in_flight_keeps_the_order_when_the_leader_moves() -> None:
    test = rig(
        ProducerSettings(in_flight_max=1, idempotent=False, acks=1), topics={"t": {0: 1, 1: 2}}
    )
    cluster = test.logs.cluster
    test.logs.refuse.append(lambda *_: NOTHING)
    test.send(1)
    cluster.topics["t"][0] = 2
    cluster.epochs["t"] = 1
    run_blocking(test.producer._core.refresh(["t"]))
    test.producer.append("t", b"second", partition=0)
    run_blocking(test.producer.step(everything=True))
    test.flush()
    assert test.logs.values[("t", 0)][-2:] == [b"0", b"second"]


def test_a_first_batch_that_its_old_leader_never_answers_is_written_first() -> None:
    """The new leader knew nothing of the producer and took the second batch, then not the first."""
    test = rig()
    cluster = test.logs.cluster
    test.logs.refuse.append(lambda *_: NOTHING)
    test.send(1)
    cluster.topics["t"][0] = 2
    cluster.epochs["t"] = 1
    run_blocking(test.producer._core.refresh(["t"]))
    test.producer.append("t", b"second", partition=0)
    run_blocking(test.producer.step(everything=True))
    test.flush()
    assert test.logs.values == {("t", 0): [b"0", b"second"]}


def test_failed_connections_do_not_use_up_retries() -> None:
    test = rig(ProducerSettings(retries=3), topics={"t": {0: 1}})
    test.send(1, 0)
    test.flush()
    disconnect(test, 1)
    mend = refuse_connections(test, 1, NotConnected("restarting"))
    io = test.producer._core.io
    test.producer.append("t", b"a", partition=0)
    until_ms = io.now_ms() + 2_000
    while io.now_ms() < until_ms:
        run_blocking(test.producer.step(everything=True))
        run_blocking(io.pause(10))
    mend()
    test.flush()
    assert test.logs.values == {("t", 0): [b"0", b"a"]}


@pytest.mark.parametrize("moves", [True, False])
def test_a_broker_is_not_avoided_once_nothing_waits_for_it(moves: bool) -> None:
    """partitioner.availability.timeout.ms: what waited has expired, or goes to another leader."""
    settings = ProducerSettings(partitioner_availability_timeout_ms=500, delivery_timeout_ms=5_000)
    test = rig(settings, topics={"t": {0: 1, 1: 2}})
    test.send(1, 0)
    test.send(1, 1)
    test.flush()
    disconnect(test, 1)
    refuse_connections(test, 1, NotConnected("gone"))
    io = test.producer._core.io
    test.producer.append("t", b"a", partition=0)
    until_ms = io.now_ms() + 1_000
    while io.now_ms() < until_ms:
        run_blocking(test.producer.step(everything=True))
        run_blocking(io.pause(20))
    assert test.producer._sender.avoided() == [1]
    if moves:
        test.logs.cluster.topics["t"][0] = 2
        test.flush()
    else:
        with pytest.raises(DeliveryFailed):
            test.flush()
    assert test.producer._sender.avoided() == []


def test_a_partition_without_a_leader_is_looked_up_less_and_less_often() -> None:
    test = rig(ProducerSettings(delivery_timeout_ms=120_000), topics={"t": {0: -1}})
    test.producer.append("t", b"a", partition=0)
    with pytest.raises(DeliveryFailed):
        test.flush()
    assert len(test.logs.cluster.requests(MetadataRequest)) < 200, "about one in a second"


def test_metadata_is_refreshed_by_age_while_records_are_sent() -> None:
    """`metadata.max.age.ms`: partitions that were added are found."""
    test = rig(topics={"t": {0: 1}})
    io = test.producer._core.io
    before = len(test.logs.cluster.requests(MetadataRequest))
    test.logs.cluster.topics["t"] = {0: 1, 1: 2, 2: 1}
    for _ in range(60):
        run_blocking(io.pause(60_000))
        test.producer.append("t", b"x")
        test.flush()
    refreshed = len(test.logs.cluster.requests(MetadataRequest)) - before
    assert refreshed == pytest.approx(60 / 6, abs=2), "every 5 minutes that something is sent"
    assert test.producer.partitions("t") == [0, 1, 2]


def test_topics_that_are_not_used_are_forgotten() -> None:
    """`metadata.max.idle.ms`; sequences go on where they were, as nothing fenced them."""
    topics = {f"t{number}": {0: 1, 1: 2} for number in range(50)}
    test = rig(ProducerSettings(metadata_max_idle_ms=5_000), topics=topics)
    core, accumulator = test.producer._core, test.producer._accumulator
    for topic in topics:
        test.send(1, 0, topic)
        test.producer.append(topic, b"somewhere")
    test.flush()
    for _ in range(20):
        run_blocking(core.io.pause(1_000))
        test.send(1, 0, "t7")
        test.flush()
    assert set(core.cluster.topics) == {"t7"}
    assert {key[0] for key in accumulator._queues} == {"t7"}
    kept = (test.producer._sticky, test.producer._turns._last, core._metadata_at_ms)
    assert [set(each) for each in kept] == [{"t7"}] * 3
    with pytest.raises(UnknownTopicOrPartition):
        test.producer.append("t3", b"again", partition=0)
    run_blocking(test.producer.prepare("t3"))
    test.send(2, 0, "t3")
    test.flush()
    assert test.logs.values["t3", 0][-2:] == [b"0", b"1"]
    assert {key[3] for key in test.logs.expected} == {0}, "no sequence was refused"


def test_a_topic_that_waits_for_its_leader_is_not_forgotten() -> None:
    settings = ProducerSettings(metadata_max_idle_ms=5_000, delivery_timeout_ms=60_000)
    test = rig(settings, topics={"t": {0: -1}})
    test.producer.append("t", b"a", partition=0)
    until_ms = test.producer._core.io.now_ms() + 20_000
    while test.producer._core.io.now_ms() < until_ms:
        run_blocking(test.producer.step(everything=True))
        run_blocking(test.producer._core.io.pause(500))
    test.logs.cluster.topics["t"][0] = 1
    test.flush()
    assert test.logs.values == {("t", 0): [b"a"]}


def test_acknowledged_batches_are_not_kept_until_another_partition_has_lingered() -> None:
    now = [0.0]
    accumulator = Accumulator(
        batch_bytes=100_000,
        record_bytes_max=1 << 20,
        buffer_bytes=32 << 20,
        idempotent=False,
        now_ms=lambda: now[0],
    )
    accumulator.open(A)
    accumulator.open(B)
    accumulator.append(A, (0, 0, None, b"x", ()))
    for _ in range(1_000):
        now[0] += 1
        for _ in range(2):
            accumulator.append(B, (0, 0, None, b"v" * 60_000, ()))
        for batch in accumulator.drain(accumulator.ready(now[0], 60_000), 1 << 20):
            batch.encode(Codec.NONE, None, is_transactional=False)
            accumulator.acknowledged(batch)
        accumulator.next_ready_ms(60_000)
    assert len(accumulator._schedule._lingering) < 100


def test_metadata_is_asked_of_brokers_that_are_in_it() -> None:
    """A bootstrap server that left the cluster would tell the same for ever."""
    test = rig(topics={"t": {0: 1, 1: 2}})
    test.send(1, 1)
    test.flush()
    core = test.producer._core
    assert set(core._channels) > {2}, "there is a connection to a bootstrap server"
    assert run_blocking(core.any_node()) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_cancelled_while_offsets_become_part_of_a_transaction_it_must_be_aborted(
    version: int,
) -> None:
    test = TransactionalRig(version).started()
    cancel_at(test, TxnOffsetCommitRequest)
    with pytest.raises(asyncio.CancelledError):
        run_blocking(test.producer.send_offsets_to_transaction({KEY: 5}, GROUP))
    with pytest.raises(AbortRequired, match="cancelled"):
        run_blocking(test.producer.commit_transaction())
    run_blocking(test.producer.abort_transaction())
    (end,) = test.cluster.requests(EndTxnRequest)
    assert isinstance(end, EndTxnRequest)
    assert not end.committed


def test_cancelled_while_a_group_is_added_the_transaction_gets_its_end() -> None:
    test = TransactionalRig(1).started()
    cancel_at(test, AddOffsetsToTxnRequest)
    with pytest.raises(asyncio.CancelledError):
        run_blocking(test.producer.send_offsets_to_transaction({KEY: 5}, GROUP))
    run_blocking(test.producer.abort_transaction())
    assert len(test.cluster.requests(EndTxnRequest)) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_whose_records_were_given_up_is_not_committed(version: int) -> None:
    """As by a sender whose task has failed."""
    test = TransactionalRig(version).started()
    test.send(b"lost")
    test.producer.give_up(ClientError("the sender has failed"))
    with pytest.raises(AbortRequired, match="the sender has failed"):
        run_blocking(test.producer.commit_transaction())
    run_blocking(test.producer.abort_transaction())


def cancel_at(test: TransactionalRig, kind: type[object]) -> None:
    """The caller is cancelled while it waits for the answer to such a request."""
    io = test.producer._core.io
    wait = io.wait

    async def cancelled(ready: Callable[[], bool], timeout_ms: float) -> bool:
        if test.cluster.seen and isinstance(test.cluster.seen[-1][1], kind):
            io.wait = wait  # type: ignore[method-assign]  # a fake's own
            raise asyncio.CancelledError
        return await wait(ready, timeout_ms)

    io.wait = cancelled  # type: ignore[method-assign]  # a fake's own


# -- at real brokers, one of which cannot be connected to -------------------------------------


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=2) as running:
        yield running


@pytest.fixture
def topic(brokers: EmbeddedBroker) -> str:
    name = f"t-{uuid4()}"
    with Admin(brokers.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


@in_loop
async def test_a_broker_that_does_not_answer_holds_up_its_own_partitions_only(
    brokers: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hole = BlackHole(monkeypatch)
    async with AsyncProducer(brokers.bootstrap) as producer:
        for partition in (0, 1):
            await producer.send_and_wait(topic, b"x", partition=partition)
        hole.swallow(producer._producer._core, TopicPartition(topic, 0))
        held = await producer.submit(topic, b"y", partition=0)
        for _ in range(3):
            await asyncio.wait_for(producer.send_and_wait(topic, b"y", partition=1), 30)
        assert not held.done()
        assert hole.waiting == 1
        hole.opened.set()
        await asyncio.wait_for(held, 30)


@in_loop
async def test_closing_ends_what_waits_for_a_connection(
    brokers: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hole = BlackHole(monkeypatch)
    producer = AsyncProducer(brokers.bootstrap)
    await producer.send_and_wait(topic, b"x", partition=0)
    hole.swallow(producer._producer._core, TopicPartition(topic, 0))
    held = await producer.submit(topic, b"y", partition=0)
    await producer.close(timeout_s=0)
    with pytest.raises(ClientError, match="closed"):
        await asyncio.wait_for(held, 30)
    alone = asyncio.all_tasks() - {asyncio.current_task()}
    assert not {task for task in alone if not task.cancelling()}, "no attempt goes on"


def test_flush_waits_for_what_was_sent_before_it(brokers: EmbeddedBroker, topic: str) -> None:
    """Others may go on sending meanwhile."""
    with Producer(brokers.bootstrap, linger_ms=0) as producer:
        before = producer.submit(topic, b"first", partition=0)
        sent = 0

        def again(*_: object) -> None:
            nonlocal sent
            sent += 1
            if sent < 10_000 and not flushed:
                producer.send(topic, b"next", partition=1, on_delivery=again)

        flushed = False
        producer.send(topic, b"next", partition=1, on_delivery=again)
        producer.flush(timeout_s=60)
        flushed = True
        assert before.done()
        assert sent < 10_000


def test_failures_of_earlier_records_are_raised_before_another_is_taken(
    brokers: EmbeddedBroker, topic: str
) -> None:
    """Whoever sends a record again because `send` raised must not double it."""
    with Producer(brokers.bootstrap, max_request_size=2_000_000) as producer:
        producer.send(topic, bytes(1_900_000), partition=0)
        while not producer.statistics().errors:
            producer.partitions_for(topic)
        producer.send(topic, b"due", partition=1, on_delivery=lambda metadata, failure: None)
        with pytest.raises(DeliveryFailed, match="1 records were not delivered"):
            producer.submit(topic, b"refused", partition=1)
        producer.send_and_wait(topic, b"taken", partition=1)
    with Consumer(brokers.bootstrap) as consumer:
        key = TopicPartition(topic, 1)
        consumer.assign({key: EARLIEST})
        found: list[bytes | None] = []
        while len(found) < 2:
            found += [record.value for record in consumer.poll_records()]
    assert found == [b"due", b"taken"]

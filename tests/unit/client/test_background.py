"""What happens between a blocking client's calls: its thread, and idle connections."""

import asyncio
import errno
import inspect
import os
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError

import pytest

from raylog.client import (
    EARLIEST,
    BlockingClient,
    ClientError,
    NewTopic,
    ProducerSettings,
    Resource,
    ResourceType,
    TopicPartition,
    background,
)
from raylog.client.background import BackgroundLoop
from raylog.client.io import run_blocking
from raylog.client.producer.accumulator import Batch
from raylog.client.producer.sender import Sender
from raylog.client.streams import AsyncIo
from raylog.testing import EmbeddedBroker
from tests.worlds.client.cluster import FakeCluster, core_of

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        with BlockingClient(broker.bootstrap) as client:
            client.create_topics([NewTopic("t", 4)])
        yield broker.bootstrap


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "raylog client"]


def test_records_leave_though_nobody_calls(client: BlockingClient) -> None:
    delivered = threading.Event()
    producer = client.producer(ProducerSettings(linger_ms=20), lambda _: delivered.set())
    for _ in range(3):  # idle in between, and asleep
        delivered.clear()
        producer.send("t", b"x")
        assert delivered.wait(PATIENCE_S)
    assert producer.delivered_count == 3
    producer.flush()


def test_a_record_does_not_wait_for_the_answer_to_another(
    client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that begins while another is unanswered leaves when it has lingered."""
    producer = client.producer(ProducerSettings(linger_ms=1))
    producer.send("t", b"x", partition=0)
    producer.flush()
    sent = threading.Semaphore(0)
    send = Sender._send

    async def counted(self: Sender, node_id: int, batches: list[Batch]) -> None:
        await send(self, node_id, batches)
        sent.release()

    with monkeypatch.context() as patched:
        patched.setattr(Sender, "_send", counted)
        patched.setattr(Sender, "_any_done", lambda _: False)  # no answer is ever seen
        patched.setattr(Sender, "_collect", lambda _: None)
        for partition in range(3):
            producer.send("t", b"x", partition=partition)
            assert sent.acquire(timeout=PATIENCE_S)
    producer.flush()
    assert producer.delivered_count == 4


def test_a_call_that_cannot_begin_leaves_no_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is never awaited is a warning, which is an error in tests."""

    def full() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "too many open files")

    async def work() -> None:
        raise AssertionError("it never begins")

    monkeypatch.setattr(background, "new_event_loop", full)
    coroutine = work()
    with pytest.raises(OSError, match="too many open files"):
        BackgroundLoop().call(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_several_threads_share_a_producer(client: BlockingClient) -> None:
    count = 4_000
    client.create_topics([NewTopic("shared", 2)])
    settings = ProducerSettings(linger_ms=0, batch_bytes=2_000, buffer_bytes=40_000)
    with client.producer(settings) as producer:

        def send(writer: int) -> None:
            for number in range(count):
                producer.send("shared", b"%d/%d" % (writer, number), partition=writer % 2)

        writers = [threading.Thread(target=send, args=(writer,)) for writer in range(4)]
        for one in writers:
            one.start()
        for one in writers:
            one.join()
        producer.flush()
        assert producer.delivered_count == 4 * count
    found = read_all(client, "shared", 2, 4 * count)
    assert sorted(found) == sorted(b"%d/%d" % (w, n) for w in range(4) for n in range(count))
    for writer in range(4):
        own = [one for one in found if one.startswith(b"%d/" % writer)]
        assert own == [b"%d/%d" % (writer, number) for number in range(count)]


def read_all(client: BlockingClient, topic: str, partitions: int, count: int) -> list[bytes]:
    consumer = client.consumer()
    consumer.assign({TopicPartition(topic, index): EARLIEST for index in range(partitions)})
    found: list[bytes] = []
    for _ in range(200):
        found += (record.value or b"" for group in consumer.poll(200) for record in group.records)
        if len(found) >= count:
            break
    consumer.close()
    return found


def test_a_client_without_producers_has_no_thread(bootstrap: str) -> None:
    before = len(threads())
    with BlockingClient(bootstrap) as client:
        client.describe_cluster()
        assert len(threads()) == before
        producer = client.producer()
        producer.send("t", b"x")
        client.producer().flush()
        assert len(threads()) == before + 1
        producer.flush()
    assert len(threads()) == before
    with pytest.raises(ClientError, match="closed"):
        producer.send("t", b"x")
    producer.close()


def test_a_client_that_is_dropped_takes_its_thread_along(bootstrap: str) -> None:
    before = len(threads())
    producer = BlockingClient(bootstrap).producer()
    producer.send("t", b"x")
    producer.flush()
    producer.close()
    assert len(threads()) == before + 1  # the producer still has the client's thread
    del producer
    assert len(threads()) == before


def test_a_child_process_is_told_that_the_producer_is_not_its_own(client: BlockingClient) -> None:
    producer = client.producer()
    producer.send("t", b"x", partition=0)
    producer.flush()
    child = os.fork()
    if child == 0:
        refusals = 0
        calls: list[Callable[[], None]] = [
            lambda: producer.send("t", b"y"),
            producer.flush,
            producer.abort_transaction,
        ]
        for call in calls:
            try:
                call()
            except ClientError as error:
                refusals += "after the fork" in str(error)
        producer.close()
        os._exit(refusals)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    producer.send("t", b"x", partition=0)
    producer.flush()
    assert producer.delivered_count == 2


def test_a_callback_cannot_wait_for_its_own_thread(client: BlockingClient) -> None:
    failures: list[Exception] = []

    def called(_: object) -> None:
        try:
            producer.flush()
        except ClientError as error:
            failures.append(error)

    producer = client.producer(on_delivery=called)
    producer.send("t", b"x")
    producer.flush()
    assert "on_delivery" in str(failures[0])


def test_a_call_that_is_under_way_ends_with_the_thread() -> None:
    background, io = BackgroundLoop(), AsyncIo()
    is_waiting = threading.Event()
    outcomes: list[CancelledError] = []

    async def wait_for_ever() -> None:
        is_waiting.set()
        await io.wait(lambda: False, float("inf"))

    def call() -> None:
        try:
            background.call(wait_for_ever())
        except CancelledError as error:
            outcomes.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    assert is_waiting.wait(PATIENCE_S)
    background.stop()
    caller.join(PATIENCE_S)
    assert len(outcomes) == 1


def test_calls_after_the_broker_has_ended_what_was_idle() -> None:
    """Also those that are not repeated once they were sent."""
    key = TopicPartition("t", 0)
    with (
        EmbeddedBroker(settings={"connections.max.idle.ms": "300"}) as broker,
        BlockingClient(broker.bootstrap) as client,
    ):
        client.create_topics([NewTopic("t")])
        producer = client.producer()
        producer.send("t", b"x", partition=0)
        producer.flush()
        consumer = client.consumer()
        consumer.assign({key: EARLIEST})
        assert sum(len(one.records) for one in consumer.poll(5_000)) == 1
        topic = Resource(ResourceType.TOPIC, "t")
        for call in (
            lambda: client.create_topics([NewTopic("after")]),
            lambda: client.delete_records({key: 1}),
            lambda: client.alter_configs(topic, {"retention.ms": "600000"}),
            lambda: client.elect_leaders([key]),
            lambda: client.describe_log_dirs([0]),
        ):
            sockets = list(client._opened[0][1]._selector.get_map())
            while sockets:  # until each has the broker's end in it
                ended = select.select(sockets, [], [], PATIENCE_S)[0]
                assert ended, "the broker ends no connection"
                sockets = [one for one in sockets if one not in ended]
            call()
        producer.send("t", b"y", partition=0)
        producer.flush()
        assert sum(len(one.records) for one in consumer.poll(5_000)) == 1


def test_a_connection_that_was_idle_for_long_is_made_anew() -> None:
    """Before the broker ends it, maybe just as it is used."""
    cluster = FakeCluster(1, {"t": {0: 1}})
    core = core_of(cluster)
    run_blocking(core.api_versions(-2))
    for idle_ms, connections in ((0, 1), (539_000, 1), (541_000, 2)):
        run_blocking(core.io.pause(idle_ms))
        run_blocking(core.api_versions(-2))
        assert cluster.connections == connections

"""Both kinds of consumers, with both group protocols, on a broker in this process."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import uuid4

import pytest

from raylog.client import (
    AbortRequired,
    AsyncConsumer,
    BlockingClient,
    CommittedOffset,
    Consumer,
    DeserializationFailed,
    InvalidSetting,
    NewTopic,
    NoOffset,
    Producer,
    RebalanceListener,
    TopicPartition,
    WokenUp,
    WrongState,
)
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.group.events import Divide
from raylog.client.consumer.group.shell import GroupShell
from raylog.client.errors import ConnectionLost
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import ErrorCode, OffsetMetadataTooLarge
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.metadata import MetadataRequest, MetadataResponse
from raylog.wire.messages.sync_group import SyncGroupRequest
from tests.support.wire_client import WireClient

PROTOCOLS = ("classic", "consumer")
PATIENCE_S = 30.0
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
JOIN_VERSION, SYNC_VERSION = 3, 2
"""Without a member id that is asked for again."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=2, settings=QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[BlockingClient]:
    with BlockingClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic(admin: BlockingClient) -> str:
    """A topic of three partitions with a hundred records in each: their offsets as text."""
    name = f"t-{uuid4()}"
    admin.create_topics([NewTopic(name, 3)])
    write(admin, name, range(100))
    return name


def write(admin: BlockingClient, topic: str, offsets: Sequence[int]) -> None:
    producer = admin.producer()
    for partition in range(3):
        for offset in offsets:
            producer.send(topic, b"%d" % offset, partition=partition)
    producer.flush()


def settings(bootstrap: str, protocol: str, group: str, **more: object) -> dict[str, object]:
    quick: dict[str, object] = {} if protocol == "consumer" else {"heartbeat_interval_ms": 100}
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        **quick,
        **more,
    }


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE_S))


async def until(condition: Callable[[], bool], *consumers: AsyncConsumer[Any, Any]) -> list[Any]:
    """Poll consumers in turn until something is true; the records."""
    found: list[Any] = []
    while not condition():
        for consumer in consumers:
            found += await consumer.poll_records(20)
    return found


async def read(count: int, *consumers: AsyncConsumer[Any, Any]) -> list[Any]:
    """Poll consumers in turn until so many records came."""
    found: list[Any] = []
    while len(found) < count:
        for consumer in consumers:
            found += await consumer.poll_records(20)
    return found


class Book(RebalanceListener):
    """Records the calls it gets."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", len(partitions)))

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", len(partitions)))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", len(partitions)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_reads_all_and_the_next_goes_on_where_it_committed(
    broker: EmbeddedBroker, admin: BlockingClient, topic: str, protocol: str
) -> None:
    """ "committed value = last processed + 1"; "a last sync commit on close"."""
    group = f"g-{topic}"

    async def test() -> None:
        book = Book()
        first = AsyncConsumer(settings(broker.bootstrap, protocol, group))
        async with first:
            first.subscribe([topic], book)
            records = await read(300, first)
            assert sorted(int(record.value) for record in records) == sorted([*range(100)] * 3)
        assert book.calls == [("assigned", 3), ("revoked", 3)]
        write(admin, topic, [100])
        async with AsyncConsumer(settings(broker.bootstrap, protocol, group)) as second:
            second.subscribe([topic])
            assert {record.value for record in await read(3, second)} == {b"100"}
            keys = second.assignment()
            found = await second.committed(keys)
            assert {one.offset for one in found.values()} == {100}

    run(test())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_and_who_stays_takes_over(
    broker: EmbeddedBroker, topic: str, protocol: str
) -> None:
    """ "all consumers in one group = a queue, each record to one of them"."""

    async def test() -> None:
        one = AsyncConsumer(settings(broker.bootstrap, protocol, f"g-{topic}"))
        two = AsyncConsumer(settings(broker.bootstrap, protocol, f"g-{topic}"))
        one.subscribe([topic])
        two.subscribe(re.compile(topic))
        records = await until(
            lambda: sorted([len(one.assignment()), len(two.assignment())]) == [1, 2], one, two
        )
        assert not set(one.assignment()) & set(two.assignment())
        records += await read(300 - len(records), one, two)
        assert len({(r.partition, r.offset) for r in records}) == 300
        await one.close()
        await until(lambda: len(two.assignment()) == 3, two)
        await two.close()

    run(test())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_with_a_pattern_joins_in_its_first_poll(
    broker: EmbeddedBroker, topic: str, protocol: str
) -> None:
    """Also if the topics are not known yet; in one letter case or the other."""
    pattern = re.compile(topic.upper(), re.IGNORECASE)
    own = settings(broker.bootstrap, protocol, f"g-{topic}", auto_commit_interval_ms=600_000)
    with Consumer(own) as consumer:
        consumer.subscribe(pattern)
        assert consumer.poll_records(PATIENCE_S * 1_000)

    async def test() -> None:
        async with AsyncConsumer({**own, "group_id": f"h-{topic}"}) as consumer:
            consumer.subscribe(pattern)
            assert await consumer.poll_records(PATIENCE_S * 1_000)

    run(test())


def test_a_cooperative_member_is_told_of_what_moves_only(
    broker: EmbeddedBroker, topic: str
) -> None:
    """KIP-429: what stays is neither revoked nor assigned again."""

    async def test() -> None:
        own = settings(
            broker.bootstrap,
            "classic",
            f"g-{topic}",
            partition_assignment_strategy="cooperative-sticky",
        )
        book = Book()
        one = AsyncConsumer(own)
        two = AsyncConsumer(own)
        one.subscribe([topic], book)
        await until(lambda: len(one.assignment()) == 3, one)
        two.subscribe([topic])
        await until(lambda: len(two.assignment()) == 1, one, two)
        assert ("revoked", 1) in book.calls
        assert ("revoked", 3) not in book.calls
        await one.close()
        await two.close()

    run(test())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_that_raises_is_heard_and_the_group_goes_on(
    broker: EmbeddedBroker, topic: str, protocol: str
) -> None:
    class Raising(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            raise ValueError(f"no, not {len(partitions)}")

    async def test() -> None:
        async with AsyncConsumer(settings(broker.bootstrap, protocol, f"g-{topic}")) as consumer:
            consumer.subscribe([topic], Raising())
            with pytest.raises(ValueError, match="no, not 3"):
                await read(1, consumer)
            assert len(await read(300, consumer)) == 300

    run(test())


def test_commits_end_in_the_order_in_which_they_were_asked_for(
    broker: EmbeddedBroker, topic: str
) -> None:
    """ "an older async commit must not overwrite a newer one"."""

    async def test() -> None:
        key = TopicPartition(topic, 0)
        ended: list[int] = []
        async with AsyncConsumer(settings(broker.bootstrap, "classic", f"g-{topic}")) as consumer:
            consumer.subscribe([topic])
            await read(1, consumer)
            for offset in range(50):
                consumer.commit_async(
                    {key: CommittedOffset(offset, metadata=f"note {offset}")},
                    lambda offsets, failure: ended.append(offsets[key].offset),
                )
            await consumer.commit({key: CommittedOffset(50, metadata="last")})
            assert ended == list(range(50))
            assert (await consumer.committed([key]))[key] == CommittedOffset(50, -1, "last")

    run(test())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refused_commit_names_the_partition(
    broker: EmbeddedBroker, topic: str, protocol: str
) -> None:
    """Also where the broker's answer has the topic's id only (OffsetCommit 10)."""
    with Consumer(settings(broker.bootstrap, protocol, f"g-{topic}")) as consumer:
        consumer.subscribe([topic])
        while not consumer.poll_records(100):
            pass
        too_large = CommittedOffset(1, metadata="x" * 5_000)
        with pytest.raises(OffsetMetadataTooLarge, match=f"commit of {topic}-1"):
            consumer.commit({TopicPartition(topic, 1): too_large})


def test_auto_commit_commits_records_of_earlier_polls(broker: EmbeddedBroker, topic: str) -> None:
    """ "automatic every auto.commit.interval.ms inside poll"."""

    async def test() -> None:
        own = settings(broker.bootstrap, "classic", f"g-{topic}", auto_commit_interval_ms=50)
        async with AsyncConsumer(own) as consumer:
            consumer.subscribe([topic])
            await read(300, consumer)
            committed = 0
            while committed < 300:
                await consumer.poll_records(20)
                found = await consumer.committed(consumer.assignment())
                committed = sum(one.offset for one in found.values())

    run(test())


def test_pausing_keeps_what_was_fetched(broker: EmbeddedBroker, topic: str) -> None:
    async def test() -> None:
        key = TopicPartition(topic, 0)
        async with AsyncConsumer(broker.bootstrap) as consumer:
            consumer.assign({key: 0})
            first = await consumer.poll_records(5_000, 10)
            assert [record.offset for record in first] == list(range(10))
            fetches = consumer.statistics().fetches
            consumer.pause([key])
            assert await consumer.poll_records(50) == []
            assert consumer.paused() == [key]
            consumer.resume([key])
            rest = await consumer.poll_records(5_000, 500)
            assert [record.offset for record in rest] == list(range(10, 100))
            assert consumer.statistics().fetches <= fetches + 2
            assert await consumer.position(key) == 100
            assert await consumer.lag(key) == 0

    run(test())


def test_a_record_that_cannot_be_deserialized_is_named_and_can_be_passed(
    broker: EmbeddedBroker, topic: str
) -> None:
    def even(topic: str, data: bytes, headers: object) -> int:
        if int(data) == 5:
            raise ValueError("five")
        return int(data)

    key = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, value_deserializer=even) as consumer:
        consumer.assign({key: 0})
        assert [record.value for record in consumer.poll_records(5_000)] == [0, 1, 2, 3, 4]
        with pytest.raises(DeserializationFailed, match="offset 5: ValueError: five") as failed:
            consumer.poll_records(5_000)
        assert (failed.value.partition, failed.value.offset) == (key, 5)
        assert consumer.position(key) == 5
        consumer.seek(key, 6)
        assert next(iter(consumer)).value == 6


def test_without_a_committed_offset_reset_none_is_an_error(
    broker: EmbeddedBroker, topic: str
) -> None:
    own = settings(broker.bootstrap, "classic", f"g-{topic}", auto_offset_reset="none")
    with Consumer(own) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(NoOffset, match="no committed offset"):
            consumer.poll(10_000)


def test_auto_offset_reset_by_duration(broker: EmbeddedBroker, topic: str) -> None:
    """KIP-1106."""
    for text, count in (("by_duration:PT1H", 100), ("by_duration:PT0S", 0)):
        own = settings(broker.bootstrap, "classic", f"g-{uuid4()}", auto_offset_reset=text)
        with Consumer(own) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert len(consumer.poll_records(10_000 if count else 300)) == count


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_blocking_consumer_calls_its_listener_in_the_polling_thread(
    broker: EmbeddedBroker, topic: str, protocol: str
) -> None:
    here = threading.current_thread()
    seen: list[threading.Thread] = []

    class Committing(Book):
        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            seen.append(threading.current_thread())
            consumer.commit()

    with Consumer(settings(broker.bootstrap, protocol, f"g-{topic}")) as consumer:
        consumer.subscribe([topic], Committing())
        for record in islice(consumer, 300):
            assert record.value == b"%d" % record.offset
        keys = consumer.assignment()
        ended: list[Exception | None] = []
        consumer.commit_async(callback=lambda offsets, failure: ended.append(failure))
        consumer.commit()
        assert ended == [None]
        assert {one.offset for one in consumer.committed(keys).values()} == {100}
    assert seen == [here]


def until_a_session_has_passed(admin: BlockingClient, session_timeout_ms: int) -> None:
    """Wait until a member of another group, which sends no heartbeats, is put out.

    Another one joins it, and is answered then.
    """
    group = f"silent-{uuid4()}"
    node = admin.find_coordinators([group])[group]
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=int(PATIENCE_S * 1_000),
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    with WireClient(node.host, node.port) as silent, WireClient(node.host, node.port) as next_one:
        first = silent.ask(join, JOIN_VERSION)
        sync = SyncGroupRequest(
            group_id=group, generation_id=first.generation_id, member_id=first.member_id
        )
        assert silent.ask(sync, SYNC_VERSION).error_code == ErrorCode.NONE
        assert [one.member_id for one in next_one.ask(join, JOIN_VERSION).members] != []


def test_a_member_lives_while_its_application_works(
    broker: EmbeddedBroker, admin: BlockingClient, topic: str
) -> None:
    """Heartbeats go on in the consumer's own thread."""
    own = settings(broker.bootstrap, "classic", f"g-{topic}", session_timeout_ms=1_000)
    with Consumer(own) as consumer:
        consumer.subscribe([topic])
        while not consumer.poll_records(100):
            pass
        member = consumer.group_metadata()
        for _ in range(2):
            until_a_session_has_passed(admin, 1_000)  # it works meanwhile
        consumer.poll_records(100)
        consumer.commit()
        assert consumer.group_metadata() == member


def test_consumer_that_does_not_poll_in_time_loses_its_partitions(
    broker: EmbeddedBroker, topic: str
) -> None:
    """ "max.poll.interval.ms … a member that has not rejoined by then is out"."""
    book = Book()
    own = settings(
        broker.bootstrap,
        "classic",
        f"g-{topic}",
        max_poll_interval_ms=1_000,
        session_timeout_ms=1_000,
    )
    with Consumer(own) as consumer:
        consumer.subscribe([topic], book)
        while not consumer.poll_records(100):
            pass
        with Consumer(own) as other:
            other.subscribe([topic])
            while len(other.assignment()) < 3:  # who works, and does not poll, has them
                other.poll_records(100)
        while ("lost", 3) not in book.calls:
            consumer.poll_records(100)
        while len(consumer.assignment()) < 3:
            consumer.poll_records(100)


RARELY_POLLED = {
    "max_poll_interval_ms": 1_000,
    "auto_commit_interval_ms": 600_000,
    "allow_auto_create_topics": False,
    "auto_offset_reset": "latest",
}


def test_waiting_in_a_blocking_poll_counts_as_polling(broker: EmbeddedBroker, topic: str) -> None:
    book = Book()
    own = settings(broker.bootstrap, "classic", f"g-{topic}", **RARELY_POLLED)
    with Consumer(own) as consumer:
        consumer.subscribe([topic], book)
        while len(consumer.assignment()) < 3:
            consumer.poll(100)
        assert consumer.poll(2_500) == []
        assert book.calls == [("assigned", 3)]


def test_waiting_in_an_asynchronous_poll_counts_as_polling(
    broker: EmbeddedBroker, topic: str
) -> None:
    async def test() -> None:
        book = Book()
        own = settings(broker.bootstrap, "consumer", f"g-{topic}", **RARELY_POLLED)
        async with AsyncConsumer(own) as consumer:
            consumer.subscribe([topic], book)
            await until(lambda: len(consumer.assignment()) == 3, consumer)
            assert await consumer.poll(2_500) == []
            assert book.calls == [("assigned", 3)]

    run(test())


def test_a_member_that_was_put_out_joins_again_in_its_next_poll(
    broker: EmbeddedBroker, topic: str
) -> None:
    """A member without partitions, whose application has no step to take."""
    own = settings(broker.bootstrap, "classic", f"g-{topic}", **RARELY_POLLED)
    with Consumer(own) as consumer:
        consumer.subscribe([f"not-{topic}"])
        while consumer._core._who() is None:
            consumer.poll(20)
        while consumer._core._who() is not None:
            threading.Event().wait(0.02)  # it works, and does not poll
        book = Book()
        consumer.subscribe([topic], book)
        deadline = time.monotonic() + PATIENCE_S
        while not book.calls:
            consumer.poll(20)
            assert time.monotonic() < deadline


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_transaction_with_offsets_of_a_member_that_was_put_out_is_refused(
    broker: EmbeddedBroker, topic: str, protocol: str
) -> None:
    """While another member has the partitions, and when that one has left."""
    own = settings(broker.bootstrap, protocol, f"g-{topic}", enable_auto_commit=False)
    with (
        Consumer(own, max_poll_interval_ms=500) as silent,
        Consumer(own) as other,
        Producer(broker.bootstrap, transactional_id=f"p-{topic}") as producer,
    ):
        silent.subscribe([topic])
        while len(silent.assignment()) < 3:
            silent.poll_records(100)
        other.subscribe([topic])
        while len(other.assignment()) < 3:  # until the silent one is out
            other.poll_records(100)
        producer.init_transactions()
        for _ in range(2):
            producer.begin_transaction()
            with pytest.raises(AbortRequired):
                producer.send_offsets_to_transaction(
                    {TopicPartition(topic, 0): 1}, silent.group_metadata()
                )
            producer.abort_transaction()
            other.close()


def test_wakeup_ends_a_poll_of_another_thread(broker: EmbeddedBroker, topic: str) -> None:
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign({TopicPartition(topic, 0): 100})
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()
        with pytest.raises(WokenUp):
            consumer.poll(PATIENCE_S * 1_000)
        timer.join()
        assert consumer.poll(10) == []


def test_a_topic_that_does_not_exist_yet_is_read_when_it_does(
    broker: EmbeddedBroker, admin: BlockingClient
) -> None:
    topic = f"late-{uuid4()}"
    own = settings(broker.bootstrap, "classic", f"g-{topic}", allow_auto_create_topics=False)
    with Consumer(own) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(300) == []
        admin.create_topics([NewTopic(topic, 3)])
        write(admin, topic, range(3))
        found = 0
        while found < 9:
            found += len(consumer.poll_records(1_000))


def test_calls_that_do_not_fit_are_refused(broker: EmbeddedBroker, topic: str) -> None:
    with Consumer(broker.bootstrap, group_id="g") as consumer:
        consumer.assign({TopicPartition(topic, 0): 0})
        with pytest.raises(WrongState, match="unsubscribe"):
            consumer.subscribe([topic])
        consumer.unsubscribe()
        consumer.subscribe([topic])
        with pytest.raises(WrongState, match="unsubscribe"):
            consumer.assign({TopicPartition(topic, 0): 0})
        with pytest.raises(WrongState, match="not assigned"):
            consumer.seek(TopicPartition("else", 0), 0)
    with Consumer(broker.bootstrap) as alone:
        with pytest.raises(InvalidSetting, match="group_id"):
            alone.subscribe([topic])
        with pytest.raises(InvalidSetting, match="group_id"):
            alone.commit()


def test_a_time_is_sought_in_assigned_partitions_only(broker: EmbeddedBroker, topic: str) -> None:
    """A partition that the group gave to another member is none of them."""
    key = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, group_id=f"g-{topic}") as consumer:
        consumer.subscribe([f"not-{topic}"])
        with pytest.raises(WrongState, match=f"{topic}-0 is not assigned"):
            consumer.seek_to_timestamp([key], 0)
        assert consumer.assignment() == []
    with Consumer(broker.bootstrap) as alone:
        alone.seek_to_timestamp([key], 0)
        assert alone.poll_records(PATIENCE_S * 1_000)[0].offset == 0


def test_lost_metadata_does_not_end_the_leaders_membership(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker that is asked may be killed while the leader divides the partitions."""
    divide, lost = GroupShell._divide, [True]

    async def losing(shell: GroupShell, step: Divide) -> None:
        core = shell._metadata
        ask = core._metadata

        async def ended(request: MetadataRequest) -> MetadataResponse:
            if lost:
                lost.pop()
                raise ConnectionLost("the broker was killed")
            return await ask(request)

        monkeypatch.setattr(core, "_metadata", ended)
        await divide(shell, step)

    monkeypatch.setattr(GroupShell, "_divide", losing)
    book = Book()
    with Consumer(settings(broker.bootstrap, "classic", f"g-{topic}")) as consumer:
        consumer.subscribe([topic], book)
        assert consumer.poll_records(PATIENCE_S * 1_000)
        assert (lost, book.calls) == ([], [("assigned", 3)])


def test_the_coordinator_may_move(admin: BlockingClient) -> None:
    """ "When the coordinator moves, clients find the new one and go on"."""

    async def test(bootstrap: str, topic: str, cluster: EmbeddedBroker) -> None:
        book = Book()
        consumer = AsyncConsumer(settings(bootstrap, "classic", "g"))
        async with consumer:
            consumer.subscribe([topic], book)
            await read(300, consumer)
            await consumer.commit()
            before = consumer.group_metadata()
            core: ConsumerCore = consumer.core
            node = (await core._coordinators.find(["g"]))["g"]
            await asyncio.to_thread(cluster.stop_broker, node)
            core._coordinators.forget("g")
            await consumer.commit({TopicPartition(topic, 0): 42})
            assert consumer.group_metadata() == before
            assert (await consumer.committed([TopicPartition(topic, 0)]))[
                TopicPartition(topic, 0)
            ].offset == 42
        assert book.calls == [("assigned", 3), ("revoked", 3)]

    more = {"default.replication.factor": "3", "min.insync.replicas": "1"}
    with EmbeddedBroker(brokers=3, settings=QUICK | more) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topics([NewTopic("moved", 3, 3)])
            write(client, "moved", range(100))
        run(test(cluster.bootstrap, "moved", cluster))

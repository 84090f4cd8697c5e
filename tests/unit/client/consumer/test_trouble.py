"""Consumers whose application, listener or coordinator misbehaves."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from uuid import uuid4

import pytest

from raylog.client import (
    Admin,
    AsyncConsumer,
    Consumer,
    NewTopic,
    RebalanceListener,
    TopicPartition,
    WrongState,
)
from raylog.client.consumer.commits import Commits, Offsets
from raylog.client.consumer.membership import GroupMetadata
from raylog.testing import EmbeddedBroker

PATIENCE_MS = 60_000
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def key(broker: EmbeddedBroker) -> TopicPartition:
    """A partition of 100 records."""
    name = f"t-{uuid4()}"
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1)])
        producer = admin.producer()
        producer.send_rows(name, [b"%d" % number for number in range(100)])
        producer.flush()
    return TopicPartition(name, 0)


def consumer(
    broker: EmbeddedBroker, group: str, *, auto_commit: bool = True
) -> Consumer[bytes, bytes]:
    return Consumer(
        broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        enable_auto_commit=auto_commit,
    )


def committed(broker: EmbeddedBroker, key: TopicPartition, group: str) -> int:
    with Admin(broker.bootstrap) as admin:
        return admin.group_offsets(group)[key].offset


# -- iteration ----------------------------------------------------------------------------------


def test_iteration_that_is_left_commits_what_was_yielded(
    broker: EmbeddedBroker, key: TopicPartition
) -> None:
    with consumer(broker, key.topic) as reader:
        reader.subscribe(key.topic)
        for record in reader:
            if record.offset == 2:
                break
        assert [next(iter(reader)).offset for _ in range(2)] == [3, 4], "a second one goes on"
        assert reader.position(key) == 5
    assert committed(broker, key, key.topic) == 5


def test_a_commit_within_iteration_is_of_what_was_yielded(
    broker: EmbeddedBroker, key: TopicPartition
) -> None:
    async def main() -> None:
        async with AsyncConsumer(
            broker.bootstrap,
            group_id=key.topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as reader:
            reader.subscribe(key.topic)
            async for record in reader:
                await reader.commit()
                if record.offset == 2:
                    break

    asyncio.run(main())
    assert committed(broker, key, key.topic) == 3


# -- commits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_commit_of_an_invalid_offset_is_refused(
    broker: EmbeddedBroker, key: TopicPartition, offset: int
) -> None:
    with consumer(broker, key.topic) as reader:
        reader.assign([key])
        with pytest.raises(ValueError, match=r"expected an offset from 0 to 2\*\*63 - 1, found"):
            reader.commit({key: offset})
        reader.commit({key: 2**63 - 1})


def test_a_callback_that_raises_holds_up_no_other_commit(
    broker: EmbeddedBroker, key: TopicPartition, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(offsets: Offsets, failure: Exception | None) -> None:
        raise ZeroDivisionError("mine")

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, group_id=key.topic) as reader:
            reader.assign([key])
            reader.commit_async({key: 1}, raising)
            await asyncio.wait_for(reader.commit({key: 2}), 30)

    asyncio.run(main())
    assert committed(broker, key, key.topic) == 2
    assert "mine" in caplog.text


def test_an_explicit_commit_is_sent_though_nothing_has_moved(
    broker: EmbeddedBroker, key: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A committed offset of a group without members expires unless it is committed again."""
    sent: list[Offsets] = []
    send = Commits._send

    async def counted(commits: Commits, offsets: Offsets, who: GroupMetadata) -> None:
        sent.append(offsets)
        await send(commits, offsets, who)

    monkeypatch.setattr(Commits, "_send", counted)
    with consumer(broker, key.topic, auto_commit=False) as reader:
        reader.assign([key])
        while not reader.poll_records(1_000):
            pass
        for _ in range(3):
            reader.commit()
    assert [one[key].offset for one in sent] == [100] * 3


# -- listeners ------------------------------------------------------------------------------------


class Calling(RebalanceListener):
    """Calls back into the consumer."""

    def __init__(self, reader: Consumer[bytes, bytes], what: str) -> None:
        self.reader = reader
        self.what = what
        self.calls: list[str] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append("assigned")
        if self.what == "poll":
            self.reader.poll_records(10)
        else:
            getattr(self.reader, self.what)()

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append("revoked")


def test_poll_in_a_rebalance_listener_is_refused(
    broker: EmbeddedBroker, key: TopicPartition
) -> None:
    with consumer(broker, key.topic) as reader:
        listener = Calling(reader, "poll")
        reader.subscribe(key.topic, listener)
        with pytest.raises(WrongState, match="a rebalance listener cannot poll"):
            reader.poll_records(PATIENCE_MS)
        assert listener.calls == ["assigned"]
        while not reader.poll_records(1_000):
            pass


@pytest.mark.parametrize("what", ["unsubscribe", "close"])
def test_a_listener_may_end_the_subscription(
    broker: EmbeddedBroker, key: TopicPartition, what: str
) -> None:
    reader = consumer(broker, key.topic)
    listener = Calling(reader, what)
    reader.subscribe(key.topic, listener)
    while not listener.calls:
        assert reader.poll_records(100) == []
    assert listener.calls == ["assigned", "revoked"]
    if what == "close":
        with pytest.raises(Exception, match="closed"):
            reader.poll_records(100)
    else:
        assert reader.assignment() == []
        reader.subscribe(key.topic)
        while not reader.poll_records(1_000):
            pass
    reader.close()


def test_two_tasks_that_poll_serve_a_rebalance_once(
    broker: EmbeddedBroker, key: TopicPartition
) -> None:
    lost = []

    class Slow(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            lost.append(partitions)
            for _ in range(50):
                await asyncio.sleep(0)

    async def main() -> None:
        async with AsyncConsumer(
            broker.bootstrap, group_id=key.topic, auto_offset_reset="earliest"
        ) as reader:
            reader.subscribe(key.topic, Slow())
            read: set[int] = set()

            async def all_of_it() -> list[int]:
                found: list[int] = []
                while len(read) < 100:
                    found += [record.offset for record in await reader.poll_records(100)]
                    read.update(found)
                return found

            halves = await asyncio.wait_for(asyncio.gather(all_of_it(), all_of_it()), 60)
            assert sorted(halves[0] + halves[1]) == list(range(100))

    asyncio.run(main())
    assert len(lost) == 1


# -- a coordinator that does not answer ---------------------------------------------------------


def test_close_keeps_to_its_time_though_nobody_takes_the_last_commit() -> None:
    with EmbeddedBroker(settings=SETTINGS) as alone:
        topic = "t"
        with Admin(alone.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, 1)])
            producer = admin.producer()
            producer.send(topic, b"x")
            producer.flush()
        reader = consumer(alone, "g")
        reader.subscribe(topic)
        while not reader.poll_records(1_000):
            pass
    began = time.monotonic()
    reader.close(timeout_ms=500)
    assert time.monotonic() - began < 10


def test_poll_keeps_to_its_time_though_a_revocation_waits_for_a_commit(
    broker: EmbeddedBroker, key: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consumer(broker, key.topic) as reader:
        reader.subscribe(key.topic)
        while not reader.poll_records(1_000):
            pass
        taken = asyncio.Event()
        send = Commits._send

        async def late(commits: Commits, offsets: Offsets, who: GroupMetadata) -> None:
            await taken.wait()
            await send(commits, offsets, who)

        monkeypatch.setattr(Commits, "_send", late)
        reader.enforce_rebalance()
        for _ in range(3):
            began = time.monotonic()
            reader.poll_records(100)
            assert time.monotonic() - began < 10
        assert reader.assignment() == [key], "not given up before it is committed"
        reader._background.post(taken.set)
        while reader.statistics().rebalances < 2:
            reader.poll_records(100)
    assert committed(broker, key, key.topic) == 100


def test_a_position_in_a_deleted_topic_is_not_committed_for_its_namesake(
    broker: EmbeddedBroker, key: TopicPartition
) -> None:
    with consumer(broker, key.topic, auto_commit=False) as reader, Admin(broker.bootstrap) as admin:
        reader.assign([key])
        while not reader.poll_records(1_000):
            pass
        assert reader._core.positions([key])
        reader._core.fetcher.pause([key])  # so that only the commit looks at the topic
        admin.delete_topics([key.topic])
        admin.create_topics([NewTopic(key.topic, 1)])
        before = reader._core.fetcher.progress_of(key)
        reader._run(reader._core.control.refresh([key.topic]))
        assert reader._core.fetcher.progress_of(key) is before
        reader.commit()
        assert key not in admin.group_offsets(key.topic)


def test_iteration_over_nothing_is_refused(broker: EmbeddedBroker) -> None:
    async def first(reader: AsyncConsumer[bytes, bytes]) -> object:
        return await anext(aiter(reader))

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, group_id="g") as reader:
            with pytest.raises(WrongState, match="subscribe to topics or assign partitions"):
                await first(reader)

    asyncio.run(main())
    with (
        consumer(broker, "g") as reader,
        pytest.raises(WrongState, match="subscribe to topics or assign partitions"),
    ):
        next(iter(reader))

"""What a sink remembers, against live brokers: idle for weeks, restored, mirrored, very wide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.client.admin.groups import CommittedOffset
from raylog.client.admin.topics import Resource, ResourceType
from raylog.client.producer.partitioner import partition_of_key
from raylog.sink.batches import Batch, KafkaRange, OtherRange, SourceMismatch, StateLost
from raylog.sink.commit import (
    CommitOffsets,
    Effect,
    End,
    Event,
    Write,
    WriteLost,
    WriteState,
)
from raylog.sink.driver import SinkDriver, SinkSettings
from raylog.sink.lookup import look_up_state, name_of
from raylog.sink.marks import Job, Mark
from raylog.sink.state_topic import PARTITIONS, STATE_TOPIC, BadStateTopic
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import TransactionalIdNotFound
from tests.spark.conftest import VERSIONS
from tests.spark.driving import Driver, driving, expected
from tests.spark.reading import read_all, values
from tests.support.ray_clusters import wait_until

WIDE = 5_000
"""Source partitions; the metadata of a committed offset holds 4,096 bytes."""
MANY = 1_100
"""More than one TxnOffsetCommit has."""


@pytest.fixture
def client(bootstrap: str) -> Iterator[BlockingClient]:
    with BlockingClient(bootstrap) as opened:
        yield opened


@pytest.fixture
def states(client: BlockingClient, name: str) -> str:
    """A state topic of the test's own, not made yet."""
    return f"{name}-states"


@contextmanager
def embedded(
    data: Path, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[str, BlockingClient]]:
    """A broker whose data stay, and a client of it."""
    with (
        EmbeddedBroker(data=data, settings=settings) as broker,
        BlockingClient(broker.bootstrap) as client,
    ):
        yield broker.bootstrap, client


def idle_for_weeks(client: BlockingClient, topic: str) -> None:
    """The group's offsets have expired."""
    client.delete_groups([name_of(topic)])
    assert client.group_offsets(name_of(topic)) == {}


def write_again(bootstrap: str, topic: str, batch: Callable[[Driver], Batch]) -> bool:
    """Write as a driver that has just been started."""
    with driving(bootstrap, topic) as later:
        return later.write(batch(later))


# -- idle -----------------------------------------------------------------------------------------


def test_a_batch_is_skipped_though_the_groups_offsets_have_expired(
    driver: Driver, bootstrap: str, client: BlockingClient
) -> None:
    driver.write(driver.batch(0))
    idle_for_weeks(client, driver.topic)
    assert not write_again(bootstrap, driver.topic, lambda later: later.batch(0))
    assert write_again(bootstrap, driver.topic, lambda later: later.batch(1))
    assert values(bootstrap, driver.topic) == expected(("q", 0), ("q", 1))


def test_positions_outlive_the_groups_offsets(
    driver: Driver, bootstrap: str, client: BlockingClient
) -> None:
    driver.write(driver.batch(0))
    idle_for_weeks(client, driver.topic)
    with closing(SinkDriver(bootstrap, driver.topic, driver.topic, None)) as later:
        assert later.committed() == {driver.source: 10}
    found = look_up_state(driver.core.settings, driver.topic, [driver.topic])
    assert found is not None
    assert list(found.ends().values()) == [10]


def test_a_batch_is_skipped_though_the_transactional_id_has_expired(
    name: str, tmp_path: Path
) -> None:
    """Its next producer id is another one; the state is known by the sink's name."""
    with embedded(tmp_path) as (bootstrap, client):
        client.create_topics([NewTopic(name, 3), NewTopic(f"{name}-in", 1)])
        with driving(bootstrap, name) as driver:
            driver.write(driver.batch(0))
    brief = {
        "transactional.id.expiration.ms": "1",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
    }
    with embedded(tmp_path, brief) as (_, client):

        def is_forgotten() -> bool:
            try:
                client.describe_transaction(name_of(name))
            except TransactionalIdNotFound:
                return True
            return False

        wait_until(is_forgotten, "the transactional id to expire")
    with embedded(tmp_path) as (bootstrap, client):
        idle_for_weeks(client, name)
        assert not write_again(bootstrap, name, lambda later: later.batch(0))
        assert write_again(bootstrap, name, lambda later: later.batch(1))


# -- the state is gone ----------------------------------------------------------------------------


def test_a_state_topic_that_was_deleted_is_noticed(
    bootstrap: str, client: BlockingClient, topic: str, states: str
) -> None:
    """By the mark in the group's offsets, and without it by the transactional id."""
    with driving(bootstrap, topic, states) as driver:
        driver.write(driver.batch(0))
    client.delete_topics([states])
    for says in ("the state topic has none", "neither the state topic nor the group's offsets"):
        with driving(bootstrap, topic, states) as later, pytest.raises(StateLost, match=says):
            later.write(later.batch(0))
        if client.group_offsets(name_of(topic)):
            idle_for_weeks(client, topic)
    assert values(bootstrap, topic) == expected(("q", 0))


def test_a_batch_that_is_not_the_first_of_a_new_sink_is_refused(driver: Driver) -> None:
    """As when the marks of an older build have expired, and its transactional id with them."""
    with pytest.raises(StateLost, match="batch 7 of query 'q' is not the first"):
        driver.write(driver.batch(7))


def test_a_sink_that_died_before_its_first_commit_begins(driver: Driver, bootstrap: str) -> None:
    """Its transactional id is known, and it is registered as one that has written nothing."""

    class Killed(Exception):
        pass

    def die(effect: Effect) -> None:
        if isinstance(effect, End):
            raise Killed

    driver.between = die
    with pytest.raises(Killed):
        driver.write(driver.batch(0))
    assert write_again(bootstrap, driver.topic, lambda later: later.batch(0))
    assert values(bootstrap, driver.topic) == expected(("q", 0))


def test_the_state_topic_is_compacted_and_one_that_deletes_is_refused(
    bootstrap: str, client: BlockingClient, topic: str, states: str
) -> None:
    with driving(bootstrap, topic, states) as driver:
        driver.write(driver.batch(0))
    found = client.describe_topic(states)
    assert len(found.partitions) == PARTITIONS
    resource = Resource(ResourceType.TOPIC, states)
    configs = {entry.name: entry.value for entry in client.describe_configs(resource)}
    assert configs["cleanup.policy"] == "compact"
    client.alter_configs(resource, {"cleanup.policy": "compact,delete"})
    says = rf"{states} has cleanup\.policy=compact,delete"
    with driving(bootstrap, topic, states) as later, pytest.raises(BadStateTopic, match=says):
        later.write(later.batch(1))


def test_after_a_reset_any_query_may_begin(driver: Driver, bootstrap: str) -> None:
    driver.write(driver.batch(0))
    with closing(SinkDriver(bootstrap, driver.topic, driver.topic, None)) as sink:
        sink.reset({driver.source: 70})
        assert sink.committed() == {driver.source: 70}
    with pytest.raises(SourceMismatch, match="up to 70, it begins at 50"):
        write_again(bootstrap, driver.topic, lambda later: later.batch(5, "p"))
    assert write_again(bootstrap, driver.topic, lambda later: later.batch(7, "p"))
    with closing(SinkDriver(bootstrap, driver.topic, driver.topic, None)) as sink:
        sink.reset()
        assert sink.committed() == {}
    assert write_again(bootstrap, driver.topic, lambda later: later.batch(0))
    assert values(bootstrap, driver.topic) == expected(("q", 0), ("p", 7), ("q", 0))


# -- restored checkpoints -------------------------------------------------------------------------


def test_a_checkpoint_restored_from_an_older_copy_is_refused(
    driver: Driver, bootstrap: str
) -> None:
    """Batches of earlier numbers, and the newest one with more in it than was committed."""
    for batch_id in range(4):
        driver.write(driver.batch(batch_id))
    source, cluster = driver.source, driver.batch(0).sources[0]
    assert isinstance(cluster, KafkaRange)

    def restored(batch_id: int, start: int, end: int) -> str:
        read = KafkaRange({source: start}, {source: end}, cluster.cluster_id)
        with pytest.raises(SourceMismatch) as raised:
            write_again(
                bootstrap,
                driver.topic,
                lambda later: Batch(Mark("q", batch_id), later.keys, [read]),
            )
        return str(raised.value)

    assert "ends at 25" in (message := restored(1, 10, 25))
    assert "batch 3 of query 'q', which is committed and ended at 40" in message
    assert "ends at 90" in restored(2, 25, 90)
    assert "committed up to 40, found 90" in restored(3, 30, 90)
    assert values(bootstrap, driver.topic) == expected(*(("q", n) for n in range(4)))


def test_another_query_without_offsets_is_refused(driver: Driver, bootstrap: str) -> None:
    """A source that is not Kafka, with a lost checkpoint, would be written from its beginning."""
    files = [OtherRange(None, '{"logOffset":0}')]
    assert driver.write(Batch(Mark("q", 0), driver.keys, files))
    assert not driver.write(Batch(Mark("q", 0), driver.keys, files))
    with pytest.raises(SourceMismatch, match="no offsets that could be compared"):
        driver.write(Batch(Mark("p", 0), driver.keys, files))
    assert values(bootstrap, driver.topic) == expected(("q", 0))


def test_jobs_are_remembered_though_others_came_since(driver: Driver, bootstrap: str) -> None:
    with closing(SinkDriver(bootstrap, driver.topic, driver.topic, None)) as sink:

        def write(job_id: str) -> bool:
            batch = Batch(Job(job_id), driver.keys)
            mark = Batch(Mark(job_id, 0), driver.keys)
            return sink.write(batch, lambda identity: driver.written(identity, mark, 3))

        assert [write(job) for job in ("1", "2", "1", "3", "2")] == [True, True, False, True, False]
    assert values(bootstrap, driver.topic) == expected(("1", 0), ("2", 0), ("3", 0), rows=3)


# -- other builds ---------------------------------------------------------------------------------


def test_a_mark_of_an_older_build_is_gone_on_from(
    driver: Driver, bootstrap: str, client: BlockingClient
) -> None:
    """In the middle of its query, and when that mark has expired later on."""
    mark = '{"query": "q", "batch": 4}'
    offsets = {
        driver.keys[0]: CommittedOffset(4, -1, mark),
        driver.source: CommittedOffset(50, -1, mark),
    }
    client.commit_group_offsets(name_of(driver.topic), offsets)
    client.fence_transactional_id(name_of(driver.topic))  # as the older build has used it
    assert not driver.write(driver.batch(4))
    with pytest.raises(SourceMismatch, match="up to 50, it begins at 60"):
        write_again(bootstrap, driver.topic, lambda later: later.batch(6))
    assert write_again(bootstrap, driver.topic, lambda later: later.batch(5))
    idle_for_weeks(client, driver.topic)
    assert not write_again(bootstrap, driver.topic, lambda later: later.batch(5))
    assert write_again(bootstrap, driver.topic, lambda later: later.batch(6))
    assert values(bootstrap, driver.topic) == expected(("q", 5), ("q", 6))


def test_marks_written_by_an_older_build_are_continued(
    driver: Driver, bootstrap: str, client: BlockingClient
) -> None:
    """It reads the marks that this build leaves beside its state, and writes its own."""
    driver.write(driver.batch(0))
    mark = '{"query": "q", "batch": 1}'
    offsets = {key: CommittedOffset(20, -1, mark) for key in (driver.keys[0], driver.source)}
    client.commit_group_offsets(name_of(driver.topic), offsets)
    assert not write_again(bootstrap, driver.topic, lambda later: later.batch(1))
    assert write_again(bootstrap, driver.topic, lambda later: later.batch(2))


# -- other clusters, many partitions --------------------------------------------------------------


def test_a_mirrored_topic_keeps_its_name(driver: Driver, bootstrap: str) -> None:
    """The source, on another cluster, is called as the sink's topic is."""
    key = driver.keys[0]

    def batch(later: Driver, batch_id: int) -> Batch:
        read = KafkaRange({key: 10 * batch_id}, {key: 10 * batch_id + 10}, "another")
        return Batch(Mark("q", batch_id), later.keys, [read])

    assert driver.write(batch(driver, 0))
    assert not write_again(bootstrap, driver.topic, lambda later: batch(later, 0))
    assert write_again(bootstrap, driver.topic, lambda later: batch(later, 1))
    with closing(SinkDriver(bootstrap, driver.topic, driver.topic, None)) as sink:
        assert sink.committed() == {key: 20}
        assert sink.committed(bootstrap) == {}, "none is of this cluster"
    assert values(bootstrap, driver.topic) == expected(("q", 0), ("q", 1))


@pytest.mark.parametrize("batch_bytes", [None, "20000"], ids=["one record", "several"])
def test_five_thousand_source_partitions(
    bootstrap: str, client: BlockingClient, topic: str, states: str, batch_bytes: str | None
) -> None:
    """Of a topic of another cluster; `max.message.bytes` of the state topic may be small."""
    if batch_bytes is not None:
        configs = {"cleanup.policy": "compact", "max.message.bytes": batch_bytes}
        client.create_topics([NewTopic(states, 2, configs=configs)])
    keys = [TopicPartition("wide", number) for number in range(WIDE)]

    def batch(later: Driver, batch_id: int, step: int = 10**9) -> Batch:
        starts = {key: batch_id * step + key.partition for key in keys}
        ends = {key: offset + step for key, offset in starts.items()}
        return Batch(Mark("q", batch_id), later.keys, [KafkaRange(starts, ends, "another")])

    with driving(bootstrap, topic, states) as driver:
        assert driver.write(batch(driver, 0))
    with driving(bootstrap, topic, states) as later:
        assert not later.write(batch(later, 0))
        assert later.write(batch(later, 1))
        with pytest.raises(SourceMismatch, match="and 4997 more"):
            later.write(batch(later, 1, 3))
    settings = SinkSettings(state_topic=states)
    with closing(SinkDriver(bootstrap, topic, topic, settings)) as sink:
        assert sink.committed() == {key: 2 * 10**9 + key.partition for key in keys}


def test_offsets_of_a_wide_topic_go_to_the_group(
    driver: Driver, client: BlockingClient, name: str
) -> None:
    """For those who watch lag. A coordinator writes those of a request as one batch."""
    client.create_topics([NewTopic(f"{name}-wide", MANY)])
    (of_source,) = driver.batch(0).sources
    assert isinstance(of_source, KafkaRange)
    keys = [TopicPartition(f"{name}-wide", number) for number in range(MANY)]
    ends = {key: key.partition for key in keys}
    read = KafkaRange(dict.fromkeys(keys, 0), ends, of_source.cluster_id)
    assert driver.write(Batch(Mark("q", 0), driver.keys, [read]))
    found = client.group_offsets(name_of(driver.topic), keys, require_stable=True)
    assert {key: at.offset for key, at in found.items()} == ends


# -- the partition of the state -------------------------------------------------------------------


def test_open_transactions_of_other_sinks_hold_nobody_up(
    driver: Driver, bootstrap: str, client: BlockingClient
) -> None:
    """They are in the same partition, before this sink's state: the last stable offset is too."""
    home = partition_of_key(driver.topic.encode(), PARTITIONS)
    names = (f"{driver.topic}-{n}" for n in range(1_000))
    name = next(one for one in names if partition_of_key(one.encode(), PARTITIONS) == home)
    client.create_topics([NewTopic(name, 3), NewTopic(f"{name}-in", 1)])
    done: list[bool] = []

    def meanwhile(effect: Effect) -> Event | None:
        if isinstance(effect, CommitOffsets) and not done:
            done.append(driver.write(driver.batch(0)))
            driver.identity = driver.state = None
            done.append(driver.write(driver.batch(0)))
        return None

    with driving(bootstrap, name) as other:
        other.between = meanwhile
        assert other.write(other.batch(0))
    assert done == [True, False]


def test_a_state_is_found_when_its_topic_has_got_more_partitions(
    bootstrap: str, client: BlockingClient, states: str
) -> None:
    """A sink's records may belong to another partition then."""
    moved = next(
        f"{states}-{n}"
        for n in range(1_000)
        if partition_of_key(f"{states}-{n}".encode(), PARTITIONS)
        != partition_of_key(f"{states}-{n}".encode(), PARTITIONS + 1)
    )
    client.create_topics([NewTopic(moved, 3), NewTopic(f"{moved}-in", 1)])
    with driving(bootstrap, moved, states) as driver:
        driver.write(driver.batch(0))
        client.create_partitions(states, PARTITIONS + 1)
    for batch_id in (0, 1):
        with driving(bootstrap, moved, states) as later:
            assert later.write(later.batch(batch_id)) is (batch_id == 1)
    with driving(bootstrap, moved, states) as later:
        assert not later.write(later.batch(1))


@pytest.mark.parametrize(
    "bootstrap", [one for one in VERSIONS if one[1] == 2], ids=lambda one: one[0], indirect=True
)
def test_a_state_survives_compaction(
    bootstrap: str, client: BlockingClient, topic: str, states: str
) -> None:
    """The marker of a transaction whose state is kept stays, or that would look undecided."""
    configs = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "2000",
        "min.cleanable.dirty.ratio": "0.0",
        "delete.retention.ms": "0",
        "flush.messages": "1",
    }
    client.create_topics([NewTopic(states, 1, configs=configs), NewTopic(f"{topic}-in", 1)])
    lost: set[int] = set()

    def lose(effect: Effect) -> Event | None:
        """The first transaction of each batch is aborted when its state is written."""
        if isinstance(effect, WriteState) and effect.state.sequence not in lost:
            lost.add(effect.state.sequence)
            return WriteLost("an executor is gone")
        return None

    with driving(bootstrap, topic, states) as driver:
        driver.after = lose
        for batch_id in range(12):
            assert driver.write(driver.batch(batch_id), rows=0)

    def records() -> int:
        return len(read_all(bootstrap, states, read_committed=False)[0])

    wait_until(lambda: records() < 12, "compaction", 120)
    with driving(bootstrap, topic, states) as later:
        assert not later.write(later.batch(11))
        assert later.write(later.batch(12), rows=0)


def test_the_order_of_topics_is_not_the_sinks_identity(
    driver: Driver, bootstrap: str, client: BlockingClient, name: str
) -> None:
    second = f"{name}-b"
    client.create_topics([NewTopic(second, 1)])
    keys = [*driver.keys, TopicPartition(second, 0)]
    batch = Batch(Mark("q", 0), keys, driver.batch(0).sources)
    seen = []
    for topics in ([driver.topic, second], [second, driver.topic]):
        with closing(SinkDriver(bootstrap, topics, driver.topic, None)) as sink:
            seen.append(
                sink.write(batch, lambda identity: driver.written(identity, batch, 5, keys))
            )
    assert seen == [True, False]
    assert len(values(bootstrap, second)) == 5


def test_nothing_is_made_by_a_look(bootstrap: str, client: BlockingClient, states: str) -> None:
    with driving(bootstrap, states) as driver:
        assert look_up_state(driver.core.settings, "nobody", [], state_topic=states) is None
    assert states not in client.metadata(None).topics
    assert STATE_TOPIC not in states


def test_a_driver_that_goes_on_reads_its_state_once(driver: Driver) -> None:
    """Under version 2 of transactions; under version 1 each batch begins with another epoch."""
    for batch_id in range(3):
        driver.write(driver.batch(batch_id))
    asked = [type(effect).__name__ for effect in driver.done]
    writes = sum(isinstance(effect, Write) for effect in driver.done)
    assert writes == 3
    reads = 1 if driver.transactions.protocol.keeps_identity else 3
    assert asked.count("ReadState") == reads
    first = asked.index("Register")
    assert not {"CheckRegistration", "Register"} & set(asked[first + 1 :])

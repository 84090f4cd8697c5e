"""Positions, fetches, and what follows a refusal."""

from collections.abc import Callable

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.consumer.positions import Positions
from raylog.client.consumer.progress import COMMITTED
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.consumer.sources import Source
from raylog.client.errors import InvalidSetting
from raylog.client.io import run_blocking
from raylog.client.offsets import EARLIEST, LATEST
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, OffsetOutOfRange, TopicAuthorizationFailed
from raylog.wire.messages.fetch import (
    FetchRequest,
)
from raylog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from raylog.wire.records import decode_batch
from tests.worlds.client.cluster import LOST, FakeCluster, core_of
from tests.worlds.client.fetcher_partitions import offsets, rig

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("newest", [4, 11, 12, 13, 18])
def test_every_record_comes_once_and_in_order(newest: int) -> None:
    logs, consumer = rig()
    logs.cluster.newest[ApiKey.FETCH] = newest
    consumer.assign({ZERO: EARLIEST, ONE: 35})
    assert offsets(consumer, 165) == {0: list(range(100)), 1: list(range(35, 100))}
    assert run_blocking(consumer.position(ZERO)) == 100
    assert consumer.high_watermark(ONE) == 100


def test_partitions_of_several_leaders_are_fetched_from_each() -> None:
    logs, consumer = rig(brokers=2)
    consumer.assign({ZERO: 0, ONE: 0})
    assert offsets(consumer, 200) == {0: list(range(100)), 1: list(range(100))}
    fetched = {broker for broker, request in logs.cluster.seen if isinstance(request, FetchRequest)}
    assert fetched == {1, 2}


def test_the_end_and_a_time_are_looked_up() -> None:
    logs, consumer = rig()
    consumer.assign({ZERO: LATEST, ONE: 0})
    assert run_blocking(consumer.position(ZERO)) == 100
    consumer.start_from(ONE, 42)
    assert run_blocking(consumer.position(ONE)) == 42
    consumer.start_from(ONE, 5000)
    assert run_blocking(consumer.position(ONE)) == 100, "no record is as young"
    logs.end[0] = 110
    assert offsets(consumer, 10) == {0: list(range(100, 110))}


def test_a_poll_returns_about_as_much_as_was_asked_for() -> None:
    _, consumer = rig()
    consumer.assign({ZERO: 0})
    groups = run_blocking(consumer.poll(1000, 15))
    assert [len(group.records) for group in groups] == [20]
    assert run_blocking(consumer.position(ZERO)) == 20
    assert offsets(consumer, 80) == {0: list(range(20, 100))}


def test_a_poll_waits_no_longer_than_it_may() -> None:
    _, consumer = rig(end=0)
    consumer.assign({ZERO: 0})
    before = consumer._core.io.now_ms()
    assert run_blocking(consumer.poll(300, 10)) == []
    assert 300 <= consumer._core.io.now_ms() - before < 310


def test_a_seek_forgets_what_was_fetched_and_what_is_on_its_way() -> None:
    _, consumer = rig()
    consumer.assign({ZERO: 0})
    run_blocking(consumer.poll(1000, 1))
    consumer.seek(ZERO, 70)
    assert offsets(consumer, 30) == {0: list(range(70, 100))}


@pytest.mark.parametrize("start", [EARLIEST, LATEST, 0])
@pytest.mark.parametrize("others", [{}, {ONE: 50}])
def test_a_seek_while_a_fetch_is_being_built(
    start: int, others: dict[TopicPartition, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that uses an idle connection suspends first, and the application acts meanwhile."""
    logs, consumer = rig(end=50)
    io = consumer._core.io
    consumer.assign({ZERO: 0, **others})
    assert offsets(consumer, 50) == {0: list(range(50))}
    run_blocking(io.pause(10_000))
    logs.end[0] = 60
    pause, seeks = io.pause, [start]

    async def seeking(duration_ms: float) -> None:
        if seeks:
            consumer.seek(ZERO, seeks.pop())
        await pause(duration_ms)

    monkeypatch.setattr(io, "pause", seeking)
    run_blocking(consumer.step())
    assert not seeks
    assert run_blocking(consumer.position(ZERO)) == (60 if start == LATEST else 0)
    logs.end[0] = 70
    first = run_blocking(consumer.position(ZERO))
    assert offsets(consumer, 70 - first) == {0: list(range(first, 70))}


def test_a_new_assignment_replaces_the_old_one() -> None:
    _, consumer = rig()
    consumer.assign({ZERO: 0})
    run_blocking(consumer.poll(1000, 1))
    consumer.assign({ONE: 90})
    assert consumer.assignment() == [ONE]
    assert offsets(consumer, 10) == {1: list(range(90, 100))}


def test_a_moved_leader_is_followed() -> None:
    logs, consumer = rig()
    consumer.assign({ZERO: 0})
    run_blocking(consumer.poll(1000, 1))
    logs.cluster.topics["t"][0] = 2
    logs.cluster.epochs["t"] = 1
    assert offsets(consumer, 90) == {0: list(range(10, 100))}


def ends_of_epochs(end: int, meanwhile: Callable[[], None]) -> Callable[[int, object], object]:
    """A broker whose epochs end at an offset; each time it is asked something else happens."""

    def answer(_: int, request: object) -> OffsetForLeaderEpochResponse:
        assert isinstance(request, OffsetForLeaderEpochRequest)
        meanwhile()
        ends = [
            EpochEndOffset(partition=asked.partition, leader_epoch=0, end_offset=end)
            for topic in request.topics
            for asked in topic.partitions
        ]
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic="t", partitions=ends)]
        )

    return answer


def test_a_partition_may_go_while_its_leader_is_asked_about_epochs() -> None:
    logs, consumer = rig()
    logs.cluster.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = ends_of_epochs(
        100, lambda: consumer.remove({ZERO})
    )
    consumer.seek(ZERO, 5, leader_epoch=0)
    consumer.seek(ONE, 0)
    assert offsets(consumer, 100) == {1: list(range(100))}


def test_an_answer_about_epochs_is_not_taken_for_a_later_assignment() -> None:
    logs, consumer = rig()

    def give_back() -> None:
        consumer.remove({ZERO})
        consumer.seek(ZERO, 50)

    logs.cluster.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = ends_of_epochs(10, give_back)
    consumer.seek(ZERO, 20, leader_epoch=0)
    assert offsets(consumer, 50) == {0: list(range(50, 100))}


def test_committed_offsets_are_not_taken_for_a_later_assignment() -> None:
    """Another member had the partition meanwhile, and has committed more."""
    committed = iter([20, 60])

    async def committed_of(keys: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        found = {key: (next(committed), -1) for key in keys}
        if found[ZERO] == (20, -1):
            consumer.remove({ZERO})
            consumer.start_from(ZERO, COMMITTED)
        return found

    logs, _ = rig()
    core, settings = core_of(logs.cluster), ConsumerSettings()
    consumer = Fetcher(core, settings, Positions(core, settings, committed_of))
    consumer.start_from(ZERO, COMMITTED)
    assert offsets(consumer, 40) == {0: list(range(60, 100))}


@pytest.mark.parametrize(
    "refusal",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.KAFKA_STORAGE_ERROR],
)
def test_retriable_fetch_error_is_retried(refusal: ErrorCode) -> None:
    logs, consumer = rig()
    logs.refuse[0] = [int(refusal)] * 3
    consumer.assign({ZERO: 0, ONE: 0})
    assert offsets(consumer, 200) == {0: list(range(100)), 1: list(range(100))}


def test_a_lost_connection_loses_no_record() -> None:
    logs, consumer = rig()
    logs.refuse[0] = [LOST]
    consumer.assign({ZERO: 0})
    assert offsets(consumer, 100) == {0: list(range(100))}


def test_fatal_fetch_error_is_raised() -> None:
    logs, consumer = rig()
    logs.refuse[0] = [int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    consumer.assign({ZERO: 0})
    with pytest.raises(TopicAuthorizationFailed, match="t-0 at offset 0"):
        run_blocking(consumer.poll(1000, 1))


def test_a_position_outside_the_log_is_reset() -> None:
    for reset, first in (("earliest", [40]), ("latest", [])):
        logs, consumer = rig(ConsumerSettings(reset=reset))
        logs.start[0] = 40
        consumer.assign({ZERO: 0})
        found = run_blocking(consumer.poll(500, 1))
        assert [group.records[0].offset for group in found] == first
        assert run_blocking(consumer.position(ZERO)) == (50 if first else 100)


def test_a_position_outside_the_log_may_be_an_error() -> None:
    logs, consumer = rig(ConsumerSettings(reset="none"))
    logs.start[0] = 40
    consumer.assign({ZERO: 0})
    with pytest.raises(OffsetOutOfRange, match="t-0 at offset 0"):
        run_blocking(consumer.poll(1000, 1))


def test_a_failure_is_kept_once_while_nobody_polls_and_forgotten_by_a_seek() -> None:
    """It is found every 50 ms, for a week if the application is away so long."""
    logs, consumer = rig(ConsumerSettings(reset="none"))
    logs.start[0] = 40
    consumer.assign({ZERO: 0, ONE: 0})

    async def work() -> None:
        for _ in range(100):
            await consumer.step()
            await consumer._core.io.pause(20)

    run_blocking(work())
    with pytest.raises(OffsetOutOfRange, match="t-0 at offset 0"):
        run_blocking(consumer.poll(0, 1))
    run_blocking(work())
    consumer.seek(ZERO, 40)
    assert offsets(consumer, 160) == {0: list(range(40, 100)), 1: list(range(100))}


def test_fetching_stops_while_the_application_lags_behind() -> None:
    logs, consumer = rig(end=1000)
    consumer.assign({ZERO: 0})
    for _ in range(5):
        run_blocking(consumer.poll(100, 10))
    assert len(logs.cluster.requests(FetchRequest)) <= 4, "50 records a fetch, two fetches ahead"


def test_a_consumer_of_a_group_tells_its_metadata() -> None:
    consumer = Fetcher(core_of(FakeCluster()), ConsumerSettings(group_id="g"))
    assert consumer.group_metadata() == GroupMetadata("g", -1, "", None)
    with pytest.raises(InvalidSetting, match="group_id"):
        Fetcher(core_of(FakeCluster()), ConsumerSettings()).group_metadata()


def test_isolation_is_asked_for() -> None:
    logs, consumer = rig(ConsumerSettings(read_committed=True))
    consumer.assign({ZERO: EARLIEST})
    assert offsets(consumer, 100) == {0: list(range(100))}
    (first, *_) = logs.cluster.requests(FetchRequest)
    assert isinstance(first, FetchRequest)
    assert first.isolation_level == 1


def test_blocks_come_as_they_were_fetched_up_to_a_stop() -> None:
    """For those who decode in bulk: 50 records a fetch here, and none behind the stop."""
    logs, consumer = rig(end=1_000)
    consumer.assign({ZERO: 7})
    consumer.stop_at(ZERO, 60)
    blocks = [run_blocking(consumer.poll_block(50)) for _ in range(3)]
    ends = [block.end_offset if block is not None else None for block in blocks]
    assert ends == [50, 100, None]
    assert run_blocking(consumer.position(ZERO)) == 100
    asked = [
        partition.fetch_offset
        for request in logs.cluster.requests(FetchRequest)
        if isinstance(request, FetchRequest)
        for topic in request.topics
        for partition in topic.partitions
    ]
    assert asked == [7, 50]


def test_a_block_gives_batches_or_the_records_in_them() -> None:
    _, consumer = rig(end=30)
    consumer.assign({ZERO: 15})
    block = run_blocking(consumer.poll_block(50))
    assert block is not None
    taken = block.take_batch()
    assert taken is not None
    assert (taken[0].base_offset, len(decode_batch(taken[1]))) == (10, 10)
    assert [record.offset for record in block.take()] == list(range(20, 30))


def test_a_thread_that_polls_may_look_at_fetches_while_another_sends_them() -> None:
    """The one that sends may add a broker meanwhile."""

    class Asked(Source):
        @property
        def is_done(self) -> bool:
            fetcher._sources[self.node_id + 3] = Source(self.node_id + 3)
            return False

    fetcher = Fetcher(core_of(FakeCluster()), ConsumerSettings())
    fetcher._sources.update({node_id: Asked(node_id) for node_id in range(3)})
    assert not fetcher.has_work

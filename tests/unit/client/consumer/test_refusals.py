"""How a consumer handles responses that are wrong, partial or refusals."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raylog.client.arrow.tables import poll_table
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.agenda import Agenda
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.positions import LogTruncated, NoOffset, Positions
from raylog.client.consumer.progress import COMMITTED
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.errors import NotKafka
from raylog.client.io import run_blocking
from raylog.client.offsets import EARLIEST, LATEST
from raylog.wire.api import ApiKey
from raylog.wire.errors import (
    CorruptMessage,
    ErrorCode,
    GroupAuthorizationFailed,
    InvalidRecord,
    OffsetOutOfRange,
    error_of,
)
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.records import Record, encode_batch, read_header
from tests.unit.client.test_consumer import ONE, ZERO, ends_of_epochs
from tests.worlds.client.cluster import NOTHING, FakeCluster, core_of
from tests.worlds.client.fetcher_partitions import Logs, rig


def records_of(answer: PartitionData) -> bytes:
    """What a partition's answer brings."""
    assert isinstance(answer.records, bytes)
    return answer.records


def spoil(logs: Logs, partition: int, base_offset: int) -> None:
    """Let a partition's batch at an offset have another CRC than its header says."""

    def change(answer: PartitionData) -> None:
        data = bytearray(records_of(answer))
        position = 0
        while position < len(data):
            header = read_header(data, position)
            position += header.size
            if header.base_offset == base_offset:
                data[position - header.size + 17] ^= 0xFF
        answer.records = bytes(data)

    edit(logs, partition, change)


def edit(logs: Logs, partition: int, change: Callable[[PartitionData], None]) -> None:
    """Change a partition's answers before they are sent."""
    read = logs.read

    def edited(broker: int, asked: FetchPartition, request: FetchRequest) -> object:
        answer = read(broker, asked, request)
        if isinstance(answer, PartitionData) and answer.partition_index == partition:
            change(answer)
        return answer

    logs.read = edited  # type: ignore[method-assign]  # a broker that is not as it should be


def polled(consumer: Fetcher, polls: int, max_records: int = 1000) -> list[Any]:
    """What each poll brought: partitions and offsets, or the failure that it raised."""
    seen: list[Any] = []
    for _ in range(polls):
        try:
            groups = run_blocking(consumer.poll(200, max_records))
        except Exception as error:  # noqa: BLE001  # the test compares it
            seen.append(type(error))
            continue
        seen += [(group.partition, record.offset) for group in groups for record in group.records]
    return seen


def test_a_corrupt_batch_is_raised_until_the_application_seeks() -> None:
    logs, consumer = rig(end=30)
    spoil(logs, 0, 10)
    consumer.assign({ZERO: 0})
    assert polled(consumer, 3) == [*((0, i) for i in range(10)), CorruptMessage, CorruptMessage]
    assert run_blocking(consumer.position(ZERO)) == 10
    consumer.seek(ZERO, 20)
    assert polled(consumer, 1) == [(0, i) for i in range(20, 30)]


def test_without_a_check_of_checksums_a_wrong_one_does_not_matter() -> None:
    logs, consumer = rig(ConsumerSettings(check_crcs=False), end=30)
    spoil(logs, 0, 10)
    consumer.assign({ZERO: 0})
    assert polled(consumer, 1) == [(0, i) for i in range(30)]


def test_records_of_other_partitions_are_handed_out_before_a_corrupt_batch_raises() -> None:
    logs, consumer = rig(end=10)
    spoil(logs, 1, 0)
    consumer.assign({ZERO: 0, ONE: 0})
    seen = polled(consumer, 4)
    assert [one for one in seen if one is not CorruptMessage] == [(0, i) for i in range(10)]
    assert seen.count(CorruptMessage) == 3


def test_a_batch_that_seems_to_end_far_away_is_what_is_raised() -> None:
    """And not that there is nothing where it seems to end."""
    logs, consumer = rig(ConsumerSettings(reset="none"), end=30)

    def change(answer: PartitionData) -> None:
        if answer.records:
            data = bytearray(records_of(answer))
            data[23:27] = b"\0\1\0\0"
            answer.records = bytes(data)

    edit(logs, 0, change)
    consumer.assign({ZERO: 0})
    run_blocking(consumer.step())
    run_blocking(consumer._core.io.wait(consumer.any_done, 50))
    for _ in range(3):
        run_blocking(consumer.step())
        run_blocking(consumer._core.io.pause(200))
    assert polled(consumer, 3) == [CorruptMessage] * 3
    assert run_blocking(consumer.position(ZERO)) == 0


def test_records_are_handed_out_in_bulk_up_to_a_corrupt_batch() -> None:
    logs, consumer = rig(end=30)
    spoil(logs, 0, 10)
    consumer.assign({ZERO: 0})
    for _ in range(2):
        table = run_blocking(poll_table(consumer, 1_000))
        assert table["offset"].to_pylist() == list(range(10))
        for _ in range(2):
            with pytest.raises(CorruptMessage, match="t-0 at offset 10: batch CRC"):
                run_blocking(poll_table(consumer, 1_000))
        assert run_blocking(consumer.position(ZERO)) == 10
        consumer.seek(ZERO, 0)


def test_records_are_handed_out_in_bulk_up_to_malformed_ones() -> None:
    """Their CRC is right, or not looked at."""
    logs, consumer = rig(ConsumerSettings(check_crcs=False), end=30)

    def change(answer: PartitionData) -> None:
        data = bytearray(records_of(answer))
        position = 0
        while position < len(data):
            header = read_header(data, position)
            if header.base_offset == 10:
                data[position + 61] ^= 0xFE  # the length of its first record
            position += header.size
        answer.records = bytes(data)

    edit(logs, 0, change)
    consumer.assign({ZERO: 3, ONE: 0})
    found: list[tuple[int, int]] = []
    refused: list[str] = []
    for _ in range(6):
        try:
            table = run_blocking(poll_table(consumer, 200))
        except InvalidRecord as error:
            refused.append(str(error))
        else:
            found += zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    assert sorted(found) == [*((0, i) for i in range(3, 10)), *((1, i) for i in range(30))]
    assert len(refused) >= 2
    assert all("t-0 from 10 on" in text for text in refused)
    assert run_blocking(consumer.position(ZERO)) == 10
    consumer.seek(ZERO, 20)
    assert run_blocking(poll_table(consumer, 200))["offset"].to_pylist() == list(range(20, 30))


def test_a_batch_that_its_taker_refuses_is_given_again() -> None:
    class Taker:
        is_full = False
        record_count = 0

        def take(self, _: object, from_offset: int, *__: object) -> None:
            given.append(from_offset)
            raise CorruptMessage("refused")

    given: list[int] = []
    _, consumer = rig()
    consumer.assign({ZERO: 0})
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="refused"):
            run_blocking(consumer.poll_into(Taker(), 200))
    assert given == [0, 0]


def spoil_header(logs: Logs, base_offset: int) -> None:
    """Let the batch of partition 0 at an offset be of a format that no broker sends."""

    def change(answer: PartitionData) -> None:
        data = bytearray(records_of(answer))
        position = 0
        while position < len(data):
            header = read_header(data, position)
            if header.base_offset == base_offset:
                data[position + 16] = 7
                break
            position += header.size
        answer.records = bytes(data)

    edit(logs, 0, change)


@pytest.mark.parametrize("base_offset", [0, 10])
def test_a_batch_of_an_unknown_format_is_raised_until_the_application_seeks(
    base_offset: int,
) -> None:
    logs, consumer = rig(end=30)
    spoil_header(logs, base_offset)
    consumer.assign({ZERO: 0, ONE: 25})
    seen = polled(consumer, 8)
    assert sorted(one for one in seen if one is not CorruptMessage) == [
        *((0, i) for i in range(base_offset)),
        *((1, i) for i in range(25, 30)),
    ]
    assert CorruptMessage in seen
    run_blocking(consumer._core.io.pause(2_000))
    run_blocking(consumer.step())
    run_blocking(consumer._core.io.pause(50))
    run_blocking(consumer.step())
    with pytest.raises(CorruptMessage, match=f"t-0 at offset {base_offset}: magic 7"):
        consumer.take(1)
    consumer.seek(ZERO, 20)
    assert [one for one in polled(consumer, 2) if one is not CorruptMessage] == [
        (0, i) for i in range(20, 30)
    ]


def test_malformed_answer_is_raised_and_fetching_continues() -> None:
    logs, consumer = rig(end=20)
    fetch = logs.cluster.handlers[ApiKey.FETCH]
    answered: list[object] = []

    def once(broker: int, request: object) -> object:
        answered.append(request)
        if len(answered) == 1:
            for pending in consumer._core._channels[broker].connection.pending:
                pending.take(None)
        return fetch(broker, request)

    logs.cluster.handlers[ApiKey.FETCH] = once
    consumer.assign({ZERO: 0})
    seen = polled(consumer, 5)
    assert seen == [NotKafka, *((0, i) for i in range(20))]


def test_a_batch_that_is_cut_is_raised_and_not_asked_for_without_a_pause() -> None:
    logs, consumer = rig(end=20)
    edit(logs, 0, lambda answer: setattr(answer, "records", records_of(answer)[:70]))
    consumer.assign({ZERO: 0})
    assert polled(consumer, 5) == [CorruptMessage] * 5
    assert len(logs.cluster.requests(FetchRequest)) < 50


# -- room ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_all_brokers_are_fetched_from_however_many_there_are() -> None:
    brokers = 12
    leaders = {index: index + 1 for index in range(brokers)}
    cluster = FakeCluster(brokers, {"t": leaders})
    Logs(cluster, end=dict.fromkeys(leaders, 10))
    consumer = Fetcher(core_of(cluster), ConsumerSettings())
    consumer.assign({TopicPartition("t", index): 0 for index in leaders})
    seen = polled(consumer, 3)
    assert sorted(seen) == [(index, i) for index in leaders for i in range(10)]


def big(logs: Logs, partition: int, size: int) -> None:
    """Let each answer of a partition be one record of that many bytes."""
    read = logs.read

    def changed(broker: int, asked: FetchPartition, request: FetchRequest) -> object:
        if asked.partition != partition:
            return read(broker, asked, request)
        record = Record(0, 1000, None, b"x" * size, [])
        return PartitionData(
            partition_index=partition,
            high_watermark=1_000_000,
            records=encode_batch([record], base_offset=asked.fetch_offset),
        )

    logs.read = changed  # type: ignore[method-assign]  # a broker with other records


def test_paused_partitions_leave_room_for_others_and_lose_nothing() -> None:
    logs, consumer = rig(ConsumerSettings(prefetch_bytes=66 * 1024), end=50)
    big(logs, 0, 40_000)
    consumer.assign({ZERO: 0})
    for _ in range(5):
        run_blocking(consumer._core.io.pause(50))
        run_blocking(consumer.step())
    assert consumer.buffered_bytes > 40_000
    consumer.pause([ZERO])
    assert consumer.paused() == [ZERO]
    consumer.seek(ONE, 0)
    assert polled(consumer, 5) == [(1, i) for i in range(50)]
    assert consumer.buffered_bytes < 40_000
    consumer.resume([ZERO])
    assert polled(consumer, 3, 1) == [(0, 0), (0, 1), (0, 2)]


def test_few_records_do_not_hold_a_large_answer() -> None:
    logs, consumer = rig(end=10)
    big(logs, 1, 500_000)
    consumer.assign({ZERO: 0, ONE: 0})
    run_blocking(consumer.step())
    run_blocking(consumer._core.io.pause(50))
    run_blocking(consumer.step())
    small, large = (consumer.progress_of(key) for key in (ZERO, ONE))
    assert small is not None
    assert large is not None
    held = [memoryview(block._data.obj).nbytes for block in (*small.blocks, *large.blocks)]
    assert len(held) == 2
    assert held[0] < 2_000 < 500_000 < held[1]


def test_a_fetch_may_take_as_long_as_any_request() -> None:
    logs, consumer = rig()
    logs.cluster.handlers[ApiKey.FETCH] = lambda *_: NOTHING
    consumer.assign({ZERO: 0})
    run_blocking(consumer.step())
    (source,) = consumer._sources.values()
    assert source.pending is not None
    settings = consumer._core.settings
    assert (
        source.pending.deadline_ms > consumer._core.io.now_ms() + settings.request_timeout_ms - 99
    )


# -- positions -------------------------------------------------------------------------------------


def assigned(leaders: dict[int, int], **cluster: object) -> tuple[Logs, Fetcher]:
    """A consumer of partitions whose leaders are given, from their beginning."""
    fake = FakeCluster(2, {"t": leaders}, **cluster)  # type: ignore[arg-type]  # passed through
    logs = Logs(fake, end=dict.fromkeys(leaders, 20))
    consumer = Fetcher(core_of(fake), ConsumerSettings())
    consumer.assign({TopicPartition("t", index): EARLIEST for index in leaders})
    return logs, consumer


def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    logs, consumer = assigned({0: 1, 1: -1})
    assert polled(consumer, 3) == [(0, i) for i in range(20)]
    logs.cluster.topics["t"][1] = 2
    assert polled(consumer, 20) == [(1, i) for i in range(20)]


def test_a_broker_that_is_down_holds_up_no_other() -> None:
    _, consumer = assigned({0: 1, 1: 2}, down={2})
    assert polled(consumer, 5) == [(0, i) for i in range(20)]


def test_a_topic_that_does_not_exist_holds_up_no_other() -> None:
    _, consumer = rig(end=20)
    consumer.assign({ZERO: EARLIEST, TopicPartition("missing", 0): EARLIEST})
    assert polled(consumer, 5) == [(0, i) for i in range(20)]


def test_a_partition_without_a_leader_holds_up_no_check_of_epochs() -> None:
    logs, consumer = assigned({0: 1, 1: -1})
    logs.cluster.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = ends_of_epochs(100, lambda: None)
    consumer.seek(ZERO, 5, leader_epoch=0)
    consumer.seek(ONE, 5, leader_epoch=0)
    assert polled(consumer, 5) == [(0, i) for i in range(5, 20)]


def test_a_partition_that_an_answer_leaves_out_is_asked_about_again_later() -> None:
    logs, consumer = rig(end=20)

    def partly(broker: int, request: object) -> ListOffsetsResponse:
        answer = logs.list_offsets(broker, request)
        (topic,) = answer.topics
        topic.partitions = [one for one in topic.partitions if one.partition_index != 1]
        topic.partitions.append(ListOffsetsPartitionResponse(partition_index=9, offset=5))
        return answer

    logs.cluster.handlers[ApiKey.LIST_OFFSETS] = partly
    consumer.assign({ZERO: EARLIEST, ONE: EARLIEST})
    seen = polled(consumer, 20)
    assert [one for one in seen if one is not NotKafka] == [(0, i) for i in range(20)]
    assert NotKafka in seen
    with pytest.raises(NotKafka, match="about t-1"):
        run_blocking(consumer.position(ONE))
    assert len(logs.cluster.requests(ListOffsetsRequest)) < 100


def test_an_end_that_no_log_has_is_not_asked_for_without_a_pause() -> None:
    logs, consumer = rig(end=20)
    logs.end[0] = -7
    consumer.assign({ZERO: LATEST})
    assert set(polled(consumer, 20)) == {NotKafka}
    assert len(logs.cluster.requests(ListOffsetsRequest)) < 100


def test_an_offset_that_was_looked_up_late_does_not_move_a_position_back() -> None:
    logs, consumer = rig(end=20)
    answers: list[int] = []

    def meanwhile(broker: int, request: object) -> ListOffsetsResponse:
        answers.append(len(answers))
        if len(answers) == 1:  # another task asks as well, and its answer is used before
            progress = consumer.progress_of(ZERO)
            assert progress is not None
            progress.fetch_offset = progress.position = 10
        return logs.list_offsets(broker, request)

    logs.cluster.handlers[ApiKey.LIST_OFFSETS] = meanwhile
    consumer.assign({ZERO: EARLIEST})
    assert polled(consumer, 3) == [(0, i) for i in range(10, 20)]


def test_a_truncated_log_is_raised_and_not_read_until_a_seek() -> None:
    fake = FakeCluster(2, {"t": {0: 1}}, epochs={"t": 1})
    Logs(fake, end={0: 200}, epochs=[(1, 0)])
    end = [1000]
    fake.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = lambda broker, request: ends_of_epochs(
        end[0], lambda: None
    )(broker, request)
    consumer = Fetcher(core_of(fake), ConsumerSettings(reset="none"))
    consumer.seek(ZERO, 0, leader_epoch=1)
    assert polled(consumer, 1, 10) == [(0, i) for i in range(10)]
    end[0], fake.epochs["t"] = 5, 2
    run_blocking(consumer.positions.core.refresh(["t"]))
    consumer.metadata_seen(["t"])
    seen = polled(consumer, 20, 10)
    behind = [one for one in seen if one is not LogTruncated]
    assert behind == [(0, i) for i in range(10, 10 + len(behind))]
    assert seen[len(behind) :] == [LogTruncated] * (len(seen) - len(behind))
    assert LogTruncated in seen
    consumer.seek(ZERO, 5, leader_epoch=1)
    assert polled(consumer, 1, 10) == [(0, i) for i in range(5, 20)]


def test_a_member_that_must_join_first_asks_for_committed_offsets_again() -> None:
    answers: list[dict[TopicPartition, tuple[int, int]] | None] = [{ZERO: (10, -1)}, None]

    async def committed_of(_: object) -> dict[TopicPartition, tuple[int, int]] | None:
        return answers.pop()

    logs, _ = rig(end=20)
    core, settings = core_of(logs.cluster), ConsumerSettings()
    consumer = Fetcher(core, settings, Positions(core, settings, committed_of))
    consumer.start_from(ZERO, COMMITTED)
    assert polled(consumer, 5) == [(0, i) for i in range(10, 20)]


# -- failures --------------------------------------------------------------------------------------


def test_failures_do_not_pile_up_while_nobody_polls() -> None:
    logs, consumer = rig(ConsumerSettings(reset="none"))
    logs.start[0] = 50
    consumer.assign({ZERO: 10})
    io = consumer._core.io
    end_ms = io.now_ms() + 10_000
    while io.now_ms() < end_ms:
        run_blocking(consumer.step())
        run_blocking(
            consumer._core.wait_for(lambda: consumer.has_work, min(end_ms, consumer.next_try_ms()))
        )
    assert polled(consumer, 1) == [OffsetOutOfRange]
    consumer.seek(ZERO, 90)
    assert polled(consumer, 2) == [(0, i) for i in range(90, 100)]


def test_a_refusal_of_all_partitions_is_raised_once() -> None:
    async def committed_of(keys: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        raise error_of(ErrorCode.GROUP_AUTHORIZATION_FAILED, "offsets")

    logs, _ = rig()
    core, settings = core_of(logs.cluster), ConsumerSettings()
    consumer = Fetcher(core, settings, Positions(core, settings, committed_of))
    consumer.start_from(ZERO, COMMITTED)
    consumer.start_from(ONE, COMMITTED)
    run_blocking(consumer.step())
    with pytest.raises(GroupAuthorizationFailed):
        consumer.take(1)
    assert consumer.take(1) == []


def test_partitions_may_be_touched_while_metadata_is_looked_up() -> None:
    """Another thread takes records meanwhile, under the lock."""

    class Lock:
        held = 0

        def __enter__(self) -> None:
            self.held += 1

        def __exit__(self, *_: object) -> None:
            self.held -= 1

    class Touched(dict[TopicPartition, None]):
        def __iter__(self) -> Iterator[TopicPartition]:
            assert lock.held, "another thread may add to it"
            return super().__iter__()

    lock = Lock()
    _, consumer = rig()
    consumer.lock = lock  # type: ignore[assignment]  # it only counts
    consumer._touched = Touched()
    consumer.assign({ZERO: 0})
    run_blocking(consumer.step())
    assert consumer.any_pending


# -- pauses ----------------------------------------------------------------------------------------


def test_pauses_grow_and_begin_anew_after_an_answer() -> None:
    logs, consumer = rig(end=20)
    refusals: list[object] = [int(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 1_000
    logs.refuse[0] = refusals
    consumer.assign({ZERO: 0})
    assert polled(consumer, 50) == []  # 10 s
    assert 5 < 1_000 - len(refusals) < 30
    refusals.clear()
    assert polled(consumer, 10) == [(0, i) for i in range(20)]
    progress = consumer.progress_of(ZERO)
    assert progress is not None
    assert progress.backoff is None


def test_many_partitions_that_wait_ask_for_metadata_together() -> None:
    leaders = dict.fromkeys(range(500), -1)
    cluster = FakeCluster(1, {"t": leaders})
    Logs(cluster)
    consumer = Fetcher(core_of(cluster), ConsumerSettings())
    rising = iter(range(100_000))
    consumer._core.io.chance = lambda: next(rising) % 100 / 100  # type: ignore[method-assign]
    consumer.assign({TopicPartition("t", index): 0 for index in leaders})
    assert polled(consumer, 50) == []  # 10 s
    assert len(cluster.requests(MetadataRequest)) < 60


def test_a_replica_that_refuses_is_asked_again_after_growing_pauses() -> None:
    logs, consumer = rig(ConsumerSettings(client_rack="r"))

    def read(broker: int, asked: FetchPartition, request: FetchRequest) -> PartitionData:
        del request
        if broker == 1:
            return PartitionData(high_watermark=100, preferred_read_replica=2, records=b"")
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionData(partition_index=asked.partition, error_code=code)

    logs.read = read  # type: ignore[method-assign]  # a leader that names a bad replica
    consumer.assign({ZERO: 0})
    assert polled(consumer, 50) == []  # 10 s
    assert 5 < len(logs.cluster.requests(FetchRequest)) < 60
    assert len(consumer._again._heap) < 5


def test_a_partition_has_one_time_on_the_agenda() -> None:
    agenda = Agenda()
    agenda.set(ZERO, 300.0)
    for at_ms in range(299, 50, -1):
        agenda.set(ZERO, at_ms)
    agenda.set(ONE, 70.0)
    agenda.set(ONE, 80.0)
    assert len(agenda._heap) < 100
    assert (agenda.due(50), agenda.next_ms) == ([], 51)
    assert agenda.due(75) == [ZERO, ONE]
    agenda.set(ZERO, 90.0)
    agenda.drop(ZERO)
    assert (agenda.due(1_000), agenda.next_ms) == ([], float("inf"))


# -- topics that are created anew ------------------------------------------------------------------


@pytest.mark.parametrize("newest", [12, 18])
def test_a_topic_that_was_created_anew_is_read_from_its_beginning(newest: int) -> None:
    logs, consumer = rig(end=30)
    logs.cluster.newest[ApiKey.FETCH] = newest
    logs.cluster.epochs["t"] = 5
    consumer.assign({ZERO: EARLIEST})
    assert polled(consumer, 2, 10)[-1] == (0, 19)
    consumer.moved.clear()
    logs.recreate()
    run_blocking(consumer.positions.core.refresh(["t"]))
    consumer.metadata_seen(["t"])
    assert polled(consumer, 5) == [(0, i) for i in range(30)]


def test_a_fetch_tells_that_a_topic_was_created_anew() -> None:
    logs, consumer = rig(end=10)
    consumer.assign({ZERO: EARLIEST})
    assert polled(consumer, 1) == [(0, i) for i in range(10)]
    logs.recreate()
    logs.end[0] = 30
    assert polled(consumer, 10) == [(0, i) for i in range(30)]


def test_in_a_topic_that_was_created_anew_committed_offsets_hold() -> None:
    async def committed_of(keys: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(keys, (20, -1))

    logs, _ = rig(end=10)
    core, settings = core_of(logs.cluster), ConsumerSettings()
    consumer = Fetcher(core, settings, Positions(core, settings, committed_of))
    consumer.seek(ZERO, 0)
    assert polled(consumer, 1) == [(0, i) for i in range(10)]
    logs.recreate()
    logs.end[0] = 30
    assert polled(consumer, 10) == [(0, i) for i in range(20, 30)]


def test_without_a_reset_a_topic_that_was_created_anew_is_an_error() -> None:
    logs, consumer = rig(ConsumerSettings(reset="none"), end=10)
    consumer.seek(ZERO, 0)
    assert polled(consumer, 1) == [(0, i) for i in range(10)]
    logs.recreate()
    seen = polled(consumer, 10)
    assert set(seen) == {NoOffset}
    consumer.seek(ZERO, 5)
    assert polled(consumer, 3) == [(0, i) for i in range(5, 10)]

"""Records that were read and then lost in a change of leaders are detected (KIP-320)."""

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.positions import LogTruncated
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.messages.fetch import FetchRequest
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.worlds.client.fetcher_partitions import Logs, offsets, rig

ZERO = TopicPartition("t", 0)
NO_RESET = ConsumerSettings(reset="none")


def read_up_to(count: int, settings: ConsumerSettings) -> tuple[Logs, Fetcher]:
    """A consumer that has taken so many records of epoch 0, and has nothing more here."""
    logs, consumer = rig(settings, end=count)
    logs.epochs = [(0, 0)]
    consumer.assign({ZERO: 0})
    assert len(offsets(consumer, count)[0]) == count
    return logs, consumer


def elect(logs: Logs, consumer: Fetcher, *, keeps: int, end: int) -> None:
    """Broker 2 leads from now on, in epoch 1; it has `keeps` records of epoch 0."""
    logs.cluster.topics["t"][0] = 2
    logs.cluster.epochs["t"] = 1
    logs.epochs = [(0, 0), (1, keeps)]
    logs.end[0] = end
    logs.cluster.seen.clear()
    run_blocking(consumer._core.refresh(["t"]))
    consumer.metadata_seen(["t"])


def epoch_requests(logs: Logs) -> list[tuple[int, int, int]]:
    """(broker, its epoch as the consumer knows it, the epoch asked for)."""
    return [
        (broker, asked.current_leader_epoch, asked.leader_epoch)
        for broker, request in logs.cluster.seen
        if isinstance(request, OffsetForLeaderEpochRequest)
        for asked in request.topics[0].partitions
    ]


def test_a_new_leader_is_asked_before_it_is_fetched_from() -> None:
    logs, consumer = read_up_to(50, NO_RESET)
    elect(logs, consumer, keeps=50, end=100)
    assert offsets(consumer, 50) == {0: list(range(50, 100))}
    assert epoch_requests(logs) == [(2, 1, 0)]
    kinds = [type(request) for broker, request in logs.cluster.seen if broker == 2]
    assert kinds.index(OffsetForLeaderEpochRequest) < kinds.index(FetchRequest)


def test_the_same_leader_is_not_asked_again() -> None:
    logs, consumer = read_up_to(50, NO_RESET)
    logs.cluster.seen.clear()
    logs.end[0] = 100
    run_blocking(consumer._core.refresh(["t"]))
    consumer.metadata_seen(["t"])
    assert offsets(consumer, 50) == {0: list(range(50, 100))}
    assert epoch_requests(logs) == []


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_truncated_log_is_read_on_where_it_diverges(reset: str) -> None:
    """As Kafka's consumer does: with a reset policy it goes to the divergent offset, not there."""
    logs, consumer = read_up_to(50, ConsumerSettings(reset=reset))
    elect(logs, consumer, keeps=30, end=100)
    assert offsets(consumer, 70) == {0: list(range(30, 100))}


def test_without_a_reset_truncation_is_an_error_until_the_application_seeks() -> None:
    logs, consumer = read_up_to(50, NO_RESET)
    elect(logs, consumer, keeps=30, end=100)
    for _ in range(2):
        with pytest.raises(
            LogTruncated, match=r"t-0: expected records up to 50.* ends at 30: seek"
        ):
            run_blocking(consumer.poll(1_000, 1))
    assert not logs.cluster.requests(FetchRequest), "what follows is not what was read before"
    consumer.seek(ZERO, 30)
    assert offsets(consumer, 70) == {0: list(range(30, 100))}


def test_buffered_records_are_fetched_again_after_a_leader_change() -> None:
    logs, consumer = rig(NO_RESET, end=50)
    logs.epochs = [(0, 0)]
    consumer.assign({ZERO: 0})
    (group,) = run_blocking(consumer.poll(1_000, 1))
    assert len(group.records) == 10
    elect(logs, consumer, keeps=30, end=100)
    found = offsets(consumer, 90)
    assert found == {0: list(range(10, 100))}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_leader_that_knows_no_such_epoch_lets_the_position_be_reset(reset: str) -> None:
    logs, consumer = read_up_to(50, ConsumerSettings(reset=reset))
    elect(logs, consumer, keeps=50, end=60)
    logs.epochs = [(1, 0)]
    if reset == "earliest":
        assert offsets(consumer, 60) == {0: list(range(60))}
    else:
        assert run_blocking(consumer.poll(500, 1)) == []
        logs.end[0] = 70
        assert offsets(consumer, 10) == {0: list(range(60, 70))}


def test_a_truncation_while_the_answer_says_which_epoch_was_kept_is_followed_by_another() -> None:
    """The position gets the epoch that the leader named, so the next leader is asked for that."""
    logs, consumer = read_up_to(50, ConsumerSettings(reset="earliest"))
    elect(logs, consumer, keeps=30, end=30)
    assert run_blocking(consumer.poll(500, 1)) == []
    logs.cluster.epochs["t"] = 2
    logs.epochs = [(0, 0), (2, 20)]
    logs.end[0] = 40
    run_blocking(consumer._core.refresh(["t"]))
    consumer.metadata_seen(["t"])
    assert offsets(consumer, 20) == {0: list(range(20, 40))}


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH])
def test_a_fenced_leader_epoch_is_looked_up_anew(api: ApiKey) -> None:
    """FENCED_LEADER_EPOCH: the leader is newer than the metadata; that is asked for again."""
    logs, consumer = read_up_to(50, NO_RESET)
    if api is ApiKey.FETCH:
        logs.end[0] = 100
        logs.cluster.seen.clear()
        logs.cluster.epochs["t"] = 1
    else:
        elect(logs, consumer, keeps=50, end=100)
        logs.cluster.epochs["t"] = 2
    assert offsets(consumer, 50) == {0: list(range(50, 100))}
    assert logs.cluster.requests(MetadataRequest)
    assert epoch_requests(logs)[-1] == (logs.cluster.topics["t"][0], logs.cluster.epochs["t"], 0)


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH])
def test_an_unknown_leader_epoch_is_waited_for(api: ApiKey) -> None:
    """UNKNOWN_LEADER_EPOCH: the broker has not heard yet what the metadata says; no hot loop."""
    logs, consumer = read_up_to(50, NO_RESET)
    logs.end[0] = 100
    real = logs.cluster.handlers[api]
    behind: list[object] = []

    def answer(broker: int, request: object) -> object:
        if len(behind) == 3:
            return real(broker, request)
        behind.append(request)
        held = logs.cluster.epochs["t"]
        logs.cluster.epochs["t"] = held - 1
        try:
            return real(broker, request)
        finally:
            logs.cluster.epochs["t"] = held

    elect(logs, consumer, keeps=50, end=100)
    logs.cluster.handlers[api] = answer
    before_ms = consumer._core.io.now_ms()
    assert offsets(consumer, 50) == {0: list(range(50, 100))}
    assert len(behind) == 3
    assert consumer._core.io.now_ms() - before_ms >= 3 * 50


def test_brokers_before_kafka_2_3_are_not_asked() -> None:
    """OffsetForLeaderEpoch is for consumers from version 3 on."""
    logs, consumer = read_up_to(50, NO_RESET)
    logs.cluster.newest[ApiKey.OFFSET_FOR_LEADER_EPOCH] = 2
    consumer._core.close()
    elect(logs, consumer, keeps=30, end=100)
    assert offsets(consumer, 50) == {0: list(range(50, 100))}
    assert epoch_requests(logs) == []


def test_a_committed_epoch_is_compared_before_the_first_fetch() -> None:
    """A group may have committed what a later leader never had (KIP-320)."""
    logs, consumer = rig(ConsumerSettings(reset="earliest"), end=100)
    logs.cluster.epochs["t"] = 1
    logs.epochs = [(0, 0), (1, 30)]
    consumer.seek(ZERO, 50, leader_epoch=0)
    assert offsets(consumer, 70) == {0: list(range(30, 100))}


def test_a_leader_older_than_what_was_read_is_not_believed() -> None:
    """The metadata names a deposed leader; its log ends before what the group has committed."""
    logs, consumer = rig(ConsumerSettings(reset="earliest"), end=40)
    logs.epochs = [(0, 0)]
    real = logs.cluster.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH]

    def answer(broker: int, request: object) -> object:
        found = real(broker, request)
        logs.cluster.topics["t"][0] = 2
        logs.cluster.epochs["t"] = 1
        logs.epochs = [(0, 0), (1, 30)]
        logs.end[0] = 100
        return found

    logs.cluster.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = answer
    consumer.seek(ZERO, 50, leader_epoch=1)
    assert offsets(consumer, 50) == {0: list(range(50, 100))}
    assert [asked[1:] for asked in epoch_requests(logs)] == [(0, 1), (1, 1)]

"""Fetching from the replica that the leader names, and returning to the leader (KIP-392)."""

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.fetch import FetchRequest
from raylog.wire.messages.metadata import MetadataRequest
from tests.worlds.client.fetcher_partitions import Logs, offsets, rig

ZERO = TopicPartition("t", 0)
NEAR = ConsumerSettings(client_rack="near", reset="none")


def near_rig(settings: ConsumerSettings = NEAR) -> tuple[Logs, Fetcher]:
    """Broker 1 leads, broker 2 is in the consumer's rack."""
    logs, consumer = rig(settings)
    logs.near["near"] = 2
    consumer.assign({ZERO: 0})
    return logs, consumer


def asked(logs: Logs) -> list[int]:
    """The brokers that were sent fetches, in order."""
    return [broker for broker, request in logs.cluster.seen if isinstance(request, FetchRequest)]


def test_the_leader_is_asked_first_and_the_replica_that_it_names_from_then_on() -> None:
    logs, consumer = near_rig()
    assert offsets(consumer, 100) == {0: list(range(100))}
    first, *others = asked(logs)
    assert (first, set(others)) == (1, {2})
    fetches = logs.cluster.requests(FetchRequest)
    assert {getattr(fetch, "rack_id", None) for fetch in fetches} == {"near"}


def test_without_client_rack_all_is_read_from_the_leader() -> None:
    logs, consumer = near_rig(ConsumerSettings(reset="none"))
    assert offsets(consumer, 100) == {0: list(range(100))}
    assert set(asked(logs)) == {1}


def test_brokers_that_know_no_racks_are_not_told_any() -> None:
    logs, consumer = rig(NEAR)
    logs.cluster.newest[ApiKey.FETCH] = 10
    consumer.assign({ZERO: 0})
    assert offsets(consumer, 100) == {0: list(range(100))}
    assert set(asked(logs)) == {1}


def test_the_replica_is_left_for_the_leader_when_its_time_is_over() -> None:
    """The leader is asked again after metadata.max.age.ms: a nearer replica may be there."""
    logs, consumer = near_rig()
    offsets(consumer, 50)
    logs.cluster.seen.clear()
    logs.near.clear()
    run_blocking(consumer._core.io.pause(300_001))
    logs.end[0] = 200
    assert offsets(consumer, 150)[0][-1] == 199
    assert asked(logs)[-1] == 1


@pytest.mark.parametrize("gone", ["refuses connections", "is not in the metadata", "is offline"])
def test_a_replica_that_is_gone_is_left_for_the_leader(gone: str) -> None:
    logs, consumer = near_rig()
    offsets(consumer, 10, 1)
    logs.near.clear()
    match gone:
        case "refuses connections":
            logs.cluster.down.add(2)
            consumer._core._channels.pop(2)
        case "is not in the metadata":
            logs.cluster.brokers = 1
            run_blocking(consumer._core.refresh(["t"]))
        case "is offline":
            logs.cluster.offline.add(2)
            run_blocking(consumer._core.refresh(["t"]))
    logs.cluster.seen.clear()
    consumer.seek(ZERO, 40)
    assert offsets(consumer, 60) == {0: list(range(40, 100))}
    assert asked(logs)[-1] == 1


def test_a_replica_that_goes_offline_is_not_asked_though_it_answers() -> None:
    """Metadata says offline_replicas: Kafka's consumer goes back to the leader at once."""
    logs, consumer = near_rig()
    run_blocking(consumer.poll(1_000, 1))
    logs.cluster.offline.add(2)
    logs.near.clear()
    run_blocking(consumer._core.refresh(["t"]))
    consumer.metadata_seen(["t"])
    logs.cluster.seen.clear()
    assert offsets(consumer, 90)[0][-1] == 99
    assert 2 not in asked(logs)[1:], "one may have been on its way"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_refusal_of_a_follower_switches_back_to_the_leader(code: ErrorCode) -> None:
    """OFFSET_OUT_OF_RANGE of a follower resets nothing: it may be behind the leader, or ahead."""
    logs, consumer = near_rig()
    run_blocking(consumer.poll(1_000, 1))
    logs.near.clear()
    logs.refuse[0] = [int(code)]
    logs.end[0] = 300
    assert offsets(consumer, 290) == {0: list(range(10, 300))}
    assert asked(logs)[-1] == 1


def test_the_leaders_own_word_about_an_offset_counts() -> None:
    logs, consumer = near_rig(ConsumerSettings(client_rack="near", reset="earliest"))
    logs.start[0] = 40
    assert offsets(consumer, 60) == {0: list(range(40, 100))}


def test_a_follower_that_is_behind_and_named_again_and_again_is_not_hammered() -> None:
    """The follower lacks what was read from the leader; requests have pauses until it has it."""
    logs, consumer = near_rig()
    logs.follower_end = 30
    consumer.seek(ZERO, 60)
    before_ms = consumer._core.io.now_ms()
    assert run_blocking(consumer.poll(5_000, 1)) == []
    assert consumer._core.io.now_ms() - before_ms == pytest.approx(5_000, abs=100)
    assert len(asked(logs)) <= 2 * 5_000 / 50 + 2
    assert len(logs.cluster.requests(MetadataRequest)) <= 5_000 / 50 + 2
    logs.follower_end = 100
    assert offsets(consumer, 40) == {0: list(range(60, 100))}

"""Our consumer on Raylog and on Apache Kafka: static members, and truncated logs."""

import time
from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest

from raylog.client import (
    BlockingClient,
    CommittedOffset,
    Consumer,
    LogTruncated,
    NewTopic,
    RebalanceListener,
    TopicPartition,
)
from raylog.wire.errors import FencedInstanceId, UnreleasedInstanceId
from tests.conformance.conftest import Target

PARTITIONS = 4
PATIENCE_S = 60.0
PROTOCOLS = ["classic", "consumer"]


class Recording(RebalanceListener):
    """The calls that a listener got."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._record("assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._record("revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._record("lost", partitions)

    def _record(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        numbers = sorted(key.partition for key in partitions)
        if numbers:
            self.calls.append((what, numbers))


@pytest.fixture
def made(either: Target, topic: str) -> str:
    """A topic of some partitions."""
    with BlockingClient(either.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    return topic


def member(either: Target, group: str, instance: str, protocol: str) -> Consumer[bytes, bytes]:
    return Consumer(
        either.bootstrap,
        group_id=group,
        group_instance_id=instance,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    )


def poll_until(consumers: list[Consumer[bytes, bytes]], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, [one.assignment() for one in consumers]
        for one in consumers:
            one.poll(50)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    either: Target, made: str, protocol: str
) -> None:
    """ "group.instance.id": away for less than the session, nobody notices (KIP-345)."""
    group, recording = f"g-{uuid4()}", Recording()
    with member(either, group, "stays", protocol) as stays:
        stays.subscribe([made], listener=recording)
        first = member(either, group, "restarts", protocol)
        first.subscribe([made])
        poll_until(
            [stays, first],
            lambda: len(stays.assignment()) == len(first.assignment()) == PARTITIONS // 2,
        )
        had, before = set(first.assignment()), stays.group_metadata()
        first.close()
        recording.calls.clear()
        for _ in range(10):
            stays.poll(100)
        with member(either, group, "restarts", protocol) as again:
            again.subscribe([made])
            poll_until([stays, again], lambda: set(again.assignment()) == had)
            assert again.group_metadata().group_instance_id == "restarts"
        assert recording.calls == []
        assert stays.group_metadata() == before


@pytest.mark.parametrize(
    ("protocol", "refused", "refusal"),
    [("classic", "first", FencedInstanceId), ("consumer", "second", UnreleasedInstanceId)],
)
def test_second_member_with_the_same_instance_id_conflicts(
    either: Target, made: str, protocol: str, refused: str, refusal: type[Exception]
) -> None:
    """Classic: the newer one takes the place. KIP-848: its owner keeps it until it leaves."""
    group = f"g-{uuid4()}"
    first = member(either, group, "i", protocol)
    first.subscribe([made])
    poll_until([first], lambda: len(first.assignment()) == PARTITIONS)
    second = member(either, group, "i", protocol)
    second.subscribe([made])
    other, loser = (second, first) if refused == "first" else (first, second)
    with pytest.raises(refusal):
        poll_until([other, loser], lambda: False)
    loser.close()
    poll_until([other], lambda: len(other.assignment()) == PARTITIONS)
    other.close()


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_committed_offset_that_the_log_of_its_epoch_never_had(
    either: Target, made: str, reset: str
) -> None:
    """A leader that lost 20 of 50 records which a group had read is found out (KIP-320)."""
    key, group = TopicPartition(made, 0), f"g-{uuid4()}"
    with BlockingClient(either.bootstrap) as admin:
        with admin.producer() as producer:
            for number in range(30):
                producer.send(made, b"%d" % number, partition=0)
        admin.commit_group_offsets(group, {key: CommittedOffset(50, leader_epoch=0)})
        consumer: Consumer[bytes, bytes] = Consumer(
            either.bootstrap, group_id=group, auto_offset_reset=reset, enable_auto_commit=False
        )
        with consumer:
            consumer.assign([key])
            if reset == "none":
                with pytest.raises(LogTruncated, match="ends at 30"):
                    poll_until([consumer], lambda: False)
                consumer.seek(key, 30)
            poll_until([consumer], lambda: consumer.position(key) == 30)
            with admin.producer() as producer:
                producer.send(made, b"next", partition=0)
            found = consumer.poll_records(PATIENCE_S * 1000)
            assert [(one.offset, one.value) for one in found] == [(30, b"next")]

"""Prefetched data stays within its limits, whatever brokers send and however long it waits."""

from __future__ import annotations

from collections.abc import Container, Iterator

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from raylog.wire.records import Record, assign, encode_batch
from tests.worlds.client.cluster import FakeCluster, core_of, topic_id

RECORDS = 10
KIB, MIB = 1024, 1024 * 1024


class EndlessLogs:
    """Endless partitions with batches of one size: responses are as large as requested."""

    def __init__(
        self, partitions: int, batch_bytes: int, brokers: int, idle: Container[int] = ()
    ) -> None:
        """`idle`: partitions that have no records."""
        value = b"v" * (batch_bytes // RECORDS)
        self.batch = encode_batch([Record(0, 1000, None, value, ())] * RECORDS)
        self.cluster = FakeCluster(
            brokers, {"t": {index: 1 + index % brokers for index in range(partitions)}}
        )
        self.cluster.handlers[ApiKey.FETCH] = self.fetch
        self.asked: list[int] = []
        """The limit of each fetch."""
        self.sessions: list[set[int]] = []
        """The partitions of each fetch."""
        self._idle = idle
        self._offsets: dict[int, dict[int, int]] = {}
        """By broker: what its session has, in the order in which it answers."""

    def fetch(self, broker: int, request: object) -> object:
        """Batches of one partition after another until the limit; a first one comes whole."""
        assert isinstance(request, FetchRequest)
        self.asked.append(request.max_bytes)
        session = self._offsets.setdefault(broker, {})
        if request.session_epoch <= 0:
            session.clear()
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                session.pop(index, None)
        for topic in request.topics:
            for one in topic.partitions:
                session[one.partition] = one.fetch_offset
        self.sessions.append(set(session))
        answers = list(self._answers(session, request.max_bytes))
        for answer in answers:  # the others come first next time
            session[answer.partition_index] = session.pop(answer.partition_index)
        found = FetchableTopicResponse(topic="t", topic_id=topic_id("t"), partitions=answers)
        return FetchResponse(session_id=7, responses=[found])

    def _answers(self, session: dict[int, int], room: int) -> Iterator[PartitionData]:
        is_first = True
        for index, offset in session.items():
            if index in self._idle:
                continue
            if not is_first and room < len(self.batch):
                return
            batch = bytearray(self.batch)
            assign(batch, offset, 0)
            yield PartitionData(partition_index=index, high_watermark=2**40, records=bytes(batch))
            room -= len(batch)
            is_first = False


class Reader:
    """A consumer of all partitions, whose fetches are answered when `turn` is called."""

    def __init__(self, logs: EndlessLogs, settings: ConsumerSettings) -> None:
        self.core: Core = core_of(logs.cluster)
        self.consumer = Fetcher(self.core, settings)
        self.keys = [TopicPartition("t", index) for index in logs.cluster.topics["t"]]
        self.consumer.assign(dict.fromkeys(self.keys, 0))
        run_blocking(self.consumer.step())

    def turn(self) -> int:
        """Take the answers that are due and ask for more; how much is buffered then."""
        run_blocking(self.core.io.wait(self.consumer.any_done, 10))
        run_blocking(self.consumer.step())
        return self.consumer.buffered_bytes

    def fill(self) -> int:
        """Go on until nothing more is asked for; how much was buffered at most."""
        most = 0
        for _ in range(10_000):
            most = max(most, self.turn())
            if not self.consumer.any_pending:
                return most
        raise AssertionError("it fetches without an end")


@pytest.mark.long
@pytest.mark.parametrize(
    ("partitions", "batch_bytes", "max_bytes"),
    [(10_000, 4 * KIB, MIB), (10_000, 100 * KIB, MIB), (100, 3 * MIB, MIB), (1, 3 * MIB, 16 * MIB)],
    ids=["small", "usual", "larger than a fetch", "alone"],
)
def test_records_fetched_ahead_stay_within_the_limit(
    partitions: int, batch_bytes: int, max_bytes: int
) -> None:
    """Each broker's last answer may pass it, by a batch that comes whole."""
    brokers, prefetch_bytes = 3, 8 * MIB
    logs = EndlessLogs(partitions, batch_bytes, brokers)
    settings = ConsumerSettings(max_bytes=max_bytes, prefetch_bytes=prefetch_bytes)
    reader = Reader(logs, settings)
    limit = prefetch_bytes + brokers * len(logs.batch)
    assert reader.fill() <= limit
    assert reader.consumer.buffered_bytes >= min(prefetch_bytes - 64 * KIB, 2 * len(logs.batch))
    assert max(logs.asked) <= max_bytes
    taken = 0
    for _ in range(100):
        groups = run_blocking(reader.consumer.poll(10, 500))
        taken += sum(len(group.records) for group in groups)
        assert reader.consumer.buffered_bytes <= limit
    assert taken >= 100 * RECORDS, "it goes on"


def test_a_fetch_does_not_wait_for_idle_partitions_while_another_is_full() -> None:
    """The broker would hold it, and what the full one has next, until the longest wait is over."""
    logs = EndlessLogs(2, KIB, brokers=1, idle={1})
    reader = Reader(logs, ConsumerSettings())
    reader.fill()
    for _ in range(3):
        before = len(logs.sessions)
        assert run_blocking(reader.consumer.poll(10, 10 * RECORDS))
        reader.fill()
        assert len(logs.sessions) > before, "it goes on as soon as there is room"
    assert all(session == {0, 1} for session in logs.sessions)


def test_a_full_partition_that_is_paused_holds_up_no_other() -> None:
    """Nobody takes it, so the others are fetched without it."""
    logs = EndlessLogs(2, KIB, brokers=1, idle={1})
    reader = Reader(logs, ConsumerSettings())
    reader.fill()
    reader.consumer.pause([reader.keys[0]])
    reader.turn()
    reader.turn()
    assert logs.sessions[-1] == {1}
    reader.consumer.resume([reader.keys[0]])
    assert run_blocking(reader.consumer.poll(10, 10 * RECORDS))
    reader.turn()
    reader.turn()
    assert logs.sessions[-1] == {0, 1}

"""The only writer of a partition, with a leader that checks sequence numbers as Kafka does."""

from __future__ import annotations

from typing import cast

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.connection import Pending
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.settings import ClientSettings
from raylog.client.transactions import FIRST
from raylog.sink.writer import IN_FLIGHT_MAX, PartitionWriter
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from raylog.wire.records import Record, encode_batch, read_header

KEY = TopicPartition("t", 0)
ROWS = 2
"""Of a block."""


class Leader:
    """A leader that does not know the producer, as seen by the writer's connections.

    Its answer is determined when a request is sent; the writer gets it when it asks.
    """

    settings = ClientSettings((("here", 1),))

    def __init__(self, refusals: int = 0) -> None:
        """It refuses the first requests, as one that is not the leader yet."""
        self.refusals = refusals
        self.sequences: list[int] = []
        """Base sequences of the batches that it has."""
        self.unanswered = 0
        self.most_unanswered = 0

    io = property(lambda self: self)
    backoff = Core.backoff

    def now_ms(self) -> float:
        return 0.0

    def chance(self) -> float:
        return 0.5

    async def pause(self, duration_ms: float) -> None:
        assert duration_ms > 0

    async def refresh(self, topics: list[str]) -> None:
        assert topics == [KEY.topic]

    async def by_leader(self, keys: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
        return {0: keys}

    async def submit(
        self,
        node_id: int,
        request: ProduceRequest,
        expected: type[ProduceResponse],
        *,
        at_most: int,
        at_least: int,
    ) -> Pending[ProduceResponse]:
        header = read_header(cast("bytes", request.topic_data[0].partition_data[0].records))
        assert (at_least, at_most) == FIRST.versions[ApiKey.PRODUCE]
        pending = Pending(ApiKey.PRODUCE, at_most, 0, expected, 0.0)
        answer = PartitionProduceResponse(
            index=0, error_code=self._take(header.base_sequence), base_offset=0
        )
        responses = [TopicProduceResponse(name="t", partition_responses=[answer])]
        pending.take(ProduceResponse(responses=responses, throttle_time_ms=0))
        self.unanswered += 1
        self.most_unanswered = max(self.most_unanswered, self.unanswered)
        return pending

    async def answer(self, pending: Pending[ProduceResponse]) -> ProduceResponse:
        self.unanswered -= 1
        return pending.result()

    def _take(self, base_sequence: int) -> ErrorCode:
        if self.refusals:
            self.refusals -= 1
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if base_sequence in self.sequences:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if self.sequences and base_sequence != self.sequences[-1] + ROWS:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.sequences.append(base_sequence)
        return ErrorCode.NONE


def write(leader: Leader, blocks: int) -> int:
    """Write blocks of rows; returns the last sequence that the writer reports."""
    writer = PartitionWriter(cast("Core", leader), FIRST, "id", ProducerIdentity(7, 3), KEY)
    rows = [Record(0, 5, None, b"row", [])] * ROWS

    async def run() -> int:
        for _ in range(blocks):
            await writer.write(encode_batch(rows, is_transactional=True))
        return (await writer.finish()).last_sequence

    return run_blocking(run())


@pytest.mark.parametrize("refusals", [0, 1, 2, 7])
def test_all_rows_are_written_in_order_whatever_is_refused_for_now(refusals: int) -> None:
    """To a leader that does not know the producer (version 1) any sequence number is the first."""
    leader = Leader(refusals)
    assert write(leader, 8) == 8 * ROWS - 1
    assert leader.sequences == list(range(0, 8 * ROWS, ROWS))


def test_batches_are_under_way_beside_each_other_once_the_producer_is_known() -> None:
    leader = Leader()
    write(leader, 20)
    assert leader.most_unanswered == IN_FLIGHT_MAX

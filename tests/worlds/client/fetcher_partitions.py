"""Partitions in memory for the client's fetcher: refusals, followers, leader epochs."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.io import run_blocking
from raylog.client.offsets import EARLIEST, LATEST
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from raylog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from raylog.wire.records import Record, encode_batch
from raylog.wire.uuids import ZERO_UUID
from tests.worlds.client.cluster import LOST, FakeCluster, core_of, topic_id


@dataclass
class Logs:
    """Partitions whose record values are their offsets, ten records to a batch."""

    cluster: FakeCluster
    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    refuse: dict[int, list[object]] = field(default_factory=dict)
    """Error codes for a partition's next fetches; LOST breaks the connection."""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    near: dict[str, int] = field(default_factory=dict)
    """Rack to the broker to which leaders send its readers (KIP-392)."""
    follower_end: int = 1 << 62
    """The end offset of the followers' logs."""
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(-1, 0)])
    """(leader epoch, first offset) of the leaders' logs."""

    def __post_init__(self) -> None:
        self.cluster.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = self.epoch_ends
        self.cluster.handlers[ApiKey.FETCH] = self.fetch
        self.cluster.handlers[ApiKey.LIST_OFFSETS] = self.list_offsets

    def fetch(self, broker: int, request: object) -> object:
        assert isinstance(request, FetchRequest)
        response = FetchResponse()
        for topic in request.topics:
            answers = []
            is_gone = topic.topic_id not in (ZERO_UUID, self.cluster.ids.get("t", topic_id("t")))
            for asked in topic.partitions:
                if is_gone:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                    answers.append(PartitionData(partition_index=asked.partition, error_code=code))
                    continue
                answer = self.read(broker, asked, request)
                if not isinstance(answer, PartitionData):
                    return answer
                answers.append(answer)
            response.responses.append(
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=answers
                )
            )
        return response

    def recreate(self) -> None:
        """Delete and recreate the topic; fetches by the old id are refused."""
        self.cluster.ids["t"] = b"new".ljust(16, b"\2")
        self.cluster.epochs["t"] = 0

    def read(self, broker: int, asked: FetchPartition, request: FetchRequest) -> object:
        """Return one partition's response."""
        index = asked.partition
        unfit = self.unfit_epoch(asked.current_leader_epoch)
        if unfit is not ErrorCode.NONE:
            return PartitionData(partition_index=index, error_code=unfit)
        refusals = self.refuse.get(index)
        if refusals:
            code = refusals.pop(0)
            if code is LOST:
                return LOST
            return PartitionData(partition_index=index, error_code=int(str(code)))
        first, end = self.start.get(index, 0), self.end.get(index, 0)
        near = self.near.get(request.rack_id)
        if self.cluster.topics["t"][index] == broker:
            if near is not None and near != broker and first <= asked.fetch_offset <= end:
                return PartitionData(
                    partition_index=index, high_watermark=end, preferred_read_replica=near
                )
        elif broker == near:
            end = min(end, self.follower_end)
        else:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return PartitionData(partition_index=index, error_code=code)
        if not first <= asked.fetch_offset <= end:
            return PartitionData(partition_index=index, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        base = asked.fetch_offset - asked.fetch_offset % 10
        batches = b"".join(
            encode_batch(
                [Record(0, 1000, None, b"%d" % offset, []) for offset in range(at, at + 10)],
                base_offset=at,
                leader_epoch=self.epoch_of(at),
            )
            for at in range(base, min(end, base + 50), 10)
        )
        return PartitionData(
            partition_index=index,
            high_watermark=end,
            records=batches if asked.fetch_offset < end else b"",
            aborted_transactions=self.aborted if request.isolation_level else None,
        )

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written."""
        return max(epoch for epoch, first in self.epochs if first <= offset)

    def unfit_epoch(self, known: int) -> ErrorCode:
        """Return the error for a request that names this leader epoch."""
        current = self.cluster.epochs.get("t", 0)
        if known < 0 or known == current:
            return ErrorCode.NONE
        if known < current:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def epoch_ends(self, broker: int, request: object) -> object:
        """Answer OffsetForLeaderEpoch as leaders do."""
        assert isinstance(request, OffsetForLeaderEpochRequest)
        (topic,) = request.topics
        answers = []
        for asked in topic.partitions:
            answer = EpochEndOffset(partition=asked.partition)
            answer.error_code = self.unfit_epoch(asked.current_leader_epoch)
            known = [epoch for epoch, _ in self.epochs if epoch <= asked.leader_epoch]
            if answer.error_code == ErrorCode.NONE and known:
                later = [first for epoch, first in self.epochs if epoch > asked.leader_epoch]
                answer.leader_epoch = max(known)
                answer.end_offset = min([*later, self.end[asked.partition]])
            answers.append(answer)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers)]
        )

    def list_offsets(self, broker: int, request: object) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        (topic,) = request.topics
        answers = []
        for asked in topic.partitions:
            index = asked.partition_index
            offset = {EARLIEST: self.start.get(index, 0), LATEST: self.end.get(index, 0)}.get(
                asked.timestamp, asked.timestamp if asked.timestamp < 1000 else -1
            )
            answers.append(ListOffsetsPartitionResponse(partition_index=index, offset=offset))
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=topic.name, partitions=answers)]
        )


def rig(
    settings: ConsumerSettings | None = None, *, end: int = 100, brokers: int = 1
) -> tuple[Logs, Fetcher]:
    cluster = FakeCluster(2, {"t": {0: 1, 1: brokers}})
    logs = Logs(cluster, end={0: end, 1: end})
    return logs, Fetcher(core_of(cluster), settings or ConsumerSettings())


def offsets(consumer: Fetcher, count: int, max_records: int = 1000) -> dict[int, list[int]]:
    """Poll until at least `count` records came; return their offsets by partition."""
    found: dict[int, list[int]] = {}
    for _ in range(200):
        for group in run_blocking(consumer.poll(200, max_records)):
            log = found.setdefault(group.partition, [])
            for record in group.records:
                assert record.value == b"%d" % record.offset
                log.append(record.offset)
        if sum(map(len, found.values())) >= count:
            break
    return found

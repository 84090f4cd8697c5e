"""The state topic: made on first use, checked when found, read to its end, written to.

A sink's records are in one partition, by its id, as Kafka's clients choose one by a key. If the
topic has got more partitions since, they are looked for in all of them: the highest sequence is the
newest state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from raylog.client.admin.topics import NewTopic, Resource, ResourceType, TopicAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ConnectionLost, RequestTimedOut
from raylog.client.offsets import EARLIEST, LATEST, Answers, ask_leaders, list_offsets
from raylog.client.producer.partitioner import partition_of_key
from raylog.client.settings import ACKS_ALL
from raylog.raydp_jobs.batches import BatchFailed
from raylog.raydp_jobs.sink_state import SinkState, encode_state
from raylog.raydp_jobs.state_scan import StateScan, registration, state_batches
from raylog.wire.errors import (
    ErrorCode,
    OffsetOutOfRange,
    TopicAlreadyExists,
    error_of,
)
from raylog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from raylog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from raylog.wire.records import iter_batches
from raylog.wire.uuids import ZERO_UUID

STATE_TOPIC = "__raylog_sinks"
PARTITIONS = 8
REPLICATION_FACTOR_MAX = 3
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "unclean.leader.election.enable": "false",
}
"""Of a topic that is made here. Small segments: only those that are full are compacted."""
_FETCH_BY_NAME = 12
"""Newest version of Fetch that names topics."""
_FETCH_WAIT_MS = 100
_FETCH_BYTES = 4 * 1024 * 1024


class BadStateTopic(BatchFailed):
    """The state topic would not keep what is written to it."""


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


@dataclass(slots=True)
class StateTopic:
    """The records of one sink in the state topic."""

    core: Core
    name: str
    sink_id: str
    clock_ms: Callable[[], int] = _wall_clock_ms
    """Time of day."""
    _scans: dict[int, StateScan] = field(default_factory=dict)
    _positions: dict[int, int] = field(default_factory=dict)
    """By partition: up to where it is read."""
    _topic_id: bytes = ZERO_UUID
    _batch_bytes_max: int = 0
    """The topic's `max.message.bytes`; 0: not asked yet."""

    async def prepare(self) -> None:
        """Make the topic if there is none, and check its settings. Raises BadStateTopic."""
        await self.core.refresh([self.name])
        if self.name not in self.core.cluster.topics:
            await self._create()
        configs = await TopicAdmin(self.core).describe_configs(
            Resource(ResourceType.TOPIC, self.name)
        )
        values = {entry.name: entry.value for entry in configs}
        policy = values.get("cleanup.policy") or ""
        if "delete" in policy:
            raise BadStateTopic(
                f"topic {self.name} has cleanup.policy={policy}, expected compact: it would delete "
                "by time what sinks have written. `raylog topics alter` or kafka-configs.sh change "
                "it"
            )
        self._batch_bytes_max = int(values.get("max.message.bytes") or 0)

    async def exists(self) -> bool:
        """Whether the topic is there."""
        await self.core.refresh([self.name])
        return self.name in self.core.cluster.topics

    async def is_known(self) -> bool:
        """Whether the sink has any record, of an open transaction too."""
        await self._read()
        return any(scan.is_known for scan in self._scans.values())

    async def read(self) -> tuple[SinkState | None, bool]:
        """The newest committed state, and whether the sink is registered; raises StateUnreadable.

        ConnectionLost as long as a transaction of the sink has no marker: ask after InitProducerId.
        """
        await self._read()
        for scan in self._scans.values():
            if not scan.is_settled:
                raise ConnectionLost(
                    f"{scan.where} has a transaction of sink {self.sink_id!r} without an end"
                )
        return self.newest()

    def newest(self) -> tuple[SinkState | None, bool]:
        """The newest committed state of what was read."""
        states = [state for scan in self._scans.values() if (state := scan.state()) is not None]
        is_registered = any(scan.is_registered for scan in self._scans.values())
        return max(states, key=lambda state: state.sequence, default=None), is_registered

    async def look(self) -> SinkState | None:
        """The newest committed state, while the sink may be writing; None if there is none."""
        if not await self.exists():
            return None
        await self._read()
        state, _ = self.newest()
        return state

    async def register(self, produce_version: int) -> None:
        """Write the sink's registration, in a version of Produce that names topics: 12 at most."""
        batch = registration(self.sink_id, self.clock_ms())
        key = await self.partition()
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=self.core.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=key.topic,
                    partition_data=[PartitionProduceData(index=key.partition, records=batch)],
                )
            ],
        )
        await ask_leaders(
            self.core,
            [key],
            lambda _: request,
            ProduceResponse,
            _produced,
            at_most=produce_version,
        )

    async def partition(self) -> TopicPartition:
        """The partition that the sink's records are written to."""
        await self.core.know([self.name])
        count = len(self.core.cluster.topic(self.name).partitions)
        return TopicPartition(self.name, partition_of_key(self.sink_id.encode(), count))

    def batches(self, state: SinkState) -> list[bytes]:
        """A state as batches that lack their producer."""
        assert self._batch_bytes_max, "the topic was prepared"
        return state_batches(
            self.sink_id,
            state.sequence,
            encode_state(state),
            batch_bytes_max=self._batch_bytes_max,
            now_ms=self.clock_ms(),
        )

    async def _create(self) -> None:
        """Make the topic; another sink may do so at the same time."""
        replicas = min(REPLICATION_FACTOR_MAX, len(self.core.cluster.nodes))
        topic = NewTopic(self.name, PARTITIONS, replicas, CONFIGS)
        try:
            await TopicAdmin(self.core).create_topics([topic])
        except TopicAlreadyExists:
            await self.core.partitions_of([self.name])

    async def _read(self) -> None:
        """Read on where the sink has records, and in all partitions if it has none."""
        await self.core.refresh([self.name])
        topic = self.core.cluster.topic(self.name)
        if topic.topic_id != self._topic_id:  # it is another one under the same name
            self._scans.clear()
            self._topic_id = topic.topic_id
        own = await self.partition()
        known = {partition for partition, scan in self._scans.items() if scan.is_known}
        await self._read_on({own.partition, *known})
        if not any(scan.is_known for scan in self._scans.values()):
            await self._read_on(topic.partitions)

    async def _read_on(self, partitions: Iterable[int]) -> None:
        """Read partitions up to their high watermarks, as these are now."""
        keys = [TopicPartition(self.name, partition) for partition in sorted(partitions)]
        found = await list_offsets(self.core, dict.fromkeys(keys, LATEST))
        ends = {key: at.offset for key, at in found.items()}
        new = [key for key in keys if key.partition not in self._scans]
        await self._begin(new)
        deadline_ms = self.core.io.now_ms() + self.core.settings.operation_timeout_ms
        for key in keys:
            while self._positions[key.partition] < ends[key]:
                if self.core.io.now_ms() >= deadline_ms:
                    raise RequestTimedOut(f"{key} was not read to its end, offset {ends[key]}")
                await self._read_part(key, ends[key])

    async def _read_part(self, key: TopicPartition, end: int) -> None:
        """Read on in a partition, as far as one fetch goes, which is for this partition alone.

        Where there are others a broker answers those without records for which it had no room.
        """
        try:
            answers = await ask_leaders(
                self.core, [key], self._fetch, FetchResponse, _fetched, at_most=_FETCH_BY_NAME
            )
        except OffsetOutOfRange:  # records were deleted since
            await self._begin([key])
        else:
            self._take(key, answers[key], end)

    async def _begin(self, keys: Sequence[TopicPartition]) -> None:
        """Read partitions from their beginning."""
        firsts = await list_offsets(self.core, dict.fromkeys(keys, EARLIEST))
        for key in keys:
            self._scans[key.partition] = StateScan(self.sink_id, str(key))
            self._positions[key.partition] = firsts[key].offset

    def _fetch(self, keys: list[TopicPartition]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            topics=[
                FetchTopic(
                    topic=self.name,
                    partitions=[
                        FetchPartition(
                            partition=key.partition,
                            fetch_offset=self._positions[key.partition],
                            partition_max_bytes=_FETCH_BYTES,
                        )
                        for key in keys
                    ],
                )
            ],
        )

    def _take(self, key: TopicPartition, answer: PartitionData, end: int) -> None:
        """Take what a fetch brought of a partition that is read up to `end`."""
        records, position = answer.records, self._positions[key.partition]
        if not records:
            if answer.high_watermark >= end:  # compaction has removed the last records
                self._positions[key.partition] = end
            return
        assert isinstance(records, memoryview), "decoded records are a view of the answer"
        for header, batch in iter_batches(records):
            if header.base_offset >= position or header.next_offset > position:
                self._scans[key.partition].add(header, batch)
                self._positions[key.partition] = header.next_offset


def _fetched(response: FetchResponse) -> Answers[PartitionData]:
    if response.error_code != ErrorCode.NONE:
        raise error_of(response.error_code, "fetch")
    for topic in response.responses:
        for answer in topic.partitions:
            key = TopicPartition(topic.topic, answer.partition_index)
            if answer.error_code != ErrorCode.NONE:
                yield key, error_of(answer.error_code, str(key))
            else:
                yield key, answer


def _produced(response: ProduceResponse) -> Answers[None]:
    for topic in response.responses:
        for answer in topic.partition_responses:
            key = TopicPartition(topic.name, answer.index)
            if answer.error_code != ErrorCode.NONE:
                yield key, error_of(answer.error_code, answer.error_message or str(key))
            else:
                yield key, None

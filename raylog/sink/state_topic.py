"""The state topic: created on first use, checked, read to its end and written to.

A sink's records are in one partition, chosen by the sink's id as Kafka's clients choose it for a
key. In case partitions were added since, all partitions are read if this one has no record of the
sink; the highest sequence is the newest state.
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
from raylog.client.refusals import check, refusal
from raylog.client.settings import ACKS_ALL
from raylog.sink.batches import BatchFailed
from raylog.sink.state import SinkState, encode_state
from raylog.sink.state_scan import StateScan, registration, state_batches
from raylog.wire.errors import (
    OffsetOutOfRange,
    TopicAlreadyExists,
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
"""Settings of a new state topic. Segments are small because only full ones are compacted."""
_FETCH_BY_NAME = 12
"""The newest Fetch version with topic names."""
_FETCH_WAIT_MS = 100
_FETCH_BYTES = 4 * 1024 * 1024


class BadStateTopic(BatchFailed):
    """The state topic is configured to delete records."""


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


@dataclass(slots=True)
class StateTopic:
    """The records of one sink in the state topic."""

    core: Core
    name: str
    sink_id: str
    clock_ms: Callable[[], int] = _wall_clock_ms
    """Returns ms since 1970."""
    _scans: dict[int, StateScan] = field(default_factory=dict)
    _positions: dict[int, int] = field(default_factory=dict)
    """The next offset to read, by partition."""
    _topic_id: bytes = ZERO_UUID
    _batch_bytes_max: int = 0
    """The topic's `max.message.bytes`; 0: not looked up yet."""

    async def prepare(self) -> None:
        """Create the topic if it does not exist, and check its settings. Raises BadStateTopic."""
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
        """Return whether the topic exists."""
        await self.core.refresh([self.name])
        return self.name in self.core.cluster.topics

    async def is_known(self) -> bool:
        """Return whether the sink has any record, including those of an open transaction."""
        await self._read()
        return any(scan.is_known for scan in self._scans.values())

    async def read(self) -> tuple[SinkState | None, bool]:
        """Return the newest committed state, and whether the sink is registered.

        Raises StateUnreadable, or ConnectionLost while a transaction of the sink has no marker:
        call it after InitProducerId.
        """
        await self._read()
        for scan in self._scans.values():
            if not scan.is_settled:
                raise ConnectionLost(
                    f"{scan.where} has a transaction of sink {self.sink_id!r} without an end"
                )
        return self.newest()

    def newest(self) -> tuple[SinkState | None, bool]:
        """Return the same as `read`, from the records already read."""
        states = [state for scan in self._scans.values() if (state := scan.state()) is not None]
        is_registered = any(scan.is_registered for scan in self._scans.values())
        return max(states, key=lambda state: state.sequence, default=None), is_registered

    async def look(self) -> SinkState | None:
        """Return the newest committed state, even while the sink writes; None if there is none."""
        if not await self.exists():
            return None
        await self._read()
        state, _ = self.newest()
        return state

    async def register(self, produce_version: int) -> None:
        """Write the sink's registration. Produce has topic names up to version 12."""
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
        """Return the partition that the sink's records are written to."""
        await self.core.know([self.name])
        count = len(self.core.cluster.topic(self.name).partitions)
        return TopicPartition(self.name, partition_of_key(self.sink_id.encode(), count))

    def batches(self, state: SinkState) -> list[bytes]:
        """Encode a state as batches without a producer."""
        assert self._batch_bytes_max, "the topic was prepared"
        return state_batches(
            self.sink_id,
            state.sequence,
            encode_state(state),
            batch_bytes_max=self._batch_bytes_max,
            now_ms=self.clock_ms(),
        )

    async def _create(self) -> None:
        """Create the topic; another sink may do so at the same time."""
        replicas = min(REPLICATION_FACTOR_MAX, len(self.core.cluster.nodes))
        topic = NewTopic(self.name, PARTITIONS, replicas, CONFIGS)
        try:
            await TopicAdmin(self.core).create_topics([topic])
        except TopicAlreadyExists:
            await self.core.partitions_of([self.name])

    async def _read(self) -> None:
        """Read the partitions with records of the sink; if there are none, all partitions."""
        await self.core.refresh([self.name])
        topic = self.core.cluster.topic(self.name)
        if topic.topic_id != self._topic_id:  # the topic was recreated
            self._scans.clear()
            self._topic_id = topic.topic_id
        own = await self.partition()
        known = {partition for partition, scan in self._scans.items() if scan.is_known}
        await self._read_on({own.partition, *known})
        if not any(scan.is_known for scan in self._scans.values()):
            await self._read_on(topic.partitions)

    async def _read_on(self, partitions: Iterable[int]) -> None:
        """Read partitions up to their current ends, including open transactions."""
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
        """Read with one fetch of a single partition.

        In a fetch of several, a broker returns no records for partitions that do not fit.
        """
        try:
            answers = await ask_leaders(
                self.core, [key], self._fetch, FetchResponse, _fetched, at_most=_FETCH_BY_NAME
            )
        except OffsetOutOfRange:  # records were deleted meanwhile
            await self._begin([key])
        else:
            self._take(key, answers[key], end)

    async def _begin(self, keys: Sequence[TopicPartition]) -> None:
        """Start to read partitions at their beginning."""
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
        """Add the batches of a fetch; skip to `end` if compaction has removed what is left."""
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
    check(response.error_code, "fetch")
    for topic in response.responses:
        for answer in topic.partitions:
            key = TopicPartition(topic.topic, answer.partition_index)
            yield key, refusal(answer.error_code, key) or answer


def _produced(response: ProduceResponse) -> Answers[None]:
    for topic in response.responses:
        for answer in topic.partition_responses:
            key = TopicPartition(topic.name, answer.index)
            yield key, refusal(answer.error_code, answer.error_message or key)

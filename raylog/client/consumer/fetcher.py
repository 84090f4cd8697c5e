"""Reading assigned partitions: positions, fetches, what to do about refusals.

Fetch v4-18 without sessions: topics go by id from v13 on (KIP-516). One fetch is on its way per
broker; the next leaves before the last one's records are decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.connection import Pending
from raylog.client.consumer.fetched import ConsumedRecords, FetchedBatches
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.core import Core, is_retriable
from raylog.client.errors import ClientError, InvalidSetting
from raylog.client.offsets import EARLIEST, LATEST, list_offsets
from raylog.client.settings import ConsumerSettings
from raylog.wire.errors import ErrorCode, KafkaError, OffsetOutOfRange, error_of
from raylog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from raylog.wire.records import BatchHeader, Record
from raylog.wire.uuids import ZERO_UUID

T = TypeVar("T")

_BY_NAME_LAST = 12
"""Newest Fetch version that names topics instead of giving their ids."""
_ANSWER_SLACK_MS = 10_000
"""How much later than `max_wait_ms` an answer may come."""
_BLOCKS_AHEAD = 1
"""Fetched blocks of a partition that may wait while another is handed out."""


@dataclass(slots=True, eq=False)
class _Assigned:
    """One partition's progress."""

    fetch_offset: int | None = None
    """Where the next fetch starts; None until the position is looked up."""
    stop: int | None = None
    """Nothing is fetched from there on; None: there is no end."""
    start: int = EARLIEST
    """What to look up: a timestamp, EARLIEST or LATEST."""
    position: int | None = None
    """Offset behind the last record handed out."""
    generation: int = 0
    """Counts the seeks: answers to older fetches are dropped."""
    blocks: deque[FetchedBatches] = field(default_factory=deque)
    in_flight: bool = False
    not_before_ms: float = 0.0
    high_watermark: int = -1


@dataclass(slots=True, eq=False)
class _SentFetch:
    """A fetch on its way."""

    pending: Pending[FetchResponse]
    node_id: int
    asked: dict[tuple[str | bytes, int], tuple[TopicPartition, int, int]]
    """(name or id, partition) to (partition, generation, offset)."""


class BatchTaker(Protocol):
    """Whoever reads batches in bulk."""

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""

    @property
    def record_count(self) -> int:
        """Records taken."""

    def take(
        self, key: TopicPartition, from_offset: int, header: BatchHeader, batch: memoryview
    ) -> None:
        """Take the next batch; of its records those at `from_offset` and behind it count."""


class Fetcher:
    """A consumer of explicitly assigned partitions. Not for several tasks at once."""

    def __init__(self, core: Core, settings: ConsumerSettings) -> None:
        self.settings = settings
        self._core = core
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._sent: dict[int, _SentFetch] = {}
        self._buffered_bytes = 0
        self._stale: set[str] = set()
        """Topics whose leaders may have moved."""

    # -- what to read --------------------------------------------------------------------------

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions only, each from an offset, or from EARLIEST or LATEST."""
        for key in set(self._assigned) - set(starts):
            self._drop_blocks(self._assigned.pop(key))
        for key, start in starts.items():
            self.seek(key, start)

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Go on from an offset, EARLIEST or LATEST; adds the partition if it is new."""
        assigned = self._assigned.setdefault(key, _Assigned())
        self._drop_blocks(assigned)
        assigned.generation += 1
        assigned.in_flight = False
        if offset >= 0:
            assigned.fetch_offset = assigned.position = offset
        else:
            assigned.fetch_offset = assigned.position = None
            assigned.start = offset

    def stop_at(self, key: TopicPartition, offset: int) -> None:
        """Fetch nothing from an offset on; batches come whole, so records behind it may come."""
        self._assigned[key].stop = offset

    async def seek_to_timestamp(self, keys: Iterable[TopicPartition], timestamp_ms: int) -> None:
        """Go on from the first record not older than a time; from the end if there is none."""
        found = await list_offsets(self._core, dict.fromkeys(keys, timestamp_ms))
        for key, answer in found.items():
            self.seek(key, answer.offset if answer.offset >= 0 else LATEST)

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return list(self._assigned)

    async def position(self, key: TopicPartition) -> int:
        """Offset of the next record to be handed out."""
        assigned = self._assigned[key]
        if assigned.position is None:
            await self._look_up([key])
        assert assigned.position is not None
        return assigned.position

    def high_watermark(self, key: TopicPartition) -> int:
        """Exclusive end of the partition as the last fetch told; -1 before."""
        return self._assigned[key].high_watermark

    def group_metadata(self) -> GroupMetadata:
        """The group of `group_id`, in which a consumer of assigned partitions is no member."""
        if self.settings.group_id is None:
            raise InvalidSetting("expected a consumer with a group_id, found one without")
        return GroupMetadata(self.settings.group_id)

    def close(self) -> None:
        """End the consumer's connections."""
        self._core.close()

    # -- records out ---------------------------------------------------------------------------

    async def poll(self, timeout_ms: float, max_records: int) -> list[ConsumedRecords]:
        """Records that are here, or the first that come within a time.

        Whole batches are handed out, so `max_records` may be exceeded by less than one batch.
        Raises OffsetOutOfRange if settings say so, and errors that repeats do not cure.
        """
        return await self._poll(timeout_ms, lambda: self._take(max_records)) or []

    async def poll_block(self, timeout_ms: float) -> FetchedBatches | None:
        """What one fetch brought, not decoded: for those who read in bulk. Raises as `poll`."""
        return await self._poll(timeout_ms, self._take_block)

    async def poll_into(self, taker: BatchTaker, timeout_ms: float) -> None:
        """Hand batches to a taker, not decoded, until it is full or none is here. Raises as `poll`.

        Those of one partition come one after the other.
        """
        await self._poll(timeout_ms, lambda: self._give(taker))

    async def _poll(self, timeout_ms: float, take: Callable[[], T | None]) -> T | None:
        """Fetch until something can be taken or time is up."""
        deadline_ms = self._core.io.now_ms() + timeout_ms
        while True:
            await self._core.io.wait(self._any_done, 0)
            self._collect()
            await self._refresh_stale()
            await self._send()
            taken = take()
            now_ms = self._core.io.now_ms()
            if taken or now_ms >= deadline_ms:
                return taken
            await self._core.wait_for(self._any_done, min(deadline_ms, self._next_try_ms(now_ms)))

    def _take(self, max_records: int) -> list[ConsumedRecords]:
        """Decode what was fetched, partition by partition in turn."""
        taken: list[ConsumedRecords] = []
        count = 0
        for key in list(self._assigned):
            assigned = self._assigned[key]
            if not assigned.blocks:
                continue
            records = self._take_of(assigned, max_records - count)
            if records:
                taken.append(ConsumedRecords(*key, records, assigned.high_watermark))
                count += len(records)
            self._assigned[key] = self._assigned.pop(key)  # so others come first next time
            if count >= max_records:
                break
        return taken

    def _take_of(self, assigned: _Assigned, max_records: int) -> list[Record]:
        """Decode one partition's next batches."""
        records: list[Record] = []
        while assigned.blocks and len(records) < max_records:
            block = assigned.blocks[0]
            if block.is_empty:
                assigned.blocks.popleft()
                self._buffered_bytes -= block.size
                continue
            records += block.take()
            assigned.position = block.next_offset
        return records

    def _take_block(self) -> FetchedBatches | None:
        """The next fetched block of any partition."""
        for assigned in self._assigned.values():
            if assigned.blocks:
                block = assigned.blocks.popleft()
                self._buffered_bytes -= block.size
                assigned.position = block.end_offset
                return block
        return None

    def _give(self, taker: BatchTaker) -> bool:
        """Hand batches over, partition by partition in turn; whether the taker has a record."""
        for key in list(self._assigned):
            assigned = self._assigned[key]
            if not assigned.blocks:
                continue
            while assigned.blocks and not taker.is_full:
                block = assigned.blocks[0]
                if block.is_empty:
                    assigned.blocks.popleft()
                    self._buffered_bytes -= block.size
                    continue
                from_offset = block.next_offset
                taken = block.take_batch()
                if taken is not None:
                    taker.take(key, from_offset, *taken)
                assigned.position = block.next_offset
            self._assigned[key] = self._assigned.pop(key)  # so others come first next time
            if taker.is_full:
                break
        return taker.record_count > 0

    # -- fetches -------------------------------------------------------------------------------

    async def _send(self) -> None:
        """Send a fetch to every broker that has none and leads partitions that want one."""
        now_ms = self._core.io.now_ms()
        wanting = [key for key, assigned in self._assigned.items() if self._wants(assigned, now_ms)]
        if not wanting:
            return
        try:
            await self._look_up(wanting)
            grouped = await self._core.by_leader(wanting)
        except (ClientError, KafkaError) as error:
            self._delay(wanting, error)
            return
        for node_id, keys in grouped.items():
            if node_id in self._sent:
                continue
            try:
                await self._fetch(node_id, keys)
            except ClientError as error:
                self._delay(keys, error)

    def _wants(self, assigned: _Assigned, now_ms: float) -> bool:
        """Whether a partition should be part of the next fetch."""
        if assigned.in_flight or assigned.not_before_ms > now_ms:
            return False
        if assigned.stop is not None and (assigned.fetch_offset or 0) >= assigned.stop:
            return False
        if self._buffered_bytes >= 2 * self.settings.max_bytes:
            return False
        return len(assigned.blocks) <= _BLOCKS_AHEAD

    async def _fetch(self, node_id: int, keys: list[TopicPartition]) -> None:
        """Send one fetch for partitions of one leader."""
        settings = self.settings
        ids = {key.topic: self._core.cluster.topic(key.topic).topic_id for key in keys}
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=int(settings.read_committed),
            topics=[
                FetchTopic(
                    topic=topic,
                    topic_id=ids[topic],
                    partitions=[self._fetch_partition(key) for key in of_topic],
                )
                for topic, of_topic in by_topic(keys).items()
            ],
        )
        pending = await self._core.submit(
            node_id,
            request,
            FetchResponse,
            timeout_ms=settings.max_wait_ms + _ANSWER_SLACK_MS,
            at_most=_BY_NAME_LAST if ZERO_UUID in ids.values() else None,
        )
        by_id = pending.version > _BY_NAME_LAST
        sent = _SentFetch(pending, node_id, {})
        for key in keys:
            assigned = self._assigned[key]
            assert assigned.fetch_offset is not None
            assigned.in_flight = True
            name = ids[key.topic] if by_id else key.topic
            sent.asked[name, key.partition] = (key, assigned.generation, assigned.fetch_offset)
        self._sent[node_id] = sent

    def _fetch_partition(self, key: TopicPartition) -> FetchPartition:
        """One partition's part of a fetch."""
        offset = self._assigned[key].fetch_offset
        assert offset is not None
        return FetchPartition(
            partition=key.partition,
            current_leader_epoch=self._core.cluster.partition(key).leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=self.settings.partition_max_bytes,
        )

    async def _look_up(self, keys: Iterable[TopicPartition]) -> None:
        """Find the offsets of positions that are given as EARLIEST or LATEST."""
        wanted = {
            key: assigned.start
            for key in keys
            if (assigned := self._assigned[key]).fetch_offset is None
        }
        if not wanted:
            return
        found = await list_offsets(self._core, wanted, read_committed=self.settings.read_committed)
        for key, answer in found.items():
            assigned = self._assigned[key]
            assigned.fetch_offset = assigned.position = answer.offset

    # -- answers -------------------------------------------------------------------------------

    def _any_done(self) -> bool:
        return any(sent.pending.done for sent in self._sent.values())

    def _collect(self) -> None:
        """Take all answers that are here; raises what repeats do not cure."""
        for sent in [sent for sent in self._sent.values() if sent.pending.done]:
            del self._sent[sent.node_id]
            current = [
                key
                for key, generation, _ in sent.asked.values()
                if key in self._assigned and self._assigned[key].generation == generation
            ]
            for key in current:
                self._assigned[key].in_flight = False
            try:
                response = sent.pending.result()
                if response.error_code != ErrorCode.NONE:
                    raise error_of(response.error_code, "fetch")
            except (ClientError, KafkaError) as error:
                self._delay(current, error)
                continue
            for topic in response.responses:
                name = topic.topic_id if sent.pending.version > _BY_NAME_LAST else topic.topic
                for answer in topic.partitions:
                    key, generation, offset = sent.asked[name, answer.partition_index]
                    if key in self._assigned and self._assigned[key].generation == generation:
                        self._take_answer(key, answer, offset)

    def _take_answer(self, key: TopicPartition, answer: PartitionData, offset: int) -> None:
        """Take one partition's answer to a fetch from `offset`."""
        assigned = self._assigned[key]
        if answer.error_code != ErrorCode.NONE:
            leader = answer.current_leader
            if leader is not None:
                self._core.cluster.moved(key, leader.leader_id, leader.leader_epoch)
            self._refused(key, error_of(answer.error_code, f"{key} at offset {offset}"))
            return
        assigned.high_watermark = answer.high_watermark
        records = answer.records
        if not records:
            return
        assert isinstance(records, memoryview), "decoded records are a view of the answer"
        aborted = None
        if self.settings.read_committed:
            aborted = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in answer.aborted_transactions or ()
            ]
        block = FetchedBatches(
            key,
            records,
            from_offset=offset,
            high_watermark=answer.high_watermark,
            aborted=aborted,
            decompressed_bytes_max=self.settings.decompressed_bytes_max,
        )
        assigned.fetch_offset = block.end_offset
        assigned.blocks.append(block)
        self._buffered_bytes += block.size

    def _refused(self, key: TopicPartition, error: KafkaError) -> None:
        """Decide what a partition's refusal means."""
        if isinstance(error, OffsetOutOfRange):
            if self.settings.reset == "none":
                raise error
            self.seek(key, EARLIEST if self.settings.reset == "earliest" else LATEST)
            return
        self._delay([key], error)

    def _delay(self, keys: Iterable[TopicPartition], error: Exception) -> None:
        """Leave partitions alone for a moment; raises what repeats do not cure."""
        if not is_retriable(error):
            raise error
        not_before_ms = self._core.io.now_ms() + self._core.settings.retry_backoff_ms
        for key in keys:
            self._assigned[key].not_before_ms = not_before_ms
            self._stale.add(key.topic)

    async def _refresh_stale(self) -> None:
        """Look up topics whose leaders may have moved; a failure is tried again next time."""
        if not self._stale:
            return
        try:
            await self._core.refresh(self._stale)
        except (ClientError, KafkaError) as error:
            if not is_retriable(error):
                raise
        else:
            self._stale.clear()

    def _next_try_ms(self, now_ms: float) -> float:
        """When a partition that is left alone should be tried again."""
        return min(
            (
                assigned.not_before_ms
                for assigned in self._assigned.values()
                if assigned.not_before_ms > now_ms
            ),
            default=float("inf"),
        )

    def _drop_blocks(self, assigned: _Assigned) -> None:
        """Forget what was fetched of a partition."""
        self._buffered_bytes -= sum(block.size for block in assigned.blocks)
        assigned.blocks.clear()

"""The buffer of fetched records, which hands them out as records, batches or blocks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import ConsumedRecords, FetchedBatches
from raylog.client.consumer.progress import Progress
from raylog.client.consumer.settings import ConsumerSettings
from raylog.wire.collecting import without_collector
from raylog.wire.errors import KafkaError
from raylog.wire.records import BatchHeader, Record


class BatchTaker(Protocol):
    """A bulk reader of batches."""

    @property
    def is_full(self) -> bool:
        """Whether it accepts no more batches."""

    @property
    def record_count(self) -> int:
        """The number of records taken."""

    def take(
        self, key: TopicPartition, from_offset: int, header: BatchHeader, batch: memoryview
    ) -> None:
        """Take the next batch; ignore its records before `from_offset`."""


class BatchSource(Protocol):
    """Supplies batches in bulk."""

    @property
    def settings(self) -> ConsumerSettings:
        """The consumer's settings."""

    async def poll_into(self, taker: BatchTaker, timeout_ms: float) -> None:
        """Hand undecoded batches to the taker until it is full or none are left."""

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions being read."""

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Move the position to an offset."""


class Buffered:
    """Assigned partitions and their fetched records. Any thread may take records, under `lock`."""

    def __init__(self, lock: threading.RLock) -> None:
        self.lock = lock
        self.moved: dict[TopicPartition, None] = {}
        """Partitions whose positions have moved since this was last cleared."""
        self.records_taken = 0
        self.buffered_bytes = 0
        self._assigned: dict[TopicPartition, Progress] = {}
        self._ready: OrderedDict[TopicPartition, Progress] = OrderedDict()
        """Partitions with fetched blocks that are not paused."""
        self._paused: dict[TopicPartition, Progress] = {}
        self._touched: dict[TopicPartition, None] = {}
        """Partitions that have changed and must be looked at."""
        self._failures: dict[object, Exception] = {}
        """Failures for the next polls to raise, by cause: a partition, a broker or a topic."""

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions being read."""
        return list(self._assigned)

    def progress_of(self, key: TopicPartition) -> Progress | None:
        """Return a partition's progress; None if it is not assigned."""
        return self._assigned.get(key)

    def high_watermark(self, key: TopicPartition) -> int:
        """Return the partition's high watermark as of the last fetch; -1 before the first."""
        return self._assigned[key].high_watermark

    @property
    def has_records(self) -> bool:
        """Whether `take` has records to return or a failure to raise."""
        return bool(self._ready or self._failures)

    def take(self, max_records: int, *, exactly: bool = False) -> list[ConsumedRecords]:
        """Decode fetched records, taking partitions in turn.

        With `exactly`, return at most `max_records`; otherwise batches are not split.
        """
        with self.lock, without_collector():
            self._raise_failure()
            taken: list[ConsumedRecords] = []
            count = 0
            while self._ready and count < max_records:
                key, progress = next(iter(self._ready.items()))
                self._ready.move_to_end(key)  # so other partitions come first next time
                try:
                    records = self._take_of(progress, max_records - count, exactly)
                except KafkaError:
                    if not taken:
                        raise
                    self._ready.move_to_end(key, last=False)
                    break  # return the other partitions' records; the next call raises
                if records:
                    taken.append(ConsumedRecords(*key, records, progress.high_watermark))
                    count += len(records)
            self.records_taken += count
            return taken

    def _take_of(self, progress: Progress, max_records: int, exactly: bool) -> list[Record]:
        """Decode the next batches of one partition."""
        records: list[Record] = []
        while progress.blocks and len(records) < max_records:
            block = progress.blocks[0]
            if not block.is_empty:
                try:
                    records += (
                        block.take_at_most(max_records - len(records)) if exactly else block.take()
                    )
                except KafkaError:
                    if not records:
                        raise
                    break  # return the records before it; the next call raises
                self._moved(progress, block.next_offset, block.leader_epoch)
            if block.is_empty:
                self._finish(progress)
        return records

    def give(self, taker: BatchTaker) -> bool:
        """Hand over batches, taking partitions in turn; return whether the taker has records."""
        with self.lock:
            self._raise_failure()
            while self._ready and not taker.is_full:
                key, progress = next(iter(self._ready.items()))
                self._ready.move_to_end(key)  # so other partitions come first next time
                try:
                    self._give_of(progress, taker)
                except KafkaError:
                    if not taker.record_count:
                        raise
                    self._ready.move_to_end(key, last=False)
                    break  # return the records before it; the next call raises
            return taker.record_count > 0

    def _give_of(self, progress: Progress, taker: BatchTaker) -> None:
        """Hand over the next batches of one partition."""
        while progress.blocks and not taker.is_full:
            block = progress.blocks[0]
            if not block.is_empty:
                try:
                    found = block.peek_batch()
                    if found is not None:
                        taker.take(progress.key, block.next_offset, *found)
                except KafkaError as error:
                    raise block.named(error) from error
                block.pass_batch()
                self._moved(progress, block.next_offset, block.leader_epoch)
            if block.is_empty:
                self._finish(progress)

    def take_block(self) -> FetchedBatches | None:
        """Return the next fetched block of any partition and move the position past it."""
        with self.lock:
            self._raise_failure()
            if not self._ready:
                return None
            key, progress = next(iter(self._ready.items()))
            self._ready.move_to_end(key)
            block = progress.blocks[0]
            self._moved(progress, block.end_offset, block.last_leader_epoch)
            self._finish(progress)
            return block

    def take_blocks(self, max_bytes: int) -> list[FetchedBatches]:
        """Return fetched blocks, up to `max_bytes`; the first one is returned whatever its size."""
        with self.lock:
            taken: list[FetchedBatches] = []
            while True:
                first = next(iter(self._ready.values()), None)
                if first is None and taken:
                    return taken
                if first is not None and taken and first.blocks[0].size > max_bytes:
                    return taken
                block = self.take_block()
                if block is None:
                    return taken
                max_bytes -= block.size
                taken.append(block)

    def _moved(self, progress: Progress, offset: int, epoch: int) -> None:
        """Record that records before `offset` were handed out."""
        progress.position = offset
        if epoch >= 0:
            progress.epoch = epoch
        self.moved[progress.key] = None

    def _finish(self, progress: Progress) -> None:
        """Drop a partition's first block, which is used up."""
        self._forget_block(progress.blocks.popleft())
        if not progress.blocks:
            self._ready.pop(progress.key, None)
        self._touched[progress.key] = None

    def _raise_failure(self) -> None:
        """Raise the oldest failure and clear every cause that it belongs to."""
        failure = next(iter(self._failures.values()), None)
        if failure is None:
            return
        for cause in [cause for cause, other in self._failures.items() if other is failure]:
            del self._failures[cause]
        raise failure

    def _drop_blocks(self, progress: Progress) -> None:
        """Drop a partition's fetched blocks."""
        for block in progress.blocks:
            self._forget_block(block)
        progress.blocks.clear()
        self._ready.pop(progress.key, None)

    def _evict_paused(self) -> bool:
        """Drop the blocks of paused partitions for a later refetch; return whether any existed."""
        with self.lock:
            evicted = [progress for progress in self._paused.values() if progress.blocks]
            for progress in evicted:
                self._drop_blocks(progress)
                progress.refetch()
        return bool(evicted)

    def _forget_block(self, block: FetchedBatches) -> None:
        self.buffered_bytes -= block.size

"""What was fetched, and handing it out: record by record, in batches, in blocks."""

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


class BatchSource(Protocol):
    """Whoever hands batches out in bulk."""

    @property
    def settings(self) -> ConsumerSettings:
        """How records are fetched."""

    async def poll_into(self, taker: BatchTaker, timeout_ms: float) -> None:
        """Hand batches to a taker, not decoded, until it is full or none is here."""

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Go back to an offset."""


class Buffered:
    """Assigned partitions with what was fetched of them. Any thread may take, under `lock`."""

    def __init__(self, lock: threading.RLock) -> None:
        self.lock = lock
        self.moved: dict[TopicPartition, None] = {}
        """Partitions whose positions have moved since somebody emptied this."""
        self.records_taken = 0
        self.buffered_bytes = 0
        self._assigned: dict[TopicPartition, Progress] = {}
        self._ready: OrderedDict[TopicPartition, Progress] = OrderedDict()
        """With fetched blocks, and not paused."""
        self._paused: dict[TopicPartition, Progress] = {}
        self._touched: dict[TopicPartition, None] = {}
        """To be looked at: something of them has changed."""
        self._failures: dict[object, Exception] = {}
        """To be raised by the next polls, each by what failed: a partition, a broker, a topic."""

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return list(self._assigned)

    def progress_of(self, key: TopicPartition) -> Progress | None:
        """How far a partition is; None if it is not assigned."""
        return self._assigned.get(key)

    def high_watermark(self, key: TopicPartition) -> int:
        """Exclusive end of the partition as the last fetch told; -1 before."""
        return self._assigned[key].high_watermark

    @property
    def has_records(self) -> bool:
        """Whether `take` finds something, be it a failure to raise."""
        return bool(self._ready or self._failures)

    def take(self, max_records: int, *, exactly: bool = False) -> list[ConsumedRecords]:
        """Decode what was fetched, partition by partition in turn.

        With `exactly` there are never more than `max_records`; else batches come whole.
        """
        with self.lock, without_collector():
            self._raise_failure()
            taken: list[ConsumedRecords] = []
            count = 0
            while self._ready and count < max_records:
                key, progress = next(iter(self._ready.items()))
                self._ready.move_to_end(key)  # so others come first next time
                try:
                    records = self._take_of(progress, max_records - count, exactly)
                except KafkaError:
                    if not taken:
                        raise
                    self._ready.move_to_end(key, last=False)
                    break  # hand out what other partitions had; the next call raises
                if records:
                    taken.append(ConsumedRecords(*key, records, progress.high_watermark))
                    count += len(records)
            self.records_taken += count
            return taken

    def _take_of(self, progress: Progress, max_records: int, exactly: bool) -> list[Record]:
        """Decode one partition's next batches."""
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
                    break  # hand out what is before it; the next call raises
                self._moved(progress, block.next_offset, block.leader_epoch)
            if block.is_empty:
                self._finish(progress)
        return records

    def give(self, taker: BatchTaker) -> bool:
        """Hand batches over, partition by partition in turn; whether the taker has a record."""
        with self.lock:
            self._raise_failure()
            while self._ready and not taker.is_full:
                key, progress = next(iter(self._ready.items()))
                self._ready.move_to_end(key)  # so others come first next time
                try:
                    self._give_of(progress, taker)
                except KafkaError:
                    if not taker.record_count:
                        raise
                    self._ready.move_to_end(key, last=False)
                    break  # hand out what is before it; the next call raises
            return taker.record_count > 0

    def _give_of(self, progress: Progress, taker: BatchTaker) -> None:
        """Hand one partition's next batches over."""
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
        """The next fetched block of any partition; the position is behind it then."""
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
        """Fetched blocks of at least one byte and, but for the first, at most `max_bytes`."""
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
        """Records before `offset` were handed out."""
        progress.position = offset
        if epoch >= 0:
            progress.epoch = epoch
        self.moved[progress.key] = None

    def _finish(self, progress: Progress) -> None:
        """The first block of a partition is used up."""
        self._forget_block(progress.blocks.popleft())
        if not progress.blocks:
            self._ready.pop(progress.key, None)
        self._touched[progress.key] = None

    def _raise_failure(self) -> None:
        """Raise the oldest failure, once for all that failed by it."""
        failure = next(iter(self._failures.values()), None)
        if failure is None:
            return
        for cause in [cause for cause, other in self._failures.items() if other is failure]:
            del self._failures[cause]
        raise failure

    def _drop_blocks(self, progress: Progress) -> None:
        """Forget what was fetched of a partition."""
        for block in progress.blocks:
            self._forget_block(block)
        progress.blocks.clear()
        self._ready.pop(progress.key, None)

    def _evict_paused(self) -> bool:
        """Drop what is here of paused partitions, to be fetched again; whether there was any."""
        with self.lock:
            evicted = [progress for progress in self._paused.values() if progress.blocks]
            for progress in evicted:
                self._drop_blocks(progress)
                progress.refetch()
        return bool(evicted)

    def _forget_block(self, block: FetchedBatches) -> None:
        self.buffered_bytes -= block.size

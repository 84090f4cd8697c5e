"""Looks after the logs of one process: flushes, checkpoints, retention, and who lags behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from raylog.actors.metrics.counts import Histogram
from raylog.actors.metrics.families.replica import FLUSH_SECONDS
from raylog.actors.ports import PartitionKey
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.machine import TimePassed
from raylog.actors.replica.partition import Partition
from raylog.actors.runtime.base import Runtime, Timer
from raylog.storage.log import Slice
from raylog.wire.errors import KafkaStorageError

log = logging.getLogger(__name__)
UPKEEP_MS = 1_000
CHECKPOINT_TICKS = 10
"""A log that grew is checkpointed after as many looks."""
SWEEP_SLICE = 50
"""Partitions looked at in one go by the retention sweep, so that no request waits for it."""


class Job(Protocol):
    """What a thread does."""

    def run(self) -> None:
        """Blocking."""


J = TypeVar("J", bound=Job)


class Upkeep:
    """Costs nothing while every log rests and all replicas are in sync."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[PartitionKey, Partition],
        failures: StorageFailures,
        checkpointed: Callable[[Partition], None],
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._failures = failures
        self._checkpointed = checkpointed
        """Told of a log of which more is durable than before."""
        self._grown: dict[Partition, int] = {}
        """Logs that grew, and how often they were looked at since."""
        self._unsettled: dict[Partition, None] = {}
        """Led here, with followers that lag or are not in sync."""
        self._timer: Timer | None = None
        self.flush_seconds = Histogram(FLUSH_SECONDS)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    # ---- flushes -------------------------------------------------------------------------

    def flush(self, partition: Partition) -> None:
        """Flush a log beside the event loop."""
        partition.flush_running = True
        self._runtime.start(self._flush_now(partition), f"flush {partition.topic}")

    async def _flush_now(self, partition: Partition) -> None:
        """Flush until no writer waits for more; a failure is the writers' answer."""
        log = partition.log
        more = not partition.in_surgery
        while more:
            try:
                job = log.begin_flush()
            except KafkaStorageError as failure:
                self._failures.report(failure)
                partition.fail_waiting(failure)
                partition.give_up_if_offline()
                break
            begun_ms = self._runtime.monotonic_ms()
            await self._runtime.run_blocking(job.run)
            self.flush_seconds.observe((self._runtime.monotonic_ms() - begun_ms) / 1000)
            partition.end_flush(job, self._runtime.now_ms())
            more = not log.offline and log.recovery_point < partition.flush_target
            more = more and not partition.in_surgery
        partition.flush_running = False

    def flush_if_due(self, partition: Partition, now_ms: int) -> None:
        """Flush a log where its configuration or a full segment asks for it."""
        if (
            not partition.flush_running
            and not partition.in_surgery
            and partition.log.needs_flush(now_ms)
        ):
            self.flush(partition)

    # ---- checks --------------------------------------------------------------------------

    def check(self, partition: Partition, found: Slice) -> None:
        """Check a slice beside the event loop; there is news when it may be served."""
        partition.check_running = True
        self._runtime.start(self._check_now(partition, found), f"check {partition.name}")

    async def _check_now(self, partition: Partition, found: Slice) -> None:
        own = partition.log
        try:
            is_done = await self._aside(partition, partial(own.begin_check, found), own.end_check)
        finally:
            partition.check_running = False
        self._look_again(partition, is_done=is_done)

    def load_index(self, partition: Partition, offset: int) -> None:
        """Get the index for an offset beside the event loop; there is news afterwards."""
        partition.index_running = True
        self._runtime.start(self._load_index(partition, offset), f"index of {partition.name}")

    async def _load_index(self, partition: Partition, offset: int) -> None:
        own = partition.log
        try:
            is_done = await self._aside(partition, partial(own.begin_index, offset), own.end_index)
        finally:
            partition.index_running = False
        self._look_again(partition, is_done=is_done)

    async def _aside(
        self, partition: Partition, begin: Callable[[], J], end: Callable[[J], None]
    ) -> bool:
        """Have a thread do a job that a reader waits for; whether the disk let it."""
        try:
            job = begin()
            await self._runtime.run_blocking(job.run)
            end(job)
        except KafkaStorageError as failure:
            self._failures.report(failure)
            partition.give_up_if_offline()
            return False
        return True

    def _look_again(self, partition: Partition, *, is_done: bool) -> None:
        """Have those who waited look: now, or later where no descriptor was left at the moment."""
        if is_done:
            self._has_news(partition)
        elif not partition.log.offline:
            self._runtime.call_later(UPKEEP_MS, lambda: self._has_news(partition))

    def _has_news(self, partition: Partition) -> None:
        """Readers and followers may look again at what they waited for."""
        if self._partitions.get(partition.key) is partition:
            partition.host.has_news(partition)
            partition.host.has_grown(partition)

    # ---- the clock -----------------------------------------------------------------------

    def appended(self, partition: Partition) -> None:
        """Note that a log grew: it is looked after until it rests."""
        self._grown[partition] = self._grown.get(partition, 0)
        self.unsettled(partition)

    def unsettled(self, partition: Partition) -> None:
        """Look whether followers keep up, until they do."""
        if not partition.machine.is_settled:
            self._unsettled[partition] = None
        if self._timer is None and (self._grown or self._unsettled):
            self._timer = self._runtime.call_later(UPKEEP_MS, self._keep_up)

    def _keep_up(self) -> None:
        """Flush what is due by the clock, checkpoint what grew; stops when every log rests."""
        now_ms = self._runtime.now_ms()
        due = []
        for partition, ticks in tuple(self._grown.items()):
            self.flush_if_due(partition, now_ms)
            if ticks + 1 < CHECKPOINT_TICKS:
                self._grown[partition] = ticks + 1
            else:
                due.append(partition)
                if not partition.flushes_by_time or partition.is_flushed:
                    del self._grown[partition]
        if due:
            self._runtime.start(self._checkpoint_all(due), "checkpoints")
        self._look_at_followers()
        rests = not self._grown and not self._unsettled
        self._timer = None if rests else self._runtime.call_later(UPKEEP_MS, self._keep_up)

    def _look_at_followers(self) -> None:
        monotonic_ms = int(self._runtime.monotonic_ms())
        for partition in tuple(self._unsettled):
            if self._partitions.get(partition.key) is partition:
                partition.handle(TimePassed(monotonic_ms))
                if not partition.machine.is_settled:
                    continue
            del self._unsettled[partition]

    # ---- checkpoints and retention -------------------------------------------------------

    async def _checkpoint_all(self, partitions: list[Partition]) -> None:
        """Save where recovery may begin, so that a crash costs a scan of the last seconds only."""
        for partition in partitions:
            if self._partitions.get(partition.key) is partition:
                try:
                    await self.checkpoint(partition)
                except KafkaStorageError:
                    log.exception("checkpoint of %s failed", partition.name)
                    partition.give_up_if_offline()

    async def checkpoint(self, partition: Partition) -> None:
        """Make a log's state durable: log start, epochs, high watermark."""
        if partition.in_surgery:
            return
        job = partition.log.begin_checkpoint(self._runtime.now_ms(), partition.high_watermark)
        if job is not None:
            await self._runtime.run_blocking(job.run)
            partition.log.end_checkpoint(job)
            self._checkpointed(partition)

    async def sweep(self) -> None:
        """Apply retention to every log, a slice at a time."""
        partitions = list(self._partitions.values())
        for at in range(0, len(partitions), SWEEP_SLICE):
            for partition in partitions[at : at + SWEEP_SLICE]:
                if self._partitions.get(partition.key) is partition and not partition.in_surgery:
                    await self._retain(partition)
            await self._runtime.sleep(0)

    async def sweep_forever(self, interval_ms: int) -> None:
        """Apply retention again and again."""
        while True:
            await self._runtime.sleep(interval_ms / 1000)
            await self.sweep()

    async def _retain(self, partition: Partition) -> None:
        now_ms = self._runtime.now_ms()
        start_offset = partition.log.log_start_offset
        try:
            partition.log.roll_if_due(now_ms)
            partition.log.retention(now_ms, partition.high_watermark)
            await self.checkpoint(partition)
        except KafkaStorageError:
            log.exception("retention of %s failed", partition.name)
            partition.give_up_if_offline()
        if partition.log.log_start_offset != start_offset and partition.followers:
            partition.host.has_figures(partition)

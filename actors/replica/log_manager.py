"""Maintains the logs of one process: flushes, checkpoints, retention, lagging followers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from raylog.actors.common_messages import PartitionKey
from raylog.actors.metrics.counts import Histogram
from raylog.actors.metrics.families.replica import FLUSH_SECONDS
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.machine import TimePassed
from raylog.actors.replica.rules.work import Task
from raylog.actors.runtime.base import Runtime, Timer
from raylog.wire.errors import KafkaStorageError

log = logging.getLogger(__name__)
LOOK_EVERY_MS = 1_000
CHECKPOINT_TICKS = 10
"""A log that grew is checkpointed after this many checks."""
SWEEP_SLICE = 50
"""Partitions checked in one go by the retention sweep, so that no request waits for it."""


class LogManager:
    """Maintains all logs; runs a timer only while a log grows or followers lag."""

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
        """Called after a checkpoint."""
        self._grown: dict[Partition, int] = {}
        """Logs that grew, each with the number of checks since."""
        self._unsettled: dict[Partition, None] = {}
        """Partitions led here with followers that lag or are not in sync."""
        self._timer: Timer | None = None
        self.flush_seconds = Histogram(FLUSH_SECONDS)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    # ---- flushes -------------------------------------------------------------------------

    def flush(self, partition: Partition) -> None:
        """Flush a log in a thread."""
        if partition.work.begin(Task.FLUSH):
            self._runtime.start(self._flush_now(partition), f"flush {partition.topic}")

    async def _flush_now(self, partition: Partition) -> None:
        """Flush until no writer waits for more; a failure is answered to the writers."""
        try:
            await self._flush_until_enough(partition)
        finally:
            partition.work.end(Task.FLUSH)

    async def _flush_until_enough(self, partition: Partition) -> None:
        log = partition.log
        more = True
        while more:
            try:
                job = log.flushes.begin()
            except KafkaStorageError as failure:
                self._failures.report(failure)
                partition.fail_waiting(failure)
                partition.give_up_if_offline()
                return
            begun_ms = self._runtime.monotonic_ms()
            await self._runtime.run_blocking(job.run)
            self.flush_seconds.observe((self._runtime.monotonic_ms() - begun_ms) / 1000)
            partition.end_flush(job, self._runtime.now_ms())
            more = not log.offline and log.state.recovery_point < partition.flush_target
            more = more and not partition.work.is_reserved

    def flush_if_due(self, partition: Partition, now_ms: int) -> None:
        """Flush a log if flush.ms has passed or a segment was closed."""
        if partition.log.flushes.is_due(now_ms) and not partition.work.runs(Task.FLUSH):
            self.flush(partition)

    # ---- the clock -----------------------------------------------------------------------

    def appended(self, partition: Partition, now_ms: int) -> None:
        """Note that a log grew: flush it if due, and check it until it is idle."""
        self.flush_if_due(partition, now_ms)
        self._grown[partition] = self._grown.get(partition, 0)
        self.unsettled(partition)

    def watch(self, partition: Partition) -> None:
        """Check a log just opened or configured, if flush.ms still has to flush it."""
        if partition.waits_for_flush:
            self.appended(partition, self._runtime.now_ms())

    def unsettled(self, partition: Partition) -> None:
        """Check a partition's followers until all are in sync and caught up."""
        if not partition.machine.is_settled:
            self._unsettled[partition] = None
        if self._timer is None and (self._grown or self._unsettled):
            self._timer = self._runtime.call_later(LOOK_EVERY_MS, self._keep_up)

    def _keep_up(self) -> None:
        """Flush what is due, checkpoint what grew; stop the timer if nothing is left to check."""
        now_ms = self._runtime.now_ms()
        due = []
        for partition, ticks in tuple(self._grown.items()):
            if self._partitions.get(partition.key) is not partition:
                del self._grown[partition]
                continue
            self.flush_if_due(partition, now_ms)
            if ticks + 1 < CHECKPOINT_TICKS:
                self._grown[partition] = ticks + 1
            else:
                due.append(partition)
                if not partition.waits_for_flush:
                    del self._grown[partition]
        if due:
            self._runtime.start(self._checkpoint_all(due), "checkpoints")
        self._look_at_followers()
        rests = not self._grown and not self._unsettled
        self._timer = None if rests else self._runtime.call_later(LOOK_EVERY_MS, self._keep_up)

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
        """Checkpoint logs, so that recovery after a crash scans only the last seconds."""
        for partition in partitions:
            if self._partitions.get(partition.key) is partition:
                try:
                    await self.checkpoint(partition)
                except KafkaStorageError:
                    log.exception("checkpoint of %s failed", partition.name)
                    partition.give_up_if_offline()

    async def checkpoint(self, partition: Partition) -> None:
        """Make a log's state durable: start, epochs, high watermark; not while it is reserved."""
        if not partition.work.begin(Task.CHECKPOINT):
            return
        try:
            job = partition.log.checkpoints.begin(self._runtime.now_ms(), partition.high_watermark)
            if job is None:
                return
            await self._runtime.run_blocking(job.run)
            partition.log.checkpoints.end(job)
        finally:
            partition.work.end(Task.CHECKPOINT)
        self._checkpointed(partition)

    async def sweep(self) -> None:
        """Apply retention to every log, a slice at a time."""
        partitions = list(self._partitions.values())
        for at in range(0, len(partitions), SWEEP_SLICE):
            for partition in partitions[at : at + SWEEP_SLICE]:
                is_open = self._partitions.get(partition.key) is partition
                if is_open and not partition.work.is_reserved:
                    await self._retain(partition)
            await self._runtime.sleep(0)

    async def sweep_forever(self, interval_ms: int) -> None:
        """Apply retention at regular intervals."""
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
            partition.host.follower_sessions.watermarks_changed(partition)

"""Compacts the logs of one process whose topics ask for it, one at a time, in a thread that rests.

A log is looked at every `log.cleaner.backoff.ms`, and at once again after one was cleaned. The
thread rests half a millisecond or more after each one or two of work: it shares the interpreter
with the event loop, which would else wait 5 ms for every event.
"""

from __future__ import annotations

import logging
import time  # noqa: TID251  # a thread beside the event loop rests
from collections.abc import Mapping

from raylog.actors.ports import PartitionKey
from raylog.actors.replica.config import CleanerSettings
from raylog.actors.replica.partition import Partition
from raylog.actors.runtime.base import Runtime
from raylog.storage.cleaning import CleanJob
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
REST_S = 0.000_5
BACKOFF_MS_MIN = 10
LOOKS = 50
"""Logs looked at in one go, so that no request waits for it."""


class Cleaner:
    """Shell of the cleaning: which log when is the log's decision."""

    def __init__(
        self,
        runtime: Runtime,
        settings: CleanerSettings,
        partitions: Mapping[PartitionKey, Partition],
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._partitions = partitions

    async def run_forever(self) -> None:
        """Clean what is due, wait, and so on."""
        while self._settings.enabled:
            await self._runtime.sleep(max(self._settings.backoff_ms, BACKOFF_MS_MIN) / 1000)
            while await self.sweep():
                await self._runtime.sleep(0)

    async def sweep(self) -> int:
        """Clean every log that is due, once; how many there were."""
        cleaned = 0
        for number, partition in enumerate(list(self._partitions.values()), 1):
            if self._partitions.get(partition.key) is partition and partition.config.compact:
                cleaned += await self._clean(partition)
            if number % LOOKS == 0:
                await self._runtime.sleep(0)
        return cleaned

    async def _clean(self, partition: Partition) -> bool:
        """Whether a cleaning was due, and came to its end."""
        try:
            job = partition.log.begin_clean(
                self._runtime.now_ms(),
                partition.high_watermark,
                memory_bytes=self._settings.memory_bytes,
                pause=self._pause,
            )
            return job is not None and await self._run(partition, job)
        except KafkaError:
            log.exception("cleaning of %s failed", partition.name)
            partition.give_up_if_offline()
            return False

    async def _run(self, partition: Partition, job: CleanJob) -> bool:
        size, start_ms = partition.log.size, self._runtime.monotonic_ms()
        more = True
        while more:
            await self._runtime.run_blocking(job.run)
            more = partition.log.end_clean(job, self._runtime.now_ms())
        log.info(
            "cleaned %s-%d up to offset %d: %d records read, %d bytes of %d left, in %.1f s",
            partition.topic,
            partition.key[1],
            partition.log.first_dirty_offset,
            job.records_read,
            partition.log.size,
            size,
            (self._runtime.monotonic_ms() - start_ms) / 1000,
        )
        return not job.stopping

    def _pause(self, spent_bytes: int) -> None:
        """Called in the thread."""
        time.sleep(max(REST_S, spent_bytes / self._settings.bytes_per_second))

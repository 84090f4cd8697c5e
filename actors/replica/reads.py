"""Reads that may have to wait for a disk; all other code reads only what is in memory.

Threads check bytes not read since the log was opened, load indexes, load records for followers, and
look up offsets by time. Checks and index loads are registered in the log's `LogWork`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from raylog.actors.common_messages import PartitionKey
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.work import Task
from raylog.actors.runtime.base import Buffer, Runtime
from raylog.storage.reader import ReadJob
from raylog.storage.segment import Slice
from raylog.wire.errors import KafkaStorageError

AGAIN_MS = 1_000
"""Delay before another try if no file descriptor was left."""


class Job(Protocol):
    """Work for a thread."""

    def run(self) -> None:
        """Do the work. Blocking."""


J = TypeVar("J", bound=Job)


class ColdRecords(NamedTuple):
    """Records that a thread must read."""

    partition: Partition
    job: ReadJob[bytes]

    def loaded(self) -> bytes:
        """The records, once the job has run; raises KafkaError if they could not be read."""
        return self.partition.log.reader.end_load(self.job)


class Reads:
    """The reads of one process that may block."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[PartitionKey, Partition],
        failures: StorageFailures,
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._failures = failures

    # ---- for readers that check again ----------------------------------------------------

    def check(self, partition: Partition, found: Slice) -> None:
        """Check a slice in a thread, then notify waiting readers."""
        if not partition.work.is_reserved:
            reader = partition.log.reader
            self._begin(partition, Task.CHECK, reader.begin_check(found), reader.end_check)

    def load_index(self, partition: Partition, offset: int) -> None:
        """Load the index for an offset in a thread, then notify waiting readers."""
        if not partition.work.is_reserved:
            reader = partition.log.reader
            self._begin(partition, Task.LOAD_INDEX, reader.begin_index(offset), reader.end_index)

    def _begin(self, partition: Partition, task: Task, job: J, end: Callable[[J], None]) -> None:
        partition.work.begin(task)
        running = self._run(partition, task, job, end)
        self._runtime.start(running, f"{task.name.lower()} of {partition.name}")

    async def _run(
        self, partition: Partition, task: Task, job: J, end: Callable[[J], None]
    ) -> None:
        """Run a job, then notify readers; later if no file descriptor was left."""
        is_done = False
        try:
            await self.run(job)
            end(job)
            is_done = True
        except KafkaStorageError as failure:
            self._failures.report(failure)
            partition.give_up_if_offline()
        finally:
            partition.work.end(task)
        if is_done:
            self._has_news(partition)
        elif not partition.log.offline:
            self._runtime.call_later(AGAIN_MS, lambda: self._has_news(partition))

    def _has_news(self, partition: Partition) -> None:
        if self._partitions.get(partition.key) is partition:
            partition.host.gateway_sessions.has_news(partition)
            partition.host.follower_sessions.has_grown(partition)

    # ---- for callers that wait -----------------------------------------------------------

    async def run(self, *jobs: Job) -> None:
        """Run jobs in a thread, one after another."""
        await self._runtime.run_blocking(_run_all, jobs)


def records_of(partition: Partition, found: Slice) -> Buffer | ColdRecords:
    """Records of a recently written slice, or a job for a thread to read them."""
    reader = partition.log.reader
    if reader.is_recent(found):
        return reader.load(found)
    return ColdRecords(partition, reader.begin_load(found))


def _run_all(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job.run()

"""Compacts the logs of one process whose topics ask for it, the dirtiest first.

A log is checked `log.cleaner.backoff.ms` after a checkpoint, because only then can it become due,
and again as long as time or other replicas can make it due; without such logs nothing runs. The
work runs outside this process (`Runtime.apart`): under Ray in a process of its own, which is
started when a log is due and ends soon after the last one. If many actors share one process
(`raylog.testing`), a thread does the work and rests half a millisecond or more after every one or
two of work, because it shares the interpreter with the event loop, which would otherwise wait 5 ms
for every event.

Timestamps from older builds that are clients' claims are corrected first, in the same way, whether
or not the topic is compacted.

Only one process of a broker cleans at a time: each asks the broker for its turn.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from raylog.actors.common_messages import PartitionKey
from raylog.actors.remote import Broker, call
from raylog.actors.replica.pacing import Pacing
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.config import CleanerSettings
from raylog.actors.replica.rules.work import Task
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime, Timer
from raylog.storage.clean_job import CleanJob
from raylog.storage.correcting import Correction
from raylog.wire.errors import KafkaError, KafkaStorageError

log = logging.getLogger(__name__)
BACKOFF_MS_MIN = 10
LOOKS = 50
"""Logs checked in one go, so that no request waits for it."""
CORRECTED_FIRST = 2.0
"""A log with timestamps to correct counts as dirtier than any other."""
CLOSED_AT_ONCE = 50
"""Growing segments closed in one sweep: each needs a flush and adds a file."""
ASK_EVERY_MS = 1_000
ASK_TIMEOUT_MS = 5_000


class _Due(NamedTuple):
    """A log to be cleaned."""

    dirty_ratio: float
    partition: Partition


@dataclass(slots=True)
class CleanerCounts:
    """Cleanings so far."""

    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    reclaimed_bytes: int = 0


class Cleaner:
    """Shell of the cleaner: decides nothing about which log is due when; the log does."""

    def __init__(
        self,
        runtime: Runtime,
        settings: CleanerSettings,
        partitions: Mapping[PartitionKey, Partition],
        *,
        name: str,
        broker: str,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._partitions = partitions
        self._name = name
        self._broker = broker
        self._noted: dict[PartitionKey, None] = {}
        """Logs that may be due."""
        self._timer: Timer | None = None
        self._sweeping = False
        self._closed = 0
        """Segments closed since the last log was chosen."""
        self.counts = CleanerCounts()

    @property
    def candidates(self) -> int:
        """Number of logs that may become due soon."""
        return len(self._noted)

    def note(self, partition: Partition) -> None:
        """Record that a log may be due, or may have more to clean than at the last check."""
        if partition.log.state.claims is not None or self._cleans(partition):
            self._noted[partition.key] = None
            self._look_later()

    def _cleans(self, partition: Partition) -> bool:
        return partition.config.compact and self._settings.enabled

    def _look_later(self) -> None:
        if self._noted and self._timer is None and not self._sweeping:
            self._timer = self._runtime.call_later(
                max(self._settings.backoff_ms, BACKOFF_MS_MIN), self._look
            )

    def _look(self) -> None:
        self._timer = None
        self._sweeping = True
        self._runtime.start(self._clean_what_is_due(), "cleaner")

    async def _clean_what_is_due(self) -> None:
        try:
            await self.sweep()
        finally:
            self._sweeping = False
        self._look_later()

    async def sweep(self) -> int:
        """Clean logs until none is due; return the number of completed cleanings."""
        cleaned = 0
        failed: set[PartitionKey] = set()
        while (due := await self._dirtiest(failed)) is not None:
            if not await self._has_turn(due.dirty_ratio):
                await self._runtime.sleep(ASK_EVERY_MS / 1000)
            elif await self._clean(due):
                self.counts.done += 1
                cleaned += 1
            else:
                self.counts.failed += 1
                failed.add(due.partition.key)
        return cleaned

    async def _dirtiest(self, failed: set[PartitionKey]) -> _Due | None:
        """The log to be cleaned first, chosen as in Kafka."""
        dirtiest: _Due | None = None
        self._closed = 0
        for number, key in enumerate(list(self._noted), 1):
            due = None if key in failed else self._due(key)
            if due is not None and (dirtiest is None or due.dirty_ratio > dirtiest.dirty_ratio):
                dirtiest = due
            if due is not None and due.dirty_ratio >= CORRECTED_FIRST:
                return due
            if number % LOOKS == 0:
                await self._runtime.sleep(0)
        return dirtiest

    def _due(self, key: PartitionKey) -> _Due | None:
        """A candidate, if it is due; one that cannot become due by itself is removed."""
        partition = self._partitions.get(key)
        if partition is None:
            self._noted.pop(key, None)
            return None
        if partition.work.is_reserved:
            return None
        try:
            if partition.log.state.claims is not None:
                return self._correctable(partition)
            return self._cleanable(partition)
        except KafkaStorageError:
            log.exception("%s cannot be cleaned", partition.name)
            partition.give_up_if_offline()
            self._noted.pop(key, None)
            return None

    def _correctable(self, partition: Partition) -> _Due | None:
        """A log with timestamps to correct; its growing segment is closed for that.

        A log that has to wait is moved behind the other candidates.
        """
        if partition.log.cleaner.correctable:
            return _Due(CORRECTED_FIRST, partition)
        self._noted.pop(partition.key, None)
        if partition.log.offline:
            return None
        self._noted[partition.key] = None
        now_ms = self._runtime.now_ms()
        if self._closed < CLOSED_AT_ONCE and partition.log.cleaner.close_claimed(now_ms):
            self._closed += 1
            partition.host.log_manager.appended(partition, now_ms)  # flushed soon, then correctable
        return None

    def _cleanable(self, partition: Partition) -> _Due | None:
        found = None
        if self._cleans(partition):
            found = partition.log.cleaner.cleanable(
                self._runtime.now_ms(), partition.high_watermark
            )
        if found is not None and found.is_due:
            return _Due(found.dirty_ratio, partition)
        if found is None or not found.waits:
            self._noted.pop(partition.key, None)
        return None

    # ---- turns ---------------------------------------------------------------------------

    async def _has_turn(self, dirty_ratio: float) -> bool:
        """Whether the broker grants the turn: no other process cleans or has a dirtier log."""
        try:
            return await call(
                self._runtime,
                self._broker,
                Broker.cleaning_turn,
                self._name,
                dirty_ratio,
                timeout_ms=ASK_TIMEOUT_MS,
            )
        except (ActorGone, PeerLost, PeerTimeout) as silent:
            log.info("the broker grants no turn to clean: %s", silent)
            return False

    async def _keep_turn(self, dirty_ratio: float) -> None:
        while True:
            await self._runtime.sleep(ASK_EVERY_MS / 1000)
            await self._has_turn(dirty_ratio)

    async def _end_turn(self) -> None:
        try:
            await call(
                self._runtime,
                self._broker,
                Broker.cleaning_ended,
                self._name,
                timeout_ms=ASK_TIMEOUT_MS,
            )
        except (ActorGone, PeerLost, PeerTimeout) as silent:
            log.info("the broker will see that nothing is cleaned: %s", silent)

    # ---- one log -------------------------------------------------------------------------

    async def _clean(self, due: _Due) -> bool:
        """Clean a log in this process's turn; return whether the cleaning was completed."""
        keeping = self._runtime.start(self._keep_turn(due.dirty_ratio), "turn to clean")
        try:
            return await self._clean_one(due.partition)
        finally:
            keeping.cancel()
            await self._end_turn()

    async def _clean_one(self, partition: Partition) -> bool:
        if self._partitions.get(partition.key) is not partition:
            return True
        if not partition.work.begin(Task.CLEAN):
            return True
        try:
            job = self._begin(partition)
            return job is None or await self._run(partition, job)
        except KafkaError:
            log.exception("cleaning of %s failed", partition.name)
            partition.give_up_if_offline()
            return False
        finally:
            partition.work.end(Task.CLEAN)

    def _begin(self, partition: Partition) -> CleanJob | None:
        now_ms, token = self._runtime.now_ms(), self._runtime.instance
        pause = Pacing(self._settings.bytes_per_second, self._runtime.rest_s)
        if partition.log.state.claims is not None:
            return partition.log.cleaner.begin_correct(now_ms, pause=pause, token=token)
        return partition.log.cleaner.begin_clean(
            now_ms,
            partition.high_watermark,
            memory_bytes=self._settings.memory_bytes,
            pause=pause,
            token=token,
        )

    async def _run(self, partition: Partition, job: CleanJob) -> bool:
        size, start_ms = partition.log.size, self._runtime.monotonic_ms()
        try:
            await self._run_apart(partition, job)
        except PeerLost as lost:
            await self._runtime.run_blocking(job.abandon)
            partition.log.cleaner.end_clean(job, self._runtime.now_ms())
            log.warning("cleaning of %s begins anew later: %s", partition.name, lost)
            return False
        took_s = (self._runtime.monotonic_ms() - start_ms) / 1000
        self.counts.seconds += took_s
        self.counts.reclaimed_bytes += max(0, size - partition.log.size)
        if isinstance(job.work, Correction):
            for damage in job.damages:
                log.error("timestamps were not corrected: %s", damage)
            log.info("corrected timestamps of %s, in %.1f s", partition.name, took_s)
            self.note(partition)
            return not job.stopping
        log.info(
            "cleaned %s up to offset %d: %d records read, %d bytes of %d left, in %.1f s",
            partition.name,
            partition.log.cleaner.first_dirty_offset,
            job.records_read,
            partition.log.size,
            size,
            took_s,
        )
        return not job.stopping

    async def _run_apart(self, partition: Partition, job: CleanJob) -> None:
        """Run the steps; raises PeerLost if the worker is gone."""
        apart = await self._runtime.apart(job.work)
        try:
            job.on_stop = apart.stop
            if job.stopping:
                apart.stop()
            more = True
            while more:
                outcome = await apart.step()
                await self._runtime.run_blocking(job.take, outcome)
                more = partition.log.cleaner.end_clean(job, self._runtime.now_ms())
        finally:
            job.on_stop = None
            await apart.close()

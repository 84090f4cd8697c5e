"""Compacts the logs of one process whose topics ask for it, the dirtiest first.

A log is looked at some `log.cleaner.backoff.ms` after a checkpoint, for only then it may be due,
and again while time or other replicas can make it due; where there is none, nothing runs. The work
is done apart (`Runtime.apart`): under Ray in a process of its own, which is started when a log is
due and ends soon after the last. In one process of many actors (`raylog.testing`) a thread does it
and rests half a millisecond or more after each one or two of work: it shares the interpreter with
the event loop, which would else wait 5 ms for every event.

Where older builds stored timestamps that are claims of clients, these are corrected first, in the
same way, whatever the topics ask for.

Of the processes of a broker one cleans at a time: each asks the broker for its turn.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from raylog.actors.ports import PartitionKey
from raylog.actors.replica.config import CleanerSettings
from raylog.actors.replica.pacing import Pacing
from raylog.actors.replica.partition import Partition
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime, Timer
from raylog.storage.clean_job import CleanJob
from raylog.storage.correcting import Correction
from raylog.wire.errors import KafkaError, KafkaStorageError

log = logging.getLogger(__name__)
BACKOFF_MS_MIN = 10
LOOKS = 50
"""Logs looked at in one go, so that no request waits for it."""
CORRECTED_FIRST = 2.0
"""A log of which timestamps are to be corrected counts as dirtier than any."""
CLOSED_AT_ONCE = 50
"""Of growing segments: each is flushed, and has a file more."""
ASK_EVERY_MS = 1_000
ASK_TIMEOUT_MS = 5_000


class _Due(NamedTuple):
    """A log that is to be cleaned."""

    dirty_ratio: float
    partition: Partition


@dataclass(slots=True)
class CleanerCounts:
    """What has been cleaned."""

    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    reclaimed_bytes: int = 0


class Cleaner:
    """Shell of the cleaning: which log when is the log's decision."""

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
        """How many logs may be due soon."""
        return len(self._noted)

    def note(self, partition: Partition) -> None:
        """A log may be due, or have more to clean, than when it was looked at last."""
        if partition.log.claims is not None or self._cleans(partition):
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
        """Clean logs until none is due; how many cleanings came to their end."""
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
        """The log that is to be cleaned first, as Kafka chooses it."""
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
        """A noted log, if it is due; one that cannot become due by itself is noted no more."""
        partition = self._partitions.get(key)
        if partition is None:
            self._noted.pop(key, None)
            return None
        if partition.in_surgery:
            return None
        try:
            if partition.log.claims is not None:
                return self._correctable(partition)
            return self._cleanable(partition)
        except KafkaStorageError:
            log.exception("%s cannot be cleaned", partition.name)
            partition.give_up_if_offline()
            self._noted.pop(key, None)
            return None

    def _correctable(self, partition: Partition) -> _Due | None:
        """A log of which timestamps are to be corrected; the growing segment is closed for that.

        One that has to wait is looked at behind the others from now on.
        """
        if partition.log.correctable:
            return _Due(CORRECTED_FIRST, partition)
        self._noted.pop(partition.key, None)
        if partition.log.offline:
            return None
        self._noted[partition.key] = None
        if self._closed < CLOSED_AT_ONCE and partition.log.close_claimed(self._runtime.now_ms()):
            self._closed += 1
            partition.host.has_appended(partition)  # it is flushed soon, and can be corrected then
        return None

    def _cleanable(self, partition: Partition) -> _Due | None:
        found = None
        if self._cleans(partition):
            found = partition.log.cleanable(self._runtime.now_ms(), partition.high_watermark)
        if found is not None and found.is_due:
            return _Due(found.dirty_ratio, partition)
        if found is None or not found.waits:
            self._noted.pop(partition.key, None)
        return None

    # ---- turns ---------------------------------------------------------------------------

    async def _has_turn(self, dirty_ratio: float) -> bool:
        """Whether no other process of the broker cleans, nor has a dirtier log."""
        try:
            granted: bool = await self._runtime.call(
                self._broker, "cleaning_turn", self._name, dirty_ratio, timeout_ms=ASK_TIMEOUT_MS
            )
        except (ActorGone, PeerLost, PeerTimeout) as silent:
            log.info("the broker grants no turn to clean: %s", silent)
            return False
        return granted

    async def _keep_turn(self, dirty_ratio: float) -> None:
        while True:
            await self._runtime.sleep(ASK_EVERY_MS / 1000)
            await self._has_turn(dirty_ratio)

    async def _end_turn(self) -> None:
        try:
            await self._runtime.call(
                self._broker, "cleaning_ended", self._name, timeout_ms=ASK_TIMEOUT_MS
            )
        except (ActorGone, PeerLost, PeerTimeout) as silent:
            log.info("the broker will see that nothing is cleaned: %s", silent)

    # ---- one log -------------------------------------------------------------------------

    async def _clean(self, due: _Due) -> bool:
        """Whether a cleaning came to its end."""
        keeping = self._runtime.start(self._keep_turn(due.dirty_ratio), "turn to clean")
        try:
            return await self._clean_one(due.partition)
        finally:
            keeping.cancel()
            await self._end_turn()

    async def _clean_one(self, partition: Partition) -> bool:
        if self._partitions.get(partition.key) is not partition or partition.in_surgery:
            return True
        try:
            job = self._begin(partition)
            return job is None or await self._run(partition, job)
        except KafkaError:
            log.exception("cleaning of %s failed", partition.name)
            partition.give_up_if_offline()
            return False

    def _begin(self, partition: Partition) -> CleanJob | None:
        now_ms, token = self._runtime.now_ms(), self._runtime.instance
        pause = Pacing(self._settings.bytes_per_second, self._runtime.rest_s)
        if partition.log.claims is not None:
            return partition.log.begin_correct(now_ms, pause=pause, token=token)
        return partition.log.begin_clean(
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
            partition.log.end_clean(job, self._runtime.now_ms())
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
            partition.log.first_dirty_offset,
            job.records_read,
            partition.log.size,
            size,
            took_s,
        )
        return not job.stopping

    async def _run_apart(self, partition: Partition, job: CleanJob) -> None:
        """Run the steps; raises PeerLost if who does the work is gone."""
        apart = await self._runtime.apart(job.work)
        try:
            job.on_stop = apart.stop
            if job.stopping:
                apart.stop()
            more = True
            while more:
                outcome = await apart.step()
                await self._runtime.run_blocking(job.take, outcome)
                more = partition.log.end_clean(job, self._runtime.now_ms())
        finally:
            job.on_stop = None
            await apart.close()

"""ListOffsets by time: looks into the files of logs, beside the event loop.

A few lookups run at once and the others wait, so that flushes and checkpoints find a free thread
however many are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from raylog.actors.ports import PartitionKey
from raylog.actors.replica.partition import Partition
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.wire.errors import KafkaError, NotLeaderOrFollower

LOOKUPS_AT_ONCE = 2
Found = tuple[int, int, int]
"""Offset, timestamp in ms, leader epoch."""


class Lookup(NamedTuple):
    """What a client asked of one partition."""

    partition: Partition
    current_epoch: int
    timestamp: int
    isolation: int
    request: LinkRequest


class Lookups:
    """Lookups of one process, answered in about the order in which they came."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[PartitionKey, Partition],
        refusal: Callable[[str, KafkaError | OSError], KafkaError],
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._refusal = refusal
        self._waiting: deque[Lookup] = deque()
        self._running = 0

    def add(self, lookup: Lookup) -> None:
        """Answer a request, later."""
        self._waiting.append(lookup)
        if self._running < LOOKUPS_AT_ONCE:
            self._running += 1
            self._runtime.start(self._work(), "offsets by time")

    async def _work(self) -> None:
        while self._waiting:
            lookup = self._waiting.popleft()
            try:
                found = await self._look(lookup)
            except KafkaError as failure:
                lookup.request.fail(self._refusal(lookup.request.kind, failure))
                lookup.partition.give_up_if_offline()
            else:
                lookup.request.reply(found)
        self._running -= 1

    async def _look(self, lookup: Lookup) -> Found:
        """Look until nothing was cleaned or deleted meanwhile."""
        partition = lookup.partition
        while True:
            if self._partitions.get(partition.key) is not partition:
                raise NotLeaderOrFollower(f"{partition.name} is closed here")
            partition.machine.require_leader(lookup.current_epoch)
            job = partition.begin_lookup(lookup.timestamp)
            await self._runtime.run_blocking(job.run)
            if self._partitions.get(partition.key) is partition and partition.log.end_lookup(job):
                return partition.found_by(job, lookup.current_epoch, lookup.isolation)

"""Client queries about a partition: offsets, ends of epochs, producers.

Threads look up offsets by time in the log's files. Only a few lookups run at once, so that flushes
and checkpoints always find a free thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from raylog.actors.common_messages import PartitionKey
from raylog.actors.message import first_values
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.messages import pack_producers
from raylog.actors.replica.partition import Partition, open_partition
from raylog.actors.replica.reads import Reads
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.storage.producers import ProducerSnapshot
from raylog.wire.errors import KafkaError, NotLeaderOrFollower

LOOKUPS_AT_ONCE = 2
DESCRIBED_AT_ONCE = 1_000
"""Up to this many producers are described on the event loop; more, in a thread."""
Found = tuple[int, int, int]
"""Offset, timestamp in ms, leader epoch."""


class Lookup(NamedTuple):
    """A client's query about one partition."""

    partition: Partition
    current_epoch: int
    timestamp: int
    isolation: int
    request: LinkRequest


class Lookups:
    """Lookups of one process; those by time are answered roughly in order of arrival."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[PartitionKey, Partition],
        reads: Reads,
        failures: StorageFailures,
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._reads = reads
        self._failures = failures
        self._waiting: deque[Lookup] = deque()
        self._running = 0

    def offset_for(self, request: LinkRequest) -> None:
        """Answer ListOffsets: the offset for a timestamp, or for the start or end of the log."""
        topic_id, index, epoch, timestamp, isolation = first_values(request.header, 5)
        partition = open_partition(self._partitions, topic_id, index)
        known = partition.offset_for(epoch, timestamp, isolation)
        if known is not None:
            request.reply(known)
            return
        self._waiting.append(Lookup(partition, epoch, timestamp, isolation, request))
        if self._running < LOOKUPS_AT_ONCE:
            self._running += 1
            self._runtime.start(self._work(), "offsets by time")

    def epoch_end(self, request: LinkRequest) -> None:
        """Answer OffsetForLeaderEpoch: where a leader epoch ended."""
        topic_id, index, epoch, asked = first_values(request.header, 4)
        partition = open_partition(self._partitions, topic_id, index)
        partition.machine.require_leader(epoch)
        request.reply(partition.log.epochs.end_offset_for(asked, partition.log.log_end_offset))

    def producers(self, request: LinkRequest) -> None:
        """Answer DescribeProducers: the producers that the log knows."""
        topic_id, index = first_values(request.header, 2)
        found = open_partition(self._partitions, topic_id, index).log.producers.snapshot()
        if len(found) <= DESCRIBED_AT_ONCE:
            request.reply(pack_producers(found.describe()))
        else:
            self._runtime.start(self._describe(request, found), "describe producers")

    async def _describe(self, request: LinkRequest, found: ProducerSnapshot) -> None:
        """Describe many producers in a thread."""
        request.reply(await self._runtime.run_blocking(pack_producers, found.describe()))

    async def _work(self) -> None:
        while self._waiting:
            lookup = self._waiting.popleft()
            try:
                found = await self._look(lookup)
            except KafkaError as failure:
                lookup.request.fail(self._failures.refusal(lookup.request.kind, failure))
                lookup.partition.give_up_if_offline()
            else:
                lookup.request.reply(found)
        self._running -= 1

    async def _look(self, lookup: Lookup) -> Found:
        """Look up until no segment was cleaned or deleted during the lookup."""
        partition = lookup.partition
        while True:
            if self._partitions.get(partition.key) is not partition:
                raise NotLeaderOrFollower(f"{partition.name} is closed here")
            partition.machine.require_leader(lookup.current_epoch)
            job = partition.begin_lookup(lookup.timestamp)
            await self._reads.run(job)
            if self._partitions.get(partition.key) is partition and partition.log.reader.end_lookup(
                job
            ):
                return partition.found_by(job, lookup.current_epoch, lookup.isolation)

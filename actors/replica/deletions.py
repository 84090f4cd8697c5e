"""DeleteRecords: answered once no replica that may lead next brings the records back (KIP-107)."""

from __future__ import annotations

from collections.abc import Mapping

from raylog.actors.ports import PartitionKey
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.serving import Serving
from raylog.actors.replica.upkeep import Upkeep
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.wire.errors import KafkaError, NotLeaderOrFollower, RequestTimedOut

BUSY_WAIT_S = 0.005
TIMEOUT_MS = 20_000
"""For followers to delete records, too."""


class Deletions:
    """Deletions of one process."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[PartitionKey, Partition],
        upkeep: Upkeep,
        serving: Serving,
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._upkeep = upkeep
        self._serving = serving

    def delete(self, request: LinkRequest, partition: Partition, offset: int) -> None:
        """Delete what lies before an offset (-1: all readable), answer with the log start later."""
        log_start_offset = partition.delete_records(offset)
        self._runtime.start(self._answer(request, partition, log_start_offset), "delete records")

    async def _answer(
        self, request: LinkRequest, partition: Partition, log_start_offset: int
    ) -> None:
        """Answer once the deletion survives a crash, and the loss of this replica."""
        try:
            await self._upkeep.checkpoint(partition)
            partition.host.has_news(partition)
            await self._tell_log_start(partition, log_start_offset)
        except KafkaError as failure:
            request.fail(failure)
            partition.give_up_if_offline()
        else:
            request.reply(log_start_offset)

    async def _tell_log_start(self, partition: Partition, log_start_offset: int) -> None:
        """Wait until all who fetch, or may be in sync, have deleted as much, durably."""
        self._serving.tell_now(partition)
        deadline_ms = self._runtime.monotonic_ms() + TIMEOUT_MS
        while True:
            if self._partitions.get(partition.key) is not partition:
                raise NotLeaderOrFollower(f"{partition.name} is closed here")
            partition.machine.require_leader()
            if self._serving.log_starts_at(partition, log_start_offset):
                return
            if self._runtime.monotonic_ms() > deadline_ms:
                raise RequestTimedOut(f"not all replicas begin at {log_start_offset} yet")
            await self._runtime.sleep(BUSY_WAIT_S)

"""DeleteRecords: answered once every replica that may become leader has deleted (KIP-107)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raylog.actors.common_messages import PartitionKey
from raylog.actors.message import first_values
from raylog.actors.replica.follower_sessions import FollowerSessions
from raylog.actors.replica.log_manager import LogManager
from raylog.actors.replica.partition import Partition, open_partition
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.actors.runtime.deadlines import Deadlines, Due
from raylog.wire.errors import KafkaError, NotLeaderOrFollower, RequestTimedOut

TIMEOUT_MS = 20_000
"""Time for the followers to delete the records too."""


@dataclass(slots=True, eq=False)
class Deletion:
    """A deletion that waits for its followers."""

    request: LinkRequest
    partition: Partition
    log_start_offset: int
    due: Due = field(default_factory=Due)

    def reply(self) -> None:
        """Answer: all have durably deleted the records below the offset."""
        self.due.discard(self)
        self.request.reply(self.log_start_offset)

    def fail(self, failure: KafkaError) -> None:
        """Fail, because the replica no longer leads or is closed."""
        self.due.discard(self)
        self.request.fail(failure)

    def timed_out(self) -> None:
        """Fail, because a follower is too slow or does not fetch."""
        self.partition.deletions.remove(self)
        failure = RequestTimedOut(f"not all replicas begin at {self.log_start_offset} yet")
        self.request.fail(failure)


class Deletions:
    """The deletions of one process."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[PartitionKey, Partition],
        deadlines: Deadlines,
        log_manager: LogManager,
        follower_sessions: FollowerSessions,
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._deadlines = deadlines
        self._log_manager = log_manager
        self._follower_sessions = follower_sessions

    def delete(self, request: LinkRequest) -> None:
        """Delete what is below an offset (-1: all readable records); answer later."""
        topic_id, index, offset = first_values(request.header, 3)
        partition = open_partition(self._partitions, topic_id, index)
        deletion = Deletion(request, partition, partition.delete_records(offset))
        self._runtime.start(self._save(deletion), "delete records")

    async def _save(self, deletion: Deletion) -> None:
        """Make the deletion durable here, then wait for the followers."""
        partition = deletion.partition
        try:
            await self._log_manager.checkpoint(partition)
            partition.host.gateway_sessions.has_news(partition)
            self._follower_sessions.tell_now(partition)
            partition.machine.require_leader()
            if partition.work.is_reserved or partition.log.offline:
                raise NotLeaderOrFollower(f"{partition.name} is closed here")
        except KafkaError as failure:
            deletion.fail(failure)
            partition.give_up_if_offline()
            return
        deletion.due = self._deadlines.add(deletion, TIMEOUT_MS)
        partition.deletions.append(deletion)
        partition.answer_deletions()

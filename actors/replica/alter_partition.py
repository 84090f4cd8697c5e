"""Proposes ISR changes to the controller, through the broker, one request at a time."""

from __future__ import annotations

import logging

from raylog.actors.controller.messages import IsrChange, IsrOutcome
from raylog.actors.names import broker_name
from raylog.actors.remote import Broker, call
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.leading import Proposal
from raylog.actors.replica.rules.machine import IsrAltered, IsrRefused
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)
TIMEOUT_MS = 10_000
BACKOFF_MS = 100
_SETTLED = {
    ErrorCode.NONE,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NEW_LEADER_ELECTED,
}
"""With these, the outcome has the controller's state of the partition; a newer one is applied."""
_REFUSED = {
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class AlterPartitionManager:
    """Proposals of all partitions led here; those made during a request are sent together."""

    def __init__(self, runtime: Runtime, cluster_id: str, broker_id: int) -> None:
        self._runtime = runtime
        self._broker = broker_name(cluster_id, broker_id)
        self._waiting: dict[Partition, Proposal] = {}
        self._running = False

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        """Send a proposal; the partition's machine is given the outcome."""
        self._waiting[partition] = proposal
        if not self._running:
            self._running = True
            self._runtime.start(self._run(), "in-sync replicas")

    async def _run(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            if not await self._ask(asked):
                await self._runtime.sleep(BACKOFF_MS / 1000)
        self._running = False

    async def _ask(self, proposals: dict[Partition, Proposal]) -> bool:
        """Ask once; False if part of it has to be asked again."""
        changes = [
            IsrChange(*partition.key, one.leader_epoch, one.partition_epoch, one.isr)
            for partition, one in proposals.items()
        ]
        try:
            outcomes = await call(
                self._runtime, self._broker, Broker.alter_partitions, changes, timeout_ms=TIMEOUT_MS
            )
        except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
            log.info("in-sync replicas are not altered yet: %s", failure)
            for partition, proposal in proposals.items():
                self._again(partition, proposal)
            return False
        done = True
        for (partition, proposal), outcome in zip(proposals.items(), outcomes, strict=True):
            done = self._answered(partition, proposal, outcome) and done
        return done

    def _answered(self, partition: Partition, proposal: Proposal, outcome: IsrOutcome) -> bool:
        if outcome.error in _SETTLED:
            partition.isr_altered(
                IsrAltered(proposal, outcome.leader_epoch, outcome.partition_epoch, outcome.isr)
            )
            return True
        log.info("in-sync replicas of %s: %s", partition.name, outcome.message)
        if outcome.error in _REFUSED:
            partition.isr_altered(IsrRefused(proposal, int(partition.host.monotonic_ms())))
            return True
        self._again(partition, proposal)
        return False

    def _again(self, partition: Partition, proposal: Proposal) -> None:
        """Send a proposal again unless it is superseded: it may have taken effect."""
        progress = partition.machine.progress
        if progress is not None and progress.is_under_way(proposal):
            self._waiting.setdefault(partition, proposal)

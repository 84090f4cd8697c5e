"""A follower's fetch session with one leading process: ask, append, ask again at once."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from raylog.actors.common_messages import PartitionKey
from raylog.actors.message import each_taken
from raylog.actors.replica.messages import REPLICATE, ReplicaInterest, ReplicateAsk, ReplicatedPart
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.config import ReplicationSettings
from raylog.actors.replica.rules.divergence import (
    Truncation,
    truncation_at_divergence,
    truncation_out_of_range,
    unless_all_goes,
)
from raylog.actors.replica.rules.machine import Followed
from raylog.actors.replica.throttler import Throttler
from raylog.actors.runtime.base import Link, Runtime
from raylog.wire.errors import DecodeError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from raylog.actors.replica.replica_fetcher_manager import ReplicaFetcherManager

log = logging.getLogger(__name__)


class ReplicaFetcher:
    """Fetches all partitions that this process follows and one other process leads."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ReplicationSettings,
        broker_id: int,
        link: Link,
        manager: ReplicaFetcherManager,
        throttler: Throttler,
    ) -> None:
        """`manager` handles what the fetcher cannot settle alone."""
        self._runtime = runtime
        self._settings = settings
        self._broker_id = broker_id
        self._link = link
        self._manager = manager
        self._throttler = throttler
        self._partitions: dict[PartitionKey, Partition] = {}
        self._changed: dict[PartitionKey, None] = {}
        """Partitions to name in the next request."""
        self._forgotten: dict[PartitionKey, None] = {}
        self._asked = 0
        """Number of unanswered requests."""

    # ---- followed partitions -------------------------------------------------------------

    def add(self, partitions: Iterable[Partition]) -> None:
        """Follow more partitions."""
        for partition in partitions:
            self._partitions[partition.key] = partition
            self._changed[partition.key] = None
            self._forgotten.pop(partition.key, None)
        self._ask()

    def remove(self, partition: Partition) -> None:
        """Stop following a partition; the next request says so."""
        if self._partitions.pop(partition.key, None) is not None:
            self._changed.pop(partition.key, None)
            self._forgotten[partition.key] = None

    def resume(self, partition: Partition, epoch: int) -> None:
        """Fetch again if the partition is still followed in this epoch."""
        if self._follows(partition, epoch):
            self._changed[partition.key] = None
            self._ask()

    def _follows(self, partition: Partition, epoch: int) -> bool:
        return (
            self._partitions.get(partition.key) is partition
            and partition.machine.leader_epoch == epoch
        )

    def end(self) -> list[Partition]:
        """The link is gone: return the partitions followed over it."""
        partitions = list(self._partitions.values())
        self._partitions.clear()
        return partitions

    # ---- asking --------------------------------------------------------------------------

    def _ask(self) -> None:
        changed, self._changed = self._changed, {}
        if self._throttler.follows:
            changed = {key: None for key in changed if self._may_ask(self._partitions[key])}
        forgotten, self._forgotten = self._forgotten, {}
        settings = self._settings
        ask = ReplicateAsk(
            self._broker_id,
            settings.wait_ms_max,
            settings.min_bytes,
            settings.response_bytes_max,
            [self._interest(self._partitions[key]) for key in changed],
            list(forgotten),
        )
        self._asked += 1
        self._link.request(REPLICATE, ask, (), self._answered, self._failed)

    def _may_ask(self, partition: Partition) -> bool:
        epoch = partition.machine.leader_epoch
        return self._throttler.lets_ask(partition, lambda: self.resume(partition, epoch))

    def _interest(self, partition: Partition) -> ReplicaInterest:
        log, machine = partition.log, partition.machine
        return ReplicaInterest(
            *partition.key,
            machine.leader_epoch,
            log.log_end_offset,
            log.epochs.latest,
            log.durable_start_offset,
            machine.incarnation,
            self._settings.partition_bytes_max,
        )

    def _failed(self, failure: Exception) -> None:
        """End the session: the leading process is gone or refused the request."""
        log.info("a leading process answers no more: %s", failure)
        self._link.close()

    # ---- answers -------------------------------------------------------------------------

    def _answered(self, header: Any, payload: memoryview) -> None:
        self._asked -= 1
        now_ms = self._runtime.now_ms()
        begin = 0
        for part in each_taken(ReplicatedPart, header):
            records = payload[begin : begin + part.length]
            begin += part.length
            partition = self._partitions.get((part.topic_id, part.partition))
            if partition is not None and self._is_current(partition, part):
                self._take(partition, part, records, now_ms)
        if not self._partitions:
            self._link.close()
        elif self._changed or not self._asked:
            self._ask()

    def _is_current(self, partition: Partition, part: ReplicatedPart) -> bool:
        """Whether an answer belongs to the present epoch, and the log may change."""
        is_current = part.leader_epoch == partition.machine.leader_epoch
        return is_current and not partition.work.is_reserved

    def _take(
        self, partition: Partition, part: ReplicatedPart, records: memoryview, now_ms: int
    ) -> None:
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start, end = partition.log.log_start_offset, partition.log.log_end_offset
            truncation = truncation_out_of_range(
                start, end, part.log_start_offset, part.log_end_offset
            )
            self._truncate(partition, truncation)
        elif part.error_code:
            self._refused(partition, part)
        elif part.diverging is not None:
            machine, own = partition.machine, partition.log
            epoch, end = part.diverging
            truncation = truncation_at_divergence(
                own.epochs, own.log_end_offset, machine.high_watermark, epoch, end
            )
            self._truncate(
                partition, unless_all_goes(truncation, own.log_start_offset, part.log_start_offset)
            )
        else:
            self._manager.served(partition)
            self._append(partition, part, records, now_ms)

    def _append(
        self, partition: Partition, part: ReplicatedPart, records: memoryview, now_ms: int
    ) -> None:
        own = partition.log
        try:
            if part.length:
                fetched_offset = own.log_end_offset
                own.append_verbatim(records, now_ms)
                partition.counts.replicated_in += part.length
                if part.claims_end > fetched_offset:
                    own.cleaner.claim(fetched_offset, part.claims_end)
                self._changed[partition.key] = None
                partition.host.log_manager.appended(partition, now_ms)
            if part.log_start_offset > own.log_start_offset:
                own.delete_records_to(min(part.log_start_offset, own.log_end_offset))
                self._changed[partition.key] = None
            if part.log_start_offset > own.durable_start_offset:
                self._manager.starts_later(partition, self)
        except (KafkaError, DecodeError) as failure:
            self._changed.pop(partition.key, None)
            self._not_appended(partition, failure)
        else:
            partition.is_behind = part.log_end_offset > own.log_end_offset
            if self._throttler.follows:
                self._throttler.received(partition, part.length)
            partition.handle(Followed(own.log_end_offset, part.high_watermark))

    def _not_appended(self, partition: Partition, failure: Exception) -> None:
        """Handle damaged records or a failed write: fetch again, unless the log is offline."""
        log.error("%s cannot follow: %s", partition.name, failure)
        self.resume_later(partition)
        partition.give_up_if_offline()

    def resume_later(self, partition: Partition) -> None:
        """Fetch again after the backoff, because an immediate retry would fail too."""
        epoch = partition.machine.leader_epoch
        self._runtime.call_later(self._settings.backoff_ms, lambda: self.resume(partition, epoch))

    def _truncate(self, partition: Partition, truncation: Truncation | None) -> None:
        if truncation is None:
            self.resume_later(partition)
        else:
            self._manager.truncate(partition, truncation, self)

    def _refused(self, partition: Partition, part: ReplicatedPart) -> None:
        """Handle an error: the leader's or this process's metadata is out of date."""
        log.debug("%s is not served: error %d", partition.name, part.error_code)
        if part.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            partition.host.fetchers.leave(partition)
        else:
            self._manager.refused(partition)

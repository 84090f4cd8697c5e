"""One fetch session of a follower with a process that leads: ask, append, ask again at once."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol

from raylog.actors.plain import each_taken
from raylog.actors.ports import PartitionKey
from raylog.actors.replica.api import REPLICATE, ReplicaInterest, ReplicateAsk, ReplicatedPart
from raylog.actors.replica.config import ReplicationSettings
from raylog.actors.replica.divergence import (
    Cut,
    cut_at_divergence,
    cut_out_of_range,
    unless_all_goes,
)
from raylog.actors.replica.machine import Followed
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.throttler import Throttler
from raylog.actors.runtime.base import Link, Runtime
from raylog.wire.errors import DecodeError, ErrorCode, KafkaError

log = logging.getLogger(__name__)


class Followers(Protocol):
    """Who is told what a stream cannot settle by itself."""

    def refused(self, partition: Partition) -> None:
        """The process does not serve a partition."""

    def served(self, partition: Partition) -> None:
        """The process serves a partition."""

    def cut(self, partition: Partition, cut: Cut, stream: LeaderStream) -> None:
        """A partition's log must be shortened; `resume` follows."""

    def starts_later(self, partition: Partition, stream: LeaderStream) -> None:
        """A partition's log start is not durable yet; `resume` follows once it is."""


class LeaderStream:
    """All partitions that one process leads and this one follows."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ReplicationSettings,
        broker_id: int,
        link: Link,
        followers: Followers,
        throttler: Throttler,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._broker_id = broker_id
        self._link = link
        self._followers = followers
        self._throttler = throttler
        self._partitions: dict[PartitionKey, Partition] = {}
        self._changed: dict[PartitionKey, None] = {}
        """To be named in the next request."""
        self._forgotten: dict[PartitionKey, None] = {}
        self._asked = 0
        """Requests that are not answered."""

    # ---- who is followed -----------------------------------------------------------------

    def add(self, partitions: Iterable[Partition]) -> None:
        """Follow more partitions."""
        for partition in partitions:
            self._partitions[partition.key] = partition
            self._changed[partition.key] = None
            self._forgotten.pop(partition.key, None)
        self._ask()

    def remove(self, partition: Partition) -> None:
        """Follow one no more; the process hears of it with the next request."""
        if self._partitions.pop(partition.key, None) is not None:
            self._changed.pop(partition.key, None)
            self._forgotten[partition.key] = None

    def resume(self, partition: Partition, epoch: int) -> None:
        """Fetch on, unless that is not wanted any more."""
        if self._follows(partition, epoch):
            self._changed[partition.key] = None
            self._ask()

    def _follows(self, partition: Partition, epoch: int) -> bool:
        return (
            self._partitions.get(partition.key) is partition
            and partition.machine.leader_epoch == epoch
        )

    def end(self) -> list[Partition]:
        """The link is gone: who was followed over it."""
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
        """The process is gone, or does not understand us."""
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
        """Whether an answer is one to what is asked now, in the epoch followed now."""
        return part.leader_epoch == partition.machine.leader_epoch and not partition.in_surgery

    def _take(
        self, partition: Partition, part: ReplicatedPart, records: memoryview, now_ms: int
    ) -> None:
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start, end = partition.log.log_start_offset, partition.log.log_end_offset
            cut = cut_out_of_range(start, end, part.log_start_offset, part.log_end_offset)
            self._cut(partition, cut)
        elif part.error_code:
            self._refused(partition, part)
        elif part.diverging is not None:
            machine, own = partition.machine, partition.log
            epoch, end = part.diverging
            cut = cut_at_divergence(
                own.epochs, own.log_end_offset, machine.high_watermark, epoch, end
            )
            self._cut(partition, unless_all_goes(cut, own.log_start_offset, part.log_start_offset))
        else:
            self._followers.served(partition)
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
                    own.claim(fetched_offset, part.claims_end)
                self._changed[partition.key] = None
                partition.host.has_appended(partition)
            if part.log_start_offset > own.log_start_offset:
                own.delete_records_to(min(part.log_start_offset, own.log_end_offset))
                self._changed[partition.key] = None
            if part.log_start_offset > own.durable_start_offset:
                self._followers.starts_later(partition, self)
        except (KafkaError, DecodeError) as failure:
            self._changed.pop(partition.key, None)
            self._not_appended(partition, failure)
        else:
            partition.is_behind = part.log_end_offset > own.log_end_offset
            if self._throttler.follows:
                self._throttler.received(partition, part.length)
            partition.handle(Followed(own.log_end_offset, part.high_watermark))

    def _not_appended(self, partition: Partition, failure: Exception) -> None:
        """Records are damaged, or the disk is full: ask again later; a broken disk is the end."""
        log.error("%s cannot follow: %s", partition.name, failure)
        self.resume_later(partition)
        partition.give_up_if_offline()

    def resume_later(self, partition: Partition) -> None:
        """Fetch on after a while: what failed would fail again at once."""
        epoch = partition.machine.leader_epoch
        self._runtime.call_later(self._settings.backoff_ms, lambda: self.resume(partition, epoch))

    def _cut(self, partition: Partition, cut: Cut | None) -> None:
        if cut is None:
            self.resume_later(partition)
        else:
            self._followers.cut(partition, cut, self)

    def _refused(self, partition: Partition, part: ReplicatedPart) -> None:
        """The process is behind, or we are: then the metadata says so soon."""
        log.debug("%s is not served: error %d", partition.name, part.error_code)
        if part.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            partition.host.leave(partition)
        else:
            self._followers.refused(partition)

"""Shell of the partition replicas in one process: opens and closes logs, decides nothing."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import Any

from raylog.actors.common_messages import (
    OpenedPartition,
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    PartitionStatus,
    TopicConfig,
)
from raylog.actors.metrics.samples import ProcessMetrics
from raylog.actors.names import broker_name
from raylog.actors.remote import Broker, call
from raylog.actors.replica.alter_partition import AlterPartitionManager
from raylog.actors.replica.cleaner import Cleaner
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.log_manager import LogManager
from raylog.actors.replica.opening import close_logs, open_logs
from raylog.actors.replica.partition import Host, Partition
from raylog.actors.replica.partition_files import PartitionFiles
from raylog.actors.replica.replica_fetcher_manager import ReplicaFetcherManager
from raylog.actors.replica.requests import Requests
from raylog.actors.replica.rules.config import (
    CleanerSettings,
    ReplicationSettings,
    partition_config,
)
from raylog.actors.replica.rules.machine import PartitionMachine
from raylog.actors.replica.sampling import TOPICS_MAX, ReplicaMetrics
from raylog.actors.replica.throttler import Throttler
from raylog.actors.runtime.base import ActorGone, LinkRequest, PeerLost, PeerTimeout, Runtime
from raylog.actors.runtime.waiting import announced
from raylog.storage.log import Log
from raylog.wire.errors import (
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
)

log = logging.getLogger(__name__)
REPORT_TIMEOUT_MS = 5_000


class ReplicaActor:
    """Serves produce and fetch requests for its partitions, over links.

    The Broker controls it (open, lead, close, configure) through `Runtime.call`.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        name: str,
        cluster_id: str,
        broker_id: int,
        replication: ReplicationSettings | None = None,
        retention_check_interval_ms: int = 300_000,
        cleaner: CleanerSettings | None = None,
        topics_max: int = TOPICS_MAX,
    ) -> None:
        self._runtime = runtime
        self._name = name
        self._broker_id = broker_id
        self._broker = broker_name(cluster_id, broker_id)
        settings = replication or ReplicationSettings()
        self._lag_ms_max = settings.lag_ms_max
        self._retention_check_interval_ms = retention_check_interval_ms
        self._partitions: dict[PartitionKey, Partition] = {}
        self._flush_failed: set[PartitionKey] = set()
        """Closed logs whose flush failed: their unflushed data is in doubt."""
        self._metrics = ReplicaMetrics(runtime, self._partitions, topics_max)
        self._files = PartitionFiles(runtime)
        self._cleaner = Cleaner(
            runtime, cleaner or CleanerSettings(), self._partitions, name=name, broker=self._broker
        )
        self._failures = StorageFailures(runtime.monotonic_ms)
        self._log_manager = LogManager(
            runtime, self._partitions, self._failures, self._cleaner.note
        )
        self._throttler = Throttler(
            runtime, settings, cluster_id=cluster_id, broker_id=broker_id, name=name
        )
        self._requests = Requests(
            runtime,
            self._partitions,
            self._failures,
            self._log_manager,
            self._throttler,
            broker=self._broker,
            session_ms=settings.session_ms,
        )
        self._fetchers = ReplicaFetcherManager(
            runtime, settings, cluster_id, broker_id, self._throttler, self._log_manager
        )
        self._host = Host(
            runtime.monotonic_ms,
            self._requests.reads,
            self._requests.gateway_sessions,
            self._requests.followers,
            self._log_manager,
            self._fetchers,
            AlterPartitionManager(runtime, cluster_id, broker_id),
            self._failed,
        )

    async def start(self) -> None:
        """Start the retention sweep."""
        retention = self._log_manager.sweep_forever(self._retention_check_interval_ms)
        self._runtime.start(retention, "retention")

    async def stop(self) -> None:
        """Close all logs cleanly."""
        self._log_manager.stop()
        self._requests.close()
        await self.close_partitions(list(self._partitions), False)

    async def ping(self) -> dict[str, Any]:
        """Return name and process id, so that a restarted Broker can adopt this process."""
        return {"name": self._name, "pid": os.getpid(), "partitions": len(self._partitions)}

    # ---- control -------------------------------------------------------------------------

    async def open_partitions(self, openings: list[OpenPartition]) -> list[OpenedPartition]:
        """Open logs, each as a new incarnation; a failure does not affect the others."""
        fresh = [one for one in openings if (one.topic_id, one.partition) not in self._partitions]
        runtime = self._runtime
        opened = await runtime.run_blocking(
            open_logs, fresh, runtime.disk, runtime.now_ms(), frozenset(self._flush_failed)
        )
        for one, outcome in zip(fresh, opened, strict=True):
            if isinstance(outcome, tuple):
                key = (one.topic_id, one.partition)
                self._flush_failed.discard(key)
                self._partitions[key] = self._partition(key, one, outcome[0])
                self._log_manager.watch(self._partitions[key])
                self._cleaner.note(self._partitions[key])
                self._files.opened(one, outcome[1], self._partitions[key].work)
        if fresh:
            self._throttler.configure(fresh[-1].config)
        failures = {
            (one.topic_id, one.partition): str(outcome)
            for one, outcome in zip(fresh, opened, strict=True)
            if not isinstance(outcome, tuple)
        }
        return [self._opened(one, failures) for one in openings]

    def _partition(self, key: PartitionKey, opening: OpenPartition, opened: Log) -> Partition:
        config = partition_config(opening.config)
        machine = PartitionMachine(
            self._broker_id,
            opened.log_end_offset,
            opened.checkpoints.high_watermark_saved,
            config.min_isr,
            self._lag_ms_max,
        )
        counts = self._metrics.opened(opening.topic)
        return Partition(key, opening.topic, opened, config, machine, self._host, counts=counts)

    def _opened(self, opening: OpenPartition, failures: dict[PartitionKey, str]) -> OpenedPartition:
        key = (opening.topic_id, opening.partition)
        partition = self._partitions.get(key)
        if partition is None:
            return OpenedPartition(*key, error=failures[key])
        opened = partition.log
        whole = opened.state.is_whole and not self._files.begun_anew(key)
        return OpenedPartition(*key, opened.log_start_offset, opened.log_end_offset, whole=whole)

    async def lead_partitions(self, leaderships: list[PartitionLeadership]) -> None:
        """Apply committed leadership; an older epoch changes nothing.

        Partitions whose log is reserved come last, so that the others do not wait for them.
        """
        for leadership in sorted(leaderships, key=self._is_reserved):
            key = (leadership.topic_id, leadership.partition)
            partition = self._partitions.get(key)
            while partition is not None and partition.work.is_reserved:
                await announced(partition.work.on_release)
                partition = self._partitions.get(key)
            if partition is not None:
                partition.lead(leadership)
                if self._broker_id in leadership.isr:
                    self._files.in_sync(key)
                self._host.follower_sessions.reconsider(partition)
                self._log_manager.unsettled(partition)

    def _is_reserved(self, leadership: PartitionLeadership) -> bool:
        partition = self._partitions.get((leadership.topic_id, leadership.partition))
        return partition is not None and partition.work.is_reserved

    async def close_partitions(self, keys: list[PartitionKey], delete: bool) -> None:
        """Close logs; with `delete`, also remove their files."""
        closing = [p for key in keys if (p := self._partitions.pop(key, None)) is not None]
        await self._close(closing, delete)

    async def _close(self, closing: list[Partition], delete: bool) -> None:
        for partition in closing:
            self._metrics.closed(partition)
            self._fetchers.leave(partition)
            closed = NotLeaderOrFollower(f"{partition.name} is closed here")
            partition.fail_waiting(closed)
            partition.fail_deletions(closed)
            self._host.gateway_sessions.has_news(partition)
            self._host.follower_sessions.has_grown(partition)
            partition.log.cleaner.stop()
            self._files.closing(partition.key)
        for reserved in [announced(partition.work.reserve) for partition in closing]:
            await reserved  # and never released: no task may start on a closed log
        try:
            await self._runtime.run_blocking(close_logs, closing, delete)
        finally:
            self._flush_failed.update(one.key for one in closing if one.log.state.flush_failed)

    async def configure(self, configs: list[TopicConfig]) -> None:
        """Apply changed topic configurations."""
        changed = {one.topic_id: one for one in configs}
        for partition in self._partitions.values():
            topic = changed.get(partition.key[0])
            if topic is not None:
                partition.configure(partition_config(topic.config))
                self._log_manager.watch(partition)
                self._cleaner.note(partition)
                self._files.configured(partition.key, topic.settings, topic.noted)
        if configs:
            self._throttler.configure(configs[-1].config)

    async def describe(self) -> list[PartitionStatus]:
        """Status of every partition in this process."""
        return [
            replace(partition.status(), whole=False)
            if self._files.begun_anew(key)
            else partition.status()
            for key, partition in self._partitions.items()
        ]

    async def metrics(self) -> ProcessMetrics:
        """Metrics of this process."""
        return await self._metrics.sample(self._log_manager, self._cleaner, self._requests.waiting)

    # ---- links ---------------------------------------------------------------------------

    def link_received(self, request: LinkRequest) -> None:
        """Dispatch one link request; a client's error becomes an answer."""
        try:
            self._requests.handlers[request.kind](request)
        except (KafkaError, OSError) as failure:
            request.fail(self._failures.refusal(request.kind, failure))

    def link_lost(self, peer: int) -> None:
        """Forget the sessions and claims of a closed link."""
        self._requests.link_lost(peer)

    # ---- failed disks --------------------------------------------------------------------

    def _failed(self, partition: Partition) -> None:
        """Give up a partition whose disk failed; the broker has it reopened."""
        if self._partitions.get(partition.key) is partition:
            del self._partitions[partition.key]
            self._runtime.start(self._give_up(partition), f"give up {partition.name}")

    async def _give_up(self, partition: Partition) -> None:
        try:
            await self._close([partition], False)
        except KafkaStorageError as failure:
            log.error("%s could not be closed: %s", partition.name, failure)
        while True:
            try:
                await call(
                    self._runtime,
                    self._broker,
                    Broker.partitions_failed,
                    self._name,
                    [partition.key],
                    timeout_ms=REPORT_TIMEOUT_MS,
                )
            except PeerTimeout as late:
                log.warning("the broker does not hear of a failed disk: %s", late)
                continue
            except (ActorGone, PeerLost) as lost:
                log.warning("the next broker process will ask what is open: %s", lost)
            return

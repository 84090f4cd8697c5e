"""Follower side of replication: finds leaders, and keeps a fetch session with each process.

A new partition's leader is looked up at the leader's broker until that names the process that leads
it. The session with that process (`ReplicaFetcher`) then takes the partition over. The lookup
starts again if the link breaks or the process says that it does not lead the partition.
"""

from __future__ import annotations

import logging
from functools import partial

from raylog.actors.decisions import TRUNCATION, Decided
from raylog.actors.journal import decided
from raylog.actors.names import broker_name
from raylog.actors.remote import Broker, call
from raylog.actors.replica.log_manager import LogManager
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.replica_fetcher import ReplicaFetcher
from raylog.actors.replica.rules.config import ReplicationSettings
from raylog.actors.replica.rules.divergence import Truncation
from raylog.actors.replica.rules.machine import Truncated
from raylog.actors.replica.throttler import Throttler
from raylog.actors.runtime.base import ActorGone, Link, PeerLost, PeerTimeout, Runtime
from raylog.actors.runtime.link_table import Links
from raylog.wire.errors import KafkaError, KafkaStorageError

log = logging.getLogger(__name__)
LOCATE_TIMEOUT_MS = 2_000
LOCATE_BACKOFF_MS = 20
"""Delay after the first lookup; doubles up to replica.fetch.backoff.ms."""


class ReplicaFetcherManager:
    """All following partitions of one process."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ReplicationSettings,
        cluster_id: str,
        broker_id: int,
        throttler: Throttler,
        log_manager: LogManager,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._throttler = throttler
        self._log_manager = log_manager
        self._saving: set[Partition] = set()
        """Partitions whose log start is being made durable."""
        self._fresh: dict[int, dict[Partition, int]] = {}
        """Partitions whose leader must be looked up, with their leader epochs, by leader."""
        self._links = Links(runtime, self._link_lost)
        self._fetchers: dict[Link, ReplicaFetcher] = {}
        self._fetcher_of: dict[Partition, ReplicaFetcher] = {}
        self._failures: dict[Partition, int] = {}
        """Consecutive failed lookups of each partition."""

    # ---- followed partitions -------------------------------------------------------------

    def follow(self, partition: Partition, leader: int) -> None:
        """Fetch from a leader, in the partition's present leader epoch."""
        if not self._fresh:
            self._runtime.call_later(0, self._look)
        self._fresh.setdefault(leader, {})[partition] = partition.machine.leader_epoch

    def leave(self, partition: Partition) -> None:
        """Stop fetching."""
        self._failures.pop(partition, None)
        for wanting in self._fresh.values():
            wanting.pop(partition, None)
        fetcher = self._fetcher_of.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    def _look(self) -> None:
        fresh, self._fresh = self._fresh, {}
        for leader, wanting in fresh.items():
            if wanting:
                self._runtime.start(self._find(leader, wanting), f"leaders at broker {leader}")

    async def _find(self, leader: int, wanting: dict[Partition, int]) -> None:
        """Look up until each partition has its fetcher or is no longer wanted."""
        delay_ms = max(self._delay_ms(self._failures.get(one, 0)) for one in wanting)
        while True:
            if delay_ms:
                await self._runtime.sleep(delay_ms / 1000)
            wanting = {one: epoch for one, epoch in wanting.items() if self._wants(one, epoch)}
            if not wanting:
                return
            await self._join(leader, wanting)
            delay_ms = min(max(2 * delay_ms, LOCATE_BACKOFF_MS), self._settings.backoff_ms)

    def _delay_ms(self, failures: int) -> int:
        if failures == 0:
            return 0
        return min(LOCATE_BACKOFF_MS << min(failures - 1, 16), self._settings.backoff_ms)

    def _wants(self, partition: Partition, epoch: int) -> bool:
        """Whether a partition still needs a fetcher for this epoch."""
        machine = partition.machine
        return (
            machine.is_follower
            and machine.leader_epoch == epoch
            and not partition.log.offline
            and partition not in self._fetcher_of
        )

    async def _join(self, leader: int, wanting: dict[Partition, int]) -> None:
        """Ask the leader's broker once, and hand partitions to fetchers of the named processes."""
        partitions = [one for one in wanting if not one.work.is_reserved]
        try:
            addresses = await call(
                self._runtime,
                broker_name(self._cluster_id, leader),
                Broker.locate_leaders,
                [one.key for one in partitions],
                timeout_ms=LOCATE_TIMEOUT_MS,
            )
        except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
            log.info("broker %d does not say what it leads: %s", leader, failure)
            return
        found: dict[str, list[Partition]] = {}
        for partition, address in zip(partitions, addresses, strict=True):
            if address:
                found.setdefault(address, []).append(partition)
        for address, there in found.items():
            fetcher = await self._fetcher_to(address)
            if fetcher is not None:
                joining = [one for one in there if self._wants(one, wanting[one])]
                self._fetcher_of.update(dict.fromkeys(joining, fetcher))
                fetcher.add(joining)

    async def _fetcher_to(self, address: str) -> ReplicaFetcher | None:
        """The fetcher for a process; None if the process is gone."""
        try:
            link = await self._links.to(address)
        except PeerLost as lost:
            log.info("no link to %s: %s", address, lost)
            return None
        if not link.is_open:
            return None
        fetcher = self._fetchers.get(link)
        if fetcher is None:
            fetcher = self._fetchers[link] = ReplicaFetcher(
                self._runtime, self._settings, self._broker_id, link, self, self._throttler
            )
        return fetcher

    # ---- what fetchers report ------------------------------------------------------------

    def _link_lost(self, _address: str, link: Link) -> None:
        """Look up new leaders for a broken or closed link's partitions."""
        fetcher = self._fetchers.pop(link, None)
        for partition in () if fetcher is None else fetcher.end():
            self.refused(partition)

    def refused(self, partition: Partition) -> None:
        """Look up the leader again, later each time: the process does not serve the partition."""
        fetcher = self._fetcher_of.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
        self._failures[partition] = self._failures.get(partition, 0) + 1
        if partition.machine.is_follower:
            self.follow(partition, partition.machine.leader)

    def served(self, partition: Partition) -> None:
        """Reset the lookup delay: the process serves the partition."""
        if self._failures:
            self._failures.pop(partition, None)

    def truncate(
        self, partition: Partition, truncation: Truncation, fetcher: ReplicaFetcher
    ) -> None:
        """Truncate a log, then continue to fetch."""
        partition.work.reserve(partial(self._start_truncation, partition, truncation, fetcher))
        partition.log.cleaner.stop()

    def _start_truncation(
        self, partition: Partition, truncation: Truncation, fetcher: ReplicaFetcher
    ) -> None:
        self._runtime.start(
            self._truncate(partition, truncation, fetcher), f"truncate {partition.name}"
        )

    async def _truncate(
        self, partition: Partition, truncation: Truncation, fetcher: ReplicaFetcher
    ) -> None:
        epoch = partition.machine.leader_epoch
        end = partition.log.log_end_offset
        text = f"{partition.name} is truncated from {end} to {truncation.offset} in epoch {epoch}"
        decided(log, Decided(TRUNCATION, text, partition.name))
        now_ms = self._runtime.now_ms()
        resume = partial(fetcher.resume, partition, epoch)
        try:
            if truncation.anew:
                await self._runtime.run_blocking(partition.log.truncate_fully, truncation.offset)
            else:
                await self._runtime.run_blocking(
                    partition.log.truncate_to, truncation.offset, now_ms
                )
        except KafkaStorageError as failure:
            log.error("%s was not truncated: %s", partition.name, failure)
            partition.give_up_if_offline()
            resume = partial(fetcher.resume_later, partition)
        finally:
            partition.work.release()
        end = partition.log.log_end_offset
        partition.flush_target = min(partition.flush_target, end)
        partition.handle(Truncated(end))
        resume()

    def starts_later(self, partition: Partition, fetcher: ReplicaFetcher) -> None:
        """Make a log start durable, then report it: DeleteRecords waits for that."""
        if partition not in self._saving:
            self._saving.add(partition)
            self._runtime.start(self._save_start(partition, fetcher), f"start of {partition.name}")

    async def _save_start(self, partition: Partition, fetcher: ReplicaFetcher) -> None:
        epoch = partition.machine.leader_epoch
        try:
            while self._wants_saved(partition, fetcher):
                await self._log_manager.checkpoint(partition)
        except KafkaStorageError as failure:
            log.error("the log start of %s was not saved: %s", partition.name, failure)
            partition.give_up_if_offline()
        finally:
            self._saving.discard(partition)
        fetcher.resume(partition, epoch)

    def _wants_saved(self, partition: Partition, fetcher: ReplicaFetcher) -> bool:
        """Whether the fetcher still follows, no truncation runs, and the start is not durable."""
        is_followed = self._fetcher_of.get(partition) is fetcher and not partition.work.is_reserved
        own = partition.log
        return is_followed and own.durable_start_offset < own.log_start_offset

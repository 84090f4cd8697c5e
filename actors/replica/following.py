"""The follower's side of replication: where leaders are, and a fetch session with each process.

A partition that is to be followed is looked for at its leader's broker until that says which
process leads it; from there on the session with that process (`LeaderStream`) has it. It is looked
for again when the link breaks or the process says that it does not lead it.
"""

from __future__ import annotations

import logging
from functools import partial

from raylog.actors.journal import TRUNCATION, Decided, decided
from raylog.actors.names import broker_name
from raylog.actors.replica.config import ReplicationSettings
from raylog.actors.replica.divergence import Cut
from raylog.actors.replica.machine import Truncated
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.streams import LeaderStream
from raylog.actors.replica.throttler import Throttler
from raylog.actors.replica.upkeep import Upkeep
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import KafkaError, KafkaStorageError

log = logging.getLogger(__name__)
LOCATE_TIMEOUT_MS = 2_000
LOCATE_BACKOFF_MS = 20
"""After the first look; it doubles up to replica.fetch.backoff.ms."""
BUSY_WAIT_S = 0.002


class Following:
    """All partitions of one process that follow."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ReplicationSettings,
        cluster_id: str,
        broker_id: int,
        throttler: Throttler,
        upkeep: Upkeep,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._throttler = throttler
        self._upkeep = upkeep
        self._saving: set[Partition] = set()
        """Those whose log start is being made durable."""
        self._fresh: dict[int, dict[Partition, int]] = {}
        """Leader to partitions that are to be looked for, each with its leader epoch."""
        self._streams: dict[str, LeaderStream] = {}
        self._stream_of: dict[Partition, LeaderStream] = {}
        self._failures: dict[Partition, int] = {}
        """How often in a row each was looked for."""

    # ---- whom to follow ------------------------------------------------------------------

    def follow(self, partition: Partition, leader: int) -> None:
        """Fetch from a leader, in the leader epoch that the partition has now."""
        if not self._fresh:
            self._runtime.call_later(0, self._look)
        self._fresh.setdefault(leader, {})[partition] = partition.machine.leader_epoch

    def leave(self, partition: Partition) -> None:
        """Fetch no more."""
        self._failures.pop(partition, None)
        for wanting in self._fresh.values():
            wanting.pop(partition, None)
        stream = self._stream_of.pop(partition, None)
        if stream is not None:
            stream.remove(partition)

    def _look(self) -> None:
        fresh, self._fresh = self._fresh, {}
        for leader, wanting in fresh.items():
            if wanting:
                self._runtime.start(self._find(leader, wanting), f"leaders at broker {leader}")

    async def _find(self, leader: int, wanting: dict[Partition, int]) -> None:
        """Look until each partition has its stream, or is not wanted any more."""
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
        """Whether a partition still looks for its leader in an epoch."""
        machine = partition.machine
        return (
            machine.is_follower
            and machine.leader_epoch == epoch
            and not partition.log.offline
            and partition not in self._stream_of
        )

    async def _join(self, leader: int, wanting: dict[Partition, int]) -> None:
        """Ask the leader's broker once, and join the streams to the processes it names."""
        partitions = [one for one in wanting if not one.in_surgery]
        try:
            addresses: list[str] = await self._runtime.call(
                broker_name(self._cluster_id, leader),
                "locate_leaders",
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
            stream = await self._stream_to(address)
            if stream is not None:
                joining = [one for one in there if self._wants(one, wanting[one])]
                self._stream_of.update(dict.fromkeys(joining, stream))
                stream.add(joining)

    async def _stream_to(self, address: str) -> LeaderStream | None:
        """The stream to a process; None when it is gone."""
        stream = self._streams.get(address)
        if stream is not None:
            return stream
        try:
            link = await self._runtime.connect(address)
        except PeerLost as lost:
            log.info("no link to %s: %s", address, lost)
            return None
        known = self._streams.get(address)
        if known is not None:
            link.close()
            return known
        stream = LeaderStream(
            self._runtime, self._settings, self._broker_id, link, self, self._throttler
        )
        self._streams[address] = stream
        link.on_lost(lambda: self._lost(address, stream))
        return stream if self._streams.get(address) is stream else None

    # ---- what streams report -------------------------------------------------------------

    def _lost(self, address: str, stream: LeaderStream) -> None:
        """A link broke, or was closed: its partitions look for their leaders anew."""
        if self._streams.get(address) is stream:
            del self._streams[address]
        for partition in stream.end():
            self.refused(partition)

    def refused(self, partition: Partition) -> None:
        """The process does not serve the partition: look again, a little later each time."""
        stream = self._stream_of.pop(partition, None)
        if stream is not None:
            stream.remove(partition)
        self._failures[partition] = self._failures.get(partition, 0) + 1
        if partition.machine.is_follower:
            self.follow(partition, partition.machine.leader)

    def served(self, partition: Partition) -> None:
        """The process serves the partition."""
        if self._failures:
            self._failures.pop(partition, None)

    def cut(self, partition: Partition, cut: Cut, stream: LeaderStream) -> None:
        """Shorten a log, then fetch on."""
        partition.in_surgery = True
        partition.log.stop_cleaning()
        self._runtime.start(self._cut(partition, cut, stream), f"truncate {partition.name}")

    async def _cut(self, partition: Partition, cut: Cut, stream: LeaderStream) -> None:
        epoch = partition.machine.leader_epoch
        end = partition.log.log_end_offset
        text = f"{partition.name} is cut from {end} to {cut} in leader epoch {epoch}"
        decided(log, Decided(TRUNCATION, text, partition.name))
        while partition.log.busy:
            await self._runtime.sleep(BUSY_WAIT_S)
        now_ms = self._runtime.now_ms()
        resume = partial(stream.resume, partition, epoch)
        try:
            if cut.anew:
                await self._runtime.run_blocking(partition.log.truncate_fully, cut.offset)
            else:
                await self._runtime.run_blocking(partition.log.truncate_to, cut.offset, now_ms)
        except KafkaStorageError as failure:
            log.error("%s was not cut: %s", partition.name, failure)
            partition.give_up_if_offline()
            resume = partial(stream.resume_later, partition)
        finally:
            partition.in_surgery = False
        partition.handle(Truncated(partition.log.log_end_offset))
        resume()

    def starts_later(self, partition: Partition, stream: LeaderStream) -> None:
        """Make a log start durable, then tell it: DeleteRecords waits for that."""
        if partition not in self._saving:
            self._saving.add(partition)
            self._runtime.start(self._save_start(partition, stream), f"start of {partition.name}")

    async def _save_start(self, partition: Partition, stream: LeaderStream) -> None:
        epoch = partition.machine.leader_epoch
        try:
            while self._wants_saved(partition, stream):
                await self._upkeep.checkpoint(partition)
        except KafkaStorageError as failure:
            log.error("the log start of %s was not saved: %s", partition.name, failure)
            partition.give_up_if_offline()
        finally:
            self._saving.discard(partition)
        stream.resume(partition, epoch)

    def _wants_saved(self, partition: Partition, stream: LeaderStream) -> bool:
        """Whether the stream still follows, nobody cuts the log, and its start is not durable."""
        is_followed = self._stream_of.get(partition) is stream and not partition.in_surgery
        own = partition.log
        return is_followed and own.durable_start_offset < own.log_start_offset

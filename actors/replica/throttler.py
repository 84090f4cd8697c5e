"""Replication quotas in one process: replicas ask here before they copy, and are woken later.

While the broker has no rate (`leads` and `follows` are false), this costs one attribute access.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping

from raylog.actors.names import broker_name
from raylog.actors.remote import Broker, call
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.config import ReplicationSettings
from raylog.actors.replica.rules.throttle import (
    UNLIMITED,
    Event,
    HeldBack,
    Moved,
    RateChanged,
    Release,
    ShareChanged,
    Throttle,
    WakeAfter,
    Woken,
)
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime, Timer

log = logging.getLogger(__name__)
SHARE_MS = 1_000
"""Interval at which the broker is asked how many processes share a rate this one uses."""
SHARE_TIMEOUT_MS = 2_000
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


class _Side:
    """One side's machine, with its timer and callbacks."""

    def __init__(self, runtime: Runtime, settings: ReplicationSettings) -> None:
        self.machine = Throttle(settings.quota_window_ms, settings.quota_windows)
        self.is_used = False
        """Whether anything was copied since the last sharing request."""
        self._runtime = runtime
        self._again: dict[Hashable, Callable[[], None]] = {}
        self._timer: Timer | None = None

    def hold(self, who: Hashable, again: Callable[[], None]) -> None:
        """Hold `who` back; `again` is called when it may try again."""
        self._again[who] = again
        self.handle(HeldBack(who, self._runtime.monotonic_ms()))

    def handle(self, event: Event) -> None:
        """Pass the machine an event and carry out its effects."""
        for effect in self.machine.handle(event):
            if isinstance(effect, WakeAfter):
                self._wake_after(effect.delay_ms)
            else:
                self._release(effect)

    def _wake_after(self, delay_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._runtime.call_later(delay_ms, self._woken)

    def _woken(self) -> None:
        self._timer = None
        self.handle(Woken(self._runtime.monotonic_ms()))

    def _release(self, effect: Release) -> None:
        for again in [self._again.pop(who) for who in effect.who]:
            again()


class Throttler:
    """Both sides, for the replicas of one process."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ReplicationSettings,
        *,
        cluster_id: str,
        broker_id: int,
        name: str,
    ) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._broker = broker_name(cluster_id, broker_id)
        self._name = name
        self._leading = _Side(runtime, settings)
        self._following = _Side(runtime, settings)
        self._shares = False
        """Whether the sharing loop is running."""
        self._unsent = 0
        """Bytes of throttled partitions in the response that is being gathered."""
        self.leads = False
        """Whether partitions led here may have to wait."""
        self.follows = False
        """Whether partitions followed here may have to wait."""

    def configure(self, config: Mapping[str, str]) -> None:
        """Apply the broker's rates, which come with a topic's settings, immediately."""
        now_ms = self._runtime.monotonic_ms()
        leader_rate = int(config.get(LEADER_RATE) or UNLIMITED)
        follower_rate = int(config.get(FOLLOWER_RATE) or UNLIMITED)
        self.leads, self.follows = leader_rate < UNLIMITED, follower_rate < UNLIMITED
        self._leading.handle(RateChanged(leader_rate, now_ms))
        self._following.handle(RateChanged(follower_rate, now_ms))

    # ---- partitions led here -------------------------------------------------------------

    def keeps_back(
        self, follower: Hashable, broker_id: int, partition: Partition, again: Callable[[], None]
    ) -> bool:
        """Whether a follower gets no records of a partition now; if so, `again` is called later.

        In-sync followers never wait, because writers would wait with them.
        """
        side = self._leading
        if not side.machine.is_over(self._runtime.monotonic_ms(), self._unsent):
            return False
        progress = partition.machine.progress
        in_sync = progress is not None and broker_id in progress.isr
        if in_sync or not self._is_throttled_leader(partition):
            return False
        side.hold((follower, partition.key), again)
        return True

    def gathered(self, partition: Partition, count: int) -> None:
        """Count bytes that a response to a follower will have, unless it is `put_back`."""
        if self._is_throttled_leader(partition):
            self._unsent += count

    def put_back(self) -> None:
        """The gathered response is not sent: it has too few bytes yet."""
        self._unsent = 0

    def sent(self, partition: Partition, count: int) -> None:
        """Count gathered bytes as sent to a follower, whether in sync or not."""
        if self._is_throttled_leader(partition):
            self._unsent -= count
            self._moved(self._leading, partition, count)

    def _is_throttled_leader(self, partition: Partition) -> bool:
        return partition.config.leader_throttled.covers(partition.key[1], self._broker_id)

    # ---- partitions followed here --------------------------------------------------------

    def lets_ask(self, partition: Partition, again: Callable[[], None]) -> bool:
        """Whether a partition may be fetched; if not, `again` is called later.

        A partition that was up to date at the last answer always may.
        """
        side = self._following
        if not partition.is_behind or not self._is_throttled_follower(partition):
            return True
        if side.machine.lets_ask(partition, self._runtime.monotonic_ms()):
            return True
        side.hold(partition, again)
        return False

    def received(self, partition: Partition, count: int) -> None:
        """Count bytes received from the leader, even if none."""
        if self._is_throttled_follower(partition):
            self._moved(self._following, partition, count)

    def _is_throttled_follower(self, partition: Partition) -> bool:
        return partition.config.follower_throttled.covers(partition.key[1], self._broker_id)

    # ---- sharing -------------------------------------------------------------------------

    def _moved(self, side: _Side, partition: Partition, count: int) -> None:
        side.handle(Moved(partition, count, self._runtime.monotonic_ms()))
        side.is_used = side.is_used or count > 0
        if side.is_used and not self._shares:
            self._shares = True
            self._runtime.start(self._share(), "shares of throttled rates")

    async def _share(self) -> None:
        """Ask the broker for the number of processes that share the rates, while this one does."""
        leading, following = self._leading, self._following
        while leading.is_used or following.is_used:
            used = leading.is_used, following.is_used
            leading.is_used = following.is_used = False
            try:
                leads, follows = await call(
                    self._runtime,
                    self._broker,
                    Broker.throttle_shares,
                    self._name,
                    *used,
                    timeout_ms=SHARE_TIMEOUT_MS,
                )
            except (ActorGone, PeerLost, PeerTimeout) as failure:
                log.info("the shares of throttled rates stay as they are: %s", failure)
            else:
                now_ms = self._runtime.monotonic_ms()
                leading.handle(ShareChanged(leads, now_ms))
                following.handle(ShareChanged(follows, now_ms))
            await self._runtime.sleep(SHARE_MS / 1000)
        self._shares = False

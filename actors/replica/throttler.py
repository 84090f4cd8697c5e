"""Replication quotas in one process: where its replicas ask whether they may, and are woken up.

While the broker has no rate (`leads` and `follows` are false) this costs the look at one of these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping

from raylog.actors.names import broker_name
from raylog.actors.replica.config import ReplicationSettings
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.throttle import (
    UNLIMITED,
    Event,
    HeldBack,
    Moved,
    RateChanged,
    Release,
    ShareTold,
    Throttle,
    WakeAfter,
    Woken,
)
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime, Timer

log = logging.getLogger(__name__)
SHARE_MS = 1_000
"""Between the questions how many processes of the broker share a rate, while this one uses it."""
SHARE_TIMEOUT_MS = 2_000
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


class _Side:
    """One side's machine with its timer and the ways to try again."""

    def __init__(self, runtime: Runtime, settings: ReplicationSettings) -> None:
        self.machine = Throttle(settings.quota_window_ms, settings.quota_windows)
        self.is_used = False
        """Whether anything has moved since the last question how many do."""
        self._runtime = runtime
        self._again: dict[Hashable, Callable[[], None]] = {}
        self._timer: Timer | None = None

    def hold(self, who: Hashable, again: Callable[[], None]) -> None:
        """Let somebody wait; `again` is called when there is a chance."""
        self._again[who] = again
        self.handle(HeldBack(who, self._runtime.monotonic_ms()))

    def handle(self, event: Event) -> None:
        """Give the machine an event and do what it wants done."""
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
    """Both sides of a process' replicas."""

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
        """Whether it is being asked how many processes share the rates."""
        self.leads = False
        """Whether what is led here may have to wait."""
        self.follows = False
        """Whether what follows here may have to wait."""

    def configure(self, config: Mapping[str, str]) -> None:
        """Take in the broker's rates, which come with a topic's settings, at once."""
        now_ms = self._runtime.monotonic_ms()
        leader_rate = int(config.get(LEADER_RATE) or UNLIMITED)
        follower_rate = int(config.get(FOLLOWER_RATE) or UNLIMITED)
        self.leads, self.follows = leader_rate < UNLIMITED, follower_rate < UNLIMITED
        self._leading.handle(RateChanged(leader_rate, now_ms))
        self._following.handle(RateChanged(follower_rate, now_ms))

    # ---- what is led here ----------------------------------------------------------------

    def keeps_back(
        self, follower: Hashable, broker_id: int, partition: Partition, again: Callable[[], None]
    ) -> bool:
        """Whether a follower's process gets no records of a partition now; then `again` follows.

        Followers in sync are never kept waiting, or else writers would be.
        """
        side = self._leading
        if not side.machine.is_over(self._runtime.monotonic_ms()):
            return False
        progress = partition.machine.progress
        in_sync = progress is not None and broker_id in progress.isr
        if in_sync or not self._is_throttled_leader(partition):
            return False
        side.hold((follower, partition.key), again)
        return True

    def sent(self, partition: Partition, count: int) -> None:
        """Note the bytes that a follower is sent, be it in sync or not."""
        if self._is_throttled_leader(partition):
            self._moved(self._leading, partition, count)

    def _is_throttled_leader(self, partition: Partition) -> bool:
        return partition.config.leader_throttled.covers(partition.key[1], self._broker_id)

    # ---- what follows here ---------------------------------------------------------------

    def lets_ask(self, partition: Partition, again: Callable[[], None]) -> bool:
        """Whether a partition may be asked for; if not, `again` follows.

        One that had all there was at the last answer may always.
        """
        side = self._following
        if not partition.is_behind or not self._is_throttled_follower(partition):
            return True
        if side.machine.lets_ask(partition, self._runtime.monotonic_ms()):
            return True
        side.hold(partition, again)
        return False

    def received(self, partition: Partition, count: int) -> None:
        """Note what the leader has sent, be it nothing."""
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
        """Ask the broker how many processes use the rates, as long as this one does."""
        leading, following = self._leading, self._following
        while leading.is_used or following.is_used:
            used = leading.is_used, following.is_used
            leading.is_used = following.is_used = False
            try:
                leads, follows = await self._runtime.call(
                    self._broker,
                    "throttle_shares",
                    self._name,
                    *used,
                    timeout_ms=SHARE_TIMEOUT_MS,
                )
            except (ActorGone, PeerLost, PeerTimeout) as failure:
                log.info("the shares of throttled rates stay as they are: %s", failure)
            else:
                now_ms = self._runtime.monotonic_ms()
                leading.handle(ShareTold(leads, now_ms))
                following.handle(ShareTold(follows, now_ms))
            await self._runtime.sleep(SHARE_MS / 1000)
        self._shares = False

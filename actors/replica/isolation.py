"""Detects that a process of replicas is isolated: it then serves no client (DESIGN.md, Deviations).

When it does so is decided by `Contact` (`rules/contact.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from raylog.actors.common_messages import PartitionKey
from raylog.actors.remote import Broker, call
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.contact import Contact
from raylog.actors.replica.rules.machine import CutOff, Reconnected
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
LOOK_MS = 1_000
ASK_TIMEOUT_MS = 1_000
NOTIFIED_AT_ONCE = 200
"""Partitions notified in one turn of the event loop."""


class Isolation:
    """Checks for isolation from the first follower's fetch on, and notifies partitions."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[PartitionKey, Partition],
        broker: str,
        session_ms: int,
    ) -> None:
        """`broker` is the name of this process's broker."""
        self._runtime = runtime
        self._partitions = partitions
        self._broker = broker
        self._contact = Contact(session_ms)
        self._watching = False
        self._heartbeat_ms = 0.0
        """When the broker sent the latest heartbeat that a controller has answered, as far as this
        process knows; initially, when the watch began."""

    def follower_fetched(self) -> None:
        """Record a fetch of a follower."""
        if self._contact.follower_fetched(self._runtime.monotonic_ms()):
            self._changed()
        if not self._watching:
            self._watching = True
            self._heartbeat_ms = self._runtime.monotonic_ms()
            self._runtime.start(self._watch(), "watch for isolation")

    async def _watch(self) -> None:
        """Check repeatedly while this process leads partitions with other in-sync replicas.

        The broker is called once at the start, because a broker that was never found may be
        unreachable later.
        """
        contact = self._contact
        await self._controller_silent_ms()
        while True:
            rest_ms = contact.look_ms - self._runtime.monotonic_ms()
            await self._runtime.sleep(max(LOOK_MS, rest_ms) / 1000)
            if self._runtime.monotonic_ms() < contact.look_ms:
                continue
            if not any(one.machine.needs_others for one in self._partitions.values()):
                break
            silent_ms = await self._controller_silent_ms()
            if contact.looked(self._runtime.monotonic_ms(), silent_ms):
                self._changed()
        self._watching = False

    async def _controller_silent_ms(self) -> float:
        """How long the controller has not answered this broker, in ms.

        If the broker does not answer here, the last known answer ages.
        """
        try:
            age_ms, *_ = await call(
                self._runtime, self._broker, Broker.last_heartbeat, timeout_ms=ASK_TIMEOUT_MS
            )
            self._heartbeat_ms = self._runtime.monotonic_ms() - age_ms
        except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
            log.info("the broker does not say when the controller last answered it: %s", failure)
        return self._runtime.monotonic_ms() - self._heartbeat_ms

    def _changed(self) -> None:
        if self._contact.is_cut_off:
            log.warning(
                "no follower fetched and no controller answered for %d ms: this process stops "
                "serving partitions that have other in-sync replicas until one of them does",
                self._contact.session_ms,
            )
        else:
            log.warning("contact with other brokers is back")
        self._runtime.start(self._notify_all(), "notify partitions of isolation")

    async def _notify_all(self) -> None:
        """Notify all partitions, unless the state changes meanwhile."""
        cut_off = self._contact.is_cut_off
        partitions = list(self._partitions.values())
        for at in range(0, len(partitions), NOTIFIED_AT_ONCE):
            if self._contact.is_cut_off is not cut_off:
                return
            for partition in partitions[at : at + NOTIFIED_AT_ONCE]:
                if self._partitions.get(partition.key) is partition:
                    partition.handle(CutOff() if cut_off else Reconnected())
            await self._runtime.sleep(0)

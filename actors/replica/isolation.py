"""Whether a process of replicas hears nobody: then it serves no client (DESIGN.md, Deviations).

It is cut off where no follower has fetched from it for the session of a broker, and the controller
has not answered its broker for as long. Others may lead its partitions by then. Either alone says
nothing: followers may be gone, or the controller.

| state   | event                                                       | state after it |
|---------|-------------------------------------------------------------|----------------|
| heard   | both silent for a session, at two looks, one after another  | cut off        |
| cut off | a follower fetches, or the controller answers               | heard          |
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from raylog.actors.ports import PartitionKey
from raylog.actors.replica.machine import CutOff, HeardAgain
from raylog.actors.replica.partition import Partition
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
LOOK_MS = 1_000
ASK_TIMEOUT_MS = 1_000
TOLD_AT_ONCE = 200
"""Partitions that are told in one turn of the event loop."""


@dataclass(slots=True)
class Hearing:
    """What a process hears of other brokers; times in ms of a monotonic clock."""

    session_ms: int
    heard_ms: float = 0.0
    """When a follower has fetched last."""
    is_cut_off: bool = False
    _silent_before: bool = False
    """Whether the look before found silence: a process that stood still has heard nobody either."""

    def heard(self, now_ms: float) -> bool:
        """A follower fetches; returns whether that ends a time of being cut off."""
        self.heard_ms = now_ms
        self._silent_before = False
        ended, self.is_cut_off = self.is_cut_off, False
        return ended

    def is_silent(self, now_ms: float) -> bool:
        """Whether no follower has fetched for a session."""
        return now_ms - self.heard_ms >= self.session_ms

    def looked(self, now_ms: float, controller_silent_ms: float) -> bool:
        """A look, and for how long the controller is silent; returns whether anything changed."""
        silent = self.is_silent(now_ms) and controller_silent_ms >= self.session_ms
        cut_off = silent and self._silent_before
        self._silent_before = silent
        changed, self.is_cut_off = cut_off != self.is_cut_off, cut_off
        return changed


class Isolation:
    """Looks, from the first fetch of a follower on, and tells partitions."""

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
        self._hearing = Hearing(session_ms)
        self._watching = False

    def heard(self) -> None:
        """A follower fetches."""
        if self._hearing.heard(self._runtime.monotonic_ms()):
            self._tell()
        if not self._watching:
            self._watching = True
            self._runtime.start(self._watch(), "hear of others")

    async def _watch(self) -> None:
        """Look again and again while partitions are led here that others hold, too.

        The broker is asked once at first: later it may be out of reach for who has never found it.
        """
        hearing = self._hearing
        await self._controller_silent_ms()
        while True:
            rest_ms = hearing.heard_ms + hearing.session_ms - self._runtime.monotonic_ms()
            await self._runtime.sleep(max(LOOK_MS, rest_ms) / 1000)
            if not hearing.is_silent(self._runtime.monotonic_ms()):
                continue
            if not any(one.machine.needs_others for one in self._partitions.values()):
                break
            silent_ms = await self._controller_silent_ms()
            if hearing.looked(self._runtime.monotonic_ms(), silent_ms):
                self._tell()
        self._watching = False

    async def _controller_silent_ms(self) -> float:
        """For how long the controller has not answered this broker; 0 if that is not known."""
        try:
            silent_ms: float = await self._runtime.call(
                self._broker, "controller_silent_ms", timeout_ms=ASK_TIMEOUT_MS
            )
        except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
            log.info("the broker does not say whether it hears the controller: %s", failure)
            return 0.0
        return silent_ms

    def _tell(self) -> None:
        if self._hearing.is_cut_off:
            log.warning(
                "no follower and no controller heard for %d ms: this process leads nothing that "
                "others hold, until it hears of them",
                self._hearing.session_ms,
            )
        else:
            log.warning("others are heard again")
        self._runtime.start(self._tell_all(), "tell partitions who is heard")

    async def _tell_all(self) -> None:
        """Tell all partitions, unless it changes meanwhile."""
        cut_off = self._hearing.is_cut_off
        partitions = list(self._partitions.values())
        for at in range(0, len(partitions), TOLD_AT_ONCE):
            if self._hearing.is_cut_off is not cut_off:
                return
            for partition in partitions[at : at + TOLD_AT_ONCE]:
                if self._partitions.get(partition.key) is partition:
                    partition.handle(CutOff() if cut_off else HeardAgain())
            await self._runtime.sleep(0)

"""Holds the lease of a coordinator (`rules/lease.py`), and the answers that wait for it.

Answers renew the lease; an idle coordinator has none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from raylog.actors.coordination.rules.lease import Lease
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.remote import Broker, call
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import KafkaError, UnsupportedVersion

log = logging.getLogger(__name__)
WAIT_MS = 1_000
"""How long an answer waits for a lease."""
PAUSE_MS = 200
"""Between renewals of a lease that has not ended."""


class LeaseHolder:
    """Holds the lease of one coordinator. A cluster's only broker needs none."""

    def __init__(self, runtime: Runtime, broker: str, image: MetadataImage) -> None:
        """`broker` is the name of this coordinator's Broker, `image` its copy of the metadata."""
        self._runtime = runtime
        self._broker = broker
        self._image = image
        self._lease = Lease()
        self._asked_ms = -math.inf
        self._is_renewing = False
        self._waiting: list[Callable[[bool], None]] = []

    def check(self, then: Callable[[bool], None]) -> None:
        """Tell `then` whether the lease holds: now if it does, else within WAIT_MS.

        A lease of which half is over is renewed in the meantime.
        """
        now_ms = self._runtime.monotonic_ms()
        is_alone = len(self._image.brokers) <= 1
        holds = is_alone or now_ms < self._lease.ends_ms
        if not holds:
            self._waiting.append(then)
        is_late = self._lease.is_ending(now_ms) and now_ms - self._asked_ms >= PAUSE_MS
        if not is_alone and not self._is_renewing and (is_late or not holds):
            self.renew()
        if holds:
            then(True)

    def renew(self) -> None:
        """Ask the Broker for its latest heartbeat."""
        self._is_renewing = True
        self._asked_ms = self._runtime.monotonic_ms()
        self._runtime.start(self._renew(), "renew the lease")

    def metadata_applied(self) -> None:
        """Take into account that the image has changed."""
        now_ms = self._runtime.monotonic_ms()
        self._lease.metadata_applied(self._image.offset, now_ms)
        if now_ms < self._lease.ends_ms:
            self._tell(is_valid=True)

    async def _renew(self) -> None:
        try:
            age_ms, end, lasts_ms = await call(
                self._runtime, self._broker, Broker.last_heartbeat, timeout_ms=WAIT_MS
            )
            self._lease.granted(self._asked_ms - age_ms, lasts_ms, end)
        except UnsupportedVersion:
            # A Broker of an older build reports no heartbeats: believe it for a while.
            self._lease.granted(self._asked_ms, 10 * WAIT_MS, 0)
        except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
            log.info("the lease is not renewed: %s", failure)
        self.metadata_applied()
        if self._waiting:  # the metadata may still come
            rest_ms = self._asked_ms + WAIT_MS - self._runtime.monotonic_ms()
            await self._runtime.sleep(max(rest_ms, 0) / 1000)
        self._is_renewing = False
        self._tell(is_valid=False)

    def _tell(self, *, is_valid: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(is_valid)

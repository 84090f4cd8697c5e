"""Whether a coordinator may answer from memory: no other broker can lead its partitions yet.

A coordinator learns from its Broker that another broker leads a partition, and learns nothing while
its Broker hangs or is cut off. What it writes is then refused by the log, but what it knows may be
old. In Kafka, such a coordinator gives old offsets to OffsetFetch for as long as that lasts.

A coordinator holds a lease. It ends before any controller can fence the Broker because it is
silent, counted from when the Broker sent the latest heartbeat that a controller has answered. The
controller says how long that is (`BrokerHeartbeatAnswer`). The age of the heartbeat is taken from
before the Broker was asked for it, so a slow answer only shortens the lease. And the lease counts
once the coordinator has applied all metadata that the controller had decided on when it answered.

Answers renew the lease; an idle coordinator has none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from raylog.actors.metadata.image import MetadataImage
from raylog.actors.remote import Broker, call
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import KafkaError, UnsupportedVersion

log = logging.getLogger(__name__)
WAIT_MS = 1_000
"""How long an answer waits for a lease."""
PAUSE_MS = 200
"""Between renewals of a lease that has not ended."""


class Lease:
    """The lease of one coordinator. A cluster's only broker needs none."""

    def __init__(self, runtime: Runtime, broker: str, image: MetadataImage) -> None:
        """`broker` is the name of this coordinator's Broker, `image` its copy of the metadata."""
        self._runtime = runtime
        self._broker = broker
        self._image = image
        self._ends_ms = -math.inf
        self._lasts_ms = 0
        self._grants: list[tuple[float, int]] = []
        """Until when the lease holds once the metadata up to an offset is applied."""
        self._asked_ms = -math.inf
        self._is_renewing = False
        self._waiting: list[Callable[[bool], None]] = []

    def check(self, then: Callable[[bool], None]) -> None:
        """Tell `then` whether the lease holds: now if it does, else within WAIT_MS.

        A lease of which half is over is renewed in the meantime.
        """
        now_ms = self._runtime.monotonic_ms()
        left_ms = self._ends_ms - now_ms
        if len(self._image.brokers) <= 1:
            left_ms = math.inf
        if left_ms <= 0:
            self._waiting.append(then)
        is_late = left_ms < self._lasts_ms / 2 and now_ms - self._asked_ms >= PAUSE_MS
        if (left_ms <= 0 or is_late) and not self._is_renewing:
            self.renew()
        if left_ms > 0:
            then(True)

    def renew(self) -> None:
        """Ask the Broker for its latest heartbeat."""
        self._is_renewing = True
        self._asked_ms = self._runtime.monotonic_ms()
        self._runtime.start(self._renew(), "renew the lease")

    def metadata_applied(self) -> None:
        """Take into account that the image has changed."""
        now_ms, offset = self._runtime.monotonic_ms(), self._image.offset
        for ends_ms, end in self._grants:
            if end <= offset:
                self._ends_ms = max(self._ends_ms, ends_ms)
        self._grants = [one for one in self._grants if one[1] > offset and one[0] > now_ms]
        if now_ms < self._ends_ms:
            self._tell(is_valid=True)

    async def _renew(self) -> None:
        try:
            age_ms, end, self._lasts_ms = await call(
                self._runtime, self._broker, Broker.last_heartbeat, timeout_ms=WAIT_MS
            )
            self._grants.append((self._asked_ms - age_ms + self._lasts_ms, end))
        except UnsupportedVersion:
            # A Broker of an older build reports no heartbeats: believe it for a while.
            self._grants.append((self._asked_ms + 10 * WAIT_MS, 0))
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

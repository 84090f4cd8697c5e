"""Decides how long a coordinator may answer from memory: until another broker can lead its logs.

A coordinator learns from its Broker that another broker leads a partition, and learns nothing while
its Broker hangs or is cut off. What it writes is then refused by the log, but what it knows may be
old. In Kafka, such a coordinator gives old offsets to OffsetFetch for as long as that lasts.

A coordinator holds a lease. It ends before any controller can fence the Broker because it is
silent, counted from when the Broker sent the latest heartbeat that a controller has answered. The
controller says how long that is (`BrokerHeartbeatAnswer`). The age of the heartbeat is taken from
before the Broker was asked for it, so a slow answer only shortens the lease. And the lease counts
once the coordinator has applied all metadata that the controller had decided on when it answered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lease:
    """The lease of one coordinator; times in ms of a monotonic clock."""

    ends_ms: float = -math.inf
    _lasts_ms: float = 0.0
    """Duration of the latest grant."""
    _grants: list[tuple[float, int]] = field(default_factory=list)
    """Ends of leases that are held once the metadata up to an offset is applied."""

    def is_ending(self, now_ms: float) -> bool:
        """Whether more than half of it is over."""
        return self.ends_ms - now_ms < self._lasts_ms / 2

    def granted(self, begins_ms: float, lasts_ms: float, offset: int) -> None:
        """Record a grant that needs the metadata below `offset`."""
        self._lasts_ms = lasts_ms
        self._grants.append((begins_ms + lasts_ms, offset))

    def metadata_applied(self, offset: int, now_ms: float) -> None:
        """Take up the grants that need no metadata from `offset` on. None of them shortens it."""
        for ends_ms, needed in self._grants:
            if needed <= offset:
                self.ends_ms = max(self.ends_ms, ends_ms)
        self._grants = [one for one in self._grants if one[1] > offset and one[0] > now_ms]

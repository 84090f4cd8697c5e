"""Keeps what clients have pushed for the next scrapes, within limits on number and age."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.actors.gateway.telemetry.otlp import POINTS_MAX, Attributes, Point
from raylog.actors.metrics.exposition import clean
from raylog.wire.uuids import to_base64

SERIES_MAX = 10_000
"""Maximum series for all clients of a gateway."""
SERIES_A_CLIENT_MAX = 500
"""Maximum series for one client. A Java producer has 130, plus some for each topic."""
INTERVALS_KEPT = 3
EXPIRY_MS = 10_000
"""How often idle clients are removed, however many clients push."""
KEPT_MS_MIN = 60_000
"""A client is forgotten when it has not pushed anything for three push intervals, and for at least
this long."""
RESOURCE_ATTRIBUTES = ("client_rack", "group_id", "group_instance_id", "transactional_id")
"""The attributes that identify a client's series; others change whenever the client restarts."""
_ESCAPED = str.maketrans({"\\": "\\\\", ",": "\\,", "=": "\\="})


class Series(NamedTuple):
    """One value of one client, as in a scrape."""

    client_id: str
    instance: str
    metric: str
    attributes: str
    value: float


@dataclass(slots=True)
class _Client:
    client_id: str
    forgotten_ms: float = 0.0
    values: dict[tuple[str, str], float] = field(default_factory=dict)
    """By metric and attributes."""


class ReceivedMetrics:
    """The last values of each client's metrics; deltas are added up."""

    def __init__(self) -> None:
        self.points_dropped = 0
        """Values dropped because of the limits."""
        self._clients: dict[bytes, _Client] = {}
        self._series = 0
        self._expired_ms = 0.0

    def take(
        self,
        instance_id: bytes,
        client_id: str,
        points: Iterable[Point],
        now_ms: float,
        push_interval_ms: int,
    ) -> None:
        """Add one push. A client without stored values takes no memory."""
        if now_ms >= self._expired_ms + EXPIRY_MS:
            self.expire(now_ms)
        client = self._clients.get(instance_id)
        if client is None:
            client = _Client(clean(client_id))
        client.forgotten_ms = now_ms + max(INTERVALS_KEPT * push_interval_ms, KEPT_MS_MIN)
        for point in points:
            self._take(client, point)
        if client.values:
            self._clients[instance_id] = client

    def _take(self, client: _Client, point: Point) -> None:
        key = (point.metric, _shown(point))
        before = client.values.get(key)
        value = (before or 0.0) + point.value if point.is_delta else point.value
        if math.isnan(value):  # for example Java's averages without values
            return
        if before is None:
            if self._series >= SERIES_MAX or len(client.values) >= SERIES_A_CLIENT_MAX:
                self.points_dropped += 1
                return
            self._series += 1
        client.values[key] = value

    def expire(self, now_ms: float) -> None:
        """Forget clients that have not pushed anything for too long."""
        self._expired_ms = now_ms
        for instance_id in [
            one for one, client in self._clients.items() if client.forgotten_ms <= now_ms
        ]:
            self._series -= len(self._clients.pop(instance_id).values)

    def series(self) -> Iterator[Series]:
        """Yield all stored values."""
        for instance_id, client in self._clients.items():
            instance = to_base64(instance_id)
            for (metric, attributes), value in client.values.items():
                yield Series(client.client_id, instance, metric, attributes, value)


def taken_from(points: Iterator[Point]) -> list[Point]:
    """Return the points of a push, up to POINTS_MAX."""
    return [point for point, _ in zip(points, range(POINTS_MAX), strict=False)]


def _shown(point: Point) -> str:
    """Format the attributes, sorted by name, cut to the length of a label."""
    named: Attributes = {
        name: point.resource[name] for name in RESOURCE_ATTRIBUTES if name in point.resource
    }
    pairs = sorted((named | point.attributes).items())
    return clean(
        ",".join(f"{name.translate(_ESCAPED)}={value.translate(_ESCAPED)}" for name, value in pairs)
    )

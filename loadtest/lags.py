"""The lag of a run's groups over time, as an admin client sees it."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.client import LATEST, Admin, ClientError, TopicPartition
from raylog.loadtest.results import Gauge
from raylog.wire.errors import KafkaError


class LagWatch:
    """Fetches the offsets of groups. A failure leaves a gap."""

    def __init__(self, topics: dict[str, list[TopicPartition]]) -> None:
        """`topics` has the partitions that each group reads."""
        self._topics = topics
        self._points: dict[str, list[tuple[float, float]]] = {group: [] for group in topics}
        self._newest: dict[str, tuple[float, int]] = {}
        """By group, the time and value of the last measurement."""

    def look(self, admin: Admin, at_s: float) -> dict[str, Exception]:
        """Measure all groups. Returns failures by group."""
        failed: dict[str, Exception] = {}
        for group in self._topics:
            try:
                lag = self._lag(admin, group)
            except (KafkaError, ClientError, OSError) as failure:
                failed[group] = failure  # its coordinator or a leader may be moving
                continue
            self._newest[group] = at_s, lag
            self._points[group].append((round(at_s, 1), float(lag)))
        return failed

    def total(self, since_s: float = 0.0) -> int | None:
        """The last known lag of all groups together; None unless all were measured since then."""
        newest = [self._newest.get(group) for group in self._topics]
        if not newest or any(one is None or one[0] < since_s for one in newest):
            return None
        return sum(one[1] for one in newest if one is not None)

    def gauges(self) -> Iterable[Gauge]:
        """The lag of each group over time."""
        for group, points in self._points.items():
            yield Gauge(name="lag", labels={"group": group}, unit="records", points=points)

    def _lag(self, admin: Admin, group: str) -> int:
        """The lag of a group. Committed offsets come first, so that it is never too small."""
        committed = admin.group_offsets(group, self._topics[group])
        ends = admin.list_offsets(dict.fromkeys(self._topics[group], LATEST))
        return sum(
            max(0, end.offset - (committed[key].offset if key in committed else 0))
            for key, end in ends.items()
        )

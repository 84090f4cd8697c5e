"""The lag of a run's groups over time, as an admin client sees it."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.client import LATEST, Admin, ClientError, TopicPartition
from raylog.loadtest.results import Gauge
from raylog.wire.errors import KafkaError


class LagWatch:
    """Asks for offsets of groups; a failure leaves a gap."""

    def __init__(self, topics: dict[str, list[TopicPartition]]) -> None:
        """`topics` has the partitions that each group reads."""
        self._topics = topics
        self._points: dict[str, list[tuple[float, float]]] = {group: [] for group in topics}
        self._newest: dict[str, tuple[float, int]] = {}
        """By group, when it was last known, and what it was."""

    def look(self, admin: Admin, at_s: float) -> dict[str, Exception]:
        """Ask for all groups; returns what failed, by group."""
        failed: dict[str, Exception] = {}
        for group in self._topics:
            try:
                lag = self._lag(admin, group)
            except (KafkaError, ClientError, OSError) as failure:
                failed[group] = failure  # its coordinator or a leader moves: the next may tell
                continue
            self._newest[group] = at_s, lag
            self._points[group].append((round(at_s, 1), float(lag)))
        return failed

    def total(self, since_s: float = 0.0) -> int | None:
        """Of all groups together, when last known; None unless each was looked at since then."""
        newest = [self._newest.get(group) for group in self._topics]
        if not newest or any(one is None or one[0] < since_s for one in newest):
            return None
        return sum(one[1] for one in newest if one is not None)

    def gauges(self) -> Iterable[Gauge]:
        """The lag of each group over time."""
        for group, points in self._points.items():
            yield Gauge(name="lag", labels={"group": group}, unit="records", points=points)

    def _lag(self, admin: Admin, group: str) -> int:
        """Committed offsets first: a lag is never told too small by what comes meanwhile."""
        committed = admin.group_offsets(group, self._topics[group])
        ends = admin.list_offsets(dict.fromkeys(self._topics[group], LATEST))
        return sum(
            max(0, end.offset - (committed[key].offset if key in committed else 0))
            for key, end in ends.items()
        )

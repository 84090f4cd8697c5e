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
        self._newest: dict[str, int] = {}

    def look(self, admin: Admin, at_s: float) -> None:
        """Ask for all groups."""
        for group in self._topics:
            try:
                lag = self._lag(admin, group)
            except (KafkaError, ClientError, OSError):
                continue  # its coordinator or a leader moves: the next look may tell
            self._newest[group] = lag
            self._points[group].append((round(at_s, 1), float(lag)))

    def total(self) -> int | None:
        """Of all groups together, when it was last known of each; None where it never was."""
        if not self._topics or len(self._newest) < len(self._topics):
            return None
        return sum(self._newest.values())

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

"""The window's state of one partition."""

from __future__ import annotations

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.effects import CommitPoint
from raylog.client.parallel.lanes import Lanes
from raylog.client.parallel.policy import Order
from raylog.client.parallel.progress import Progress


class Partition:
    """One partition. After a revocation it stays only while some of its lanes are still taken."""

    __slots__ = (
        "bytes",
        "is_draining",
        "is_in_turn",
        "is_paused",
        "key",
        "lanes",
        "last_commit",
        "progress",
        "records",
        "waits_until_ms",
    )

    def __init__(self, key: TopicPartition, order: Order) -> None:
        self.key = key
        self.lanes = Lanes(order)
        self.progress: Progress | None = None
        """None while the partition is not assigned."""
        self.last_commit: tuple[int, str] | None = None
        """Offset and note."""
        self.is_draining = False
        self.is_in_turn = False
        self.is_paused = False
        self.waits_until_ms: float | None = None
        """When the next record of a retry topic is due."""
        self.records = 0
        self.bytes = 0
        """Records fetched but not finished."""

    def new_commit_point(self) -> CommitPoint | None:
        """Return what may be committed, unless it was committed last."""
        if self.progress is None:
            return None
        point = self.progress.commit_point()
        if point is None or point == self.last_commit:
            return None
        return CommitPoint(self.key, *point)

    def reset(self) -> None:
        """Drop the state of one assignment."""
        self.progress = None
        self.last_commit = None
        self.is_draining = self.is_paused = False
        self.waits_until_ms = None
        self.lanes.clear()

"""Which link may write to a partition that a coordinator has claimed."""

from __future__ import annotations

from raylog.actors.common_messages import PartitionKey
from raylog.wire.errors import NotLeaderOrFollower


class Claims:
    """The latest claim on each partition counts; links that never claimed one are unaffected."""

    def __init__(self) -> None:
        self._held: dict[PartitionKey, int] = {}
        self._outdated: set[tuple[PartitionKey, int]] = set()

    def take(self, key: PartitionKey, link: int) -> None:
        """Record a link's claim on a partition; another link's older claim ends."""
        before = self._held.get(key)
        if before is not None and before != link:
            self._outdated.add((key, before))
        self._outdated.discard((key, link))
        self._held[key] = link

    def check(self, key: PartitionKey, link: int) -> None:
        """Raise NotLeaderOrFollower for a link whose claim has ended."""
        if self._outdated and (key, link) in self._outdated:
            raise NotLeaderOrFollower("another coordinator has claimed the partition since")

    def forget(self, link: int) -> None:
        """Forget a closed link."""
        self._held = {key: holder for key, holder in self._held.items() if holder != link}
        self._outdated = {one for one in self._outdated if one[1] != link}

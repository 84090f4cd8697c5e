"""Who a consumer is to its group's coordinator."""

from __future__ import annotations

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """A group and, if given, the member whose offsets are committed (KIP-447).

    Without a member the coordinator takes the offsets of anybody as long as nobody is in the group.
    """

    group_id: str
    generation_id: int = -1
    """Classic generation or KIP-848 member epoch; -1: not checked."""
    member_id: str = ""
    group_instance_id: str | None = None
    """Of a static member (KIP-345)."""

    @property
    def is_member(self) -> bool:
        """Whether the coordinator checks who commits."""
        return self.generation_id >= 0

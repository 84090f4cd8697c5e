"""A consumer's identity in its group."""

from __future__ import annotations

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """A group and, if given, the member that commits the offsets (KIP-447).

    Without a member, the coordinator accepts offsets from anybody as long as the group is empty.
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

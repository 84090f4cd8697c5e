"""The cooperative sticky assignor (KIP-429), for members that keep partitions which do not move."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.even import assign_stickily

_GENERATION_BYTES = 4


class CooperativeStickyAssignor(Assignor):
    """As balanced as subscriptions allow, then by racks (KIP-881), then with the fewest moves.

    Members with subscriptions from before KIP-792 send the generation of their owned partitions as
    user data, a big-endian int32. As in Kafka, all members send it.
    """

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = -1

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """Return the generation of the last assignment."""
        return self._generation.to_bytes(_GENERATION_BYTES, "big", signed=True)

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions."""
        return assign_stickily(map(_informed, members), topics)

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        """Remember the generation."""
        self._generation = generation


def _informed(member: Member) -> Member:
    """The member, with the generation of its user data unless its subscription has one."""
    if member.generation >= 0 or len(member.user_data) < _GENERATION_BYTES:
        return member
    generation = int.from_bytes(member.user_data[:_GENERATION_BYTES], "big", signed=True)
    return replace(member, generation=generation)

"""The cooperative sticky assignor (KIP-429): sticky, for members that keep what does not move."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.even import assign_evenly
from raylog.assignors.kinds import owners_of

_GENERATION_BYTES = 4


class CooperativeStickyAssignor(Assignor):
    """As even as subscriptions allow, then racks (KIP-881), then as few moves as possible.

    Members that speak an old subscription (before KIP-792) carry the generation of what they own
    as user data, a big-endian int32; all send it, as Kafka's do.
    """

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = -1

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """The generation of the last assignment."""
        del topics
        return self._generation.to_bytes(_GENERATION_BYTES, "big", signed=True)

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions."""
        ordered = [_informed(member) for member in sorted(members, key=_member_id)]
        return assign_evenly(ordered, topics, owners_of(ordered), by_rack=True, in_turn=True)

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        """Remember the generation."""
        del assignment
        self._generation = generation


def _member_id(member: Member) -> str:
    return member.member_id


def _informed(member: Member) -> Member:
    """The member with the generation that its user data tells, if its subscription does not."""
    if member.generation >= 0 or len(member.user_data) < _GENERATION_BYTES:
        return member
    told = int.from_bytes(member.user_data[:_GENERATION_BYTES], "big", signed=True)
    return replace(member, generation=told)

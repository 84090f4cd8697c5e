"""The sticky assignor (KIP-54): even, and moving little, for members that give up all first.

Members that rebalance eagerly have given up their partitions when they join, so the subscription
does not say what they had. The assignor itself remembers and says it in its user data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.even import assign_evenly
from raylog.assignors.kinds import owners_of
from raylog.wire.codec import decode, encode
from raylog.wire.errors import DecodeError
from raylog.wire.schema import INT32, STRING, array, struct, versioned, wire


@struct
class TopicPartitions:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@versioned(versions="0-1")
class StickyUserData:
    """What a member had, in Kafka's form; nothing in front says which version it is."""

    previous_assignment: list[TopicPartitions] = wire(array(TopicPartitions))
    generation: int = wire(INT32, "1+", default=-1, ignorable=True)


class StickyAssignor(Assignor):
    """As even as subscriptions allow, then racks (KIP-881), then as few moves as possible."""

    name = "sticky"

    def __init__(self) -> None:
        self._previous = StickyUserData(previous_assignment=[])

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """What this member had last; nothing before its first assignment."""
        del topics
        if self._previous.generation < 0:
            return b""
        return encode(self._previous, 1)

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions."""
        ordered = [_informed(member) for member in sorted(members, key=_member_id)]
        return assign_evenly(ordered, topics, owners_of(ordered), by_rack=True, in_turn=True)

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        """Remember it."""
        previous = [
            TopicPartitions(topic=topic, partitions=list(partitions))
            for topic, partitions in assignment.partitions.items()
        ]
        self._previous = StickyUserData(previous_assignment=previous, generation=generation)


def _member_id(member: Member) -> str:
    return member.member_id


def _informed(member: Member) -> Member:
    """The member with what its user data says that it had; unreadable data says nothing."""
    if not member.user_data:
        return member
    data = _decoded(member.user_data)
    owned = {each.topic: tuple(each.partitions) for each in data.previous_assignment}
    return replace(member, owned=owned, generation=data.generation)


def _decoded(user_data: bytes) -> StickyUserData:
    """Read the newest version that the bytes are of: a Java client of any age may have sent it."""
    for version in (1, 0):
        try:
            return decode(StickyUserData, version, user_data)
        except DecodeError:
            continue
    return StickyUserData(previous_assignment=[])

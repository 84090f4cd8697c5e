"""The sticky assignor (KIP-54): balanced with few moves, for members that revoke everything first.

Members of an eager rebalance have revoked their partitions when they join, so subscriptions do not
say what they had. The assignor remembers that and sends it in its user data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.even import assign_stickily
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
    """The partitions that a member had, in Kafka's format, which has no version in front."""

    previous_assignment: list[TopicPartitions] = wire(array(TopicPartitions))
    generation: int = wire(INT32, "1+", default=-1, ignorable=True)


class StickyAssignor(Assignor):
    """As balanced as subscriptions allow, then by racks (KIP-881), then with the fewest moves."""

    name = "sticky"

    def __init__(self) -> None:
        self._previous = StickyUserData(previous_assignment=[])

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """Return the last assignment of this member; empty before the first one."""
        if self._previous.generation < 0:
            return b""
        return encode(self._previous, 1)

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions."""
        return assign_stickily(map(_informed, members), topics)

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        """Remember the assignment."""
        previous = [
            TopicPartitions(topic=topic, partitions=list(partitions))
            for topic, partitions in assignment.partitions.items()
        ]
        self._previous = StickyUserData(previous_assignment=previous, generation=generation)


def _informed(member: Member) -> Member:
    """The member with the partitions of its user data; none if it is unreadable."""
    if not member.user_data:
        return member
    data = _decoded(member.user_data)
    owned = {each.topic: tuple(each.partitions) for each in data.previous_assignment}
    return replace(member, owned=owned, generation=data.generation)


def _decoded(user_data: bytes) -> StickyUserData:
    """Decode user data by the newest version that fits. Java clients of any age may send it."""
    for version in (1, 0):
        try:
            return decode(StickyUserData, version, user_data)
        except DecodeError:
            continue
    return StickyUserData(previous_assignment=[])

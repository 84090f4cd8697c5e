"""Partitions in proportion to what members can do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic


class CapacityAssignor(Assignor):
    """Gives each partition to the member that has least for its capacity.

    A member says its capacity, a whole number from 1, in its user data; where the protocol carries
    none (KIP-848), behind an @ in its `group.instance.id`: "big-box@4". Who says nothing has 1.
    Members keep what they have as far as their share goes.
    """

    name = "capacity"

    def __init__(self, capacity: int = 1) -> None:
        self.capacity = capacity

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """Tell the others what this member can do."""
        return str(self.capacity).encode()

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions."""
        shares = {member.member_id: _Share(member) for member in members}
        for name in sorted(topics):
            takers = [share for share in shares.values() if name in share.member.topics]
            if takers:
                _divide(topics[name], takers)
        return {member_id: MemberAssignment(share.given) for member_id, share in shares.items()}


class _Share:
    """What one member gets."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.capacity = capacity_of(member)
        self.count = 0
        self.given: dict[str, list[int]] = {}

    @property
    def burden(self) -> float:
        """How busy one more partition would make it."""
        return (self.count + 1) / self.capacity

    def give(self, topic: str, partition: int) -> None:
        self.given.setdefault(topic, []).append(partition)


def _divide(topic: Topic, takers: list[_Share]) -> None:
    """Work out how many of the topic each gets, then which: what it has already, if it can be."""
    room = dict.fromkeys((share.member.member_id for share in takers), 0)
    for _ in range(topic.partitions):
        least = min(takers, key=lambda share: share.burden)
        least.count += 1
        room[least.member.member_id] += 1
    left = list(range(topic.partitions))
    for share in takers:
        for partition in share.member.owned.get(topic.name, ()):
            if partition in left and room[share.member.member_id]:
                left.remove(partition)
                room[share.member.member_id] -= 1
                share.give(topic.name, partition)
    for share in takers:
        for _ in range(room[share.member.member_id]):
            share.give(topic.name, left.pop(0))


def capacity_of(member: Member) -> int:
    """What a member says that it can do; 1 if it says nothing that can be read."""
    said = member.user_data.decode(errors="replace") or (member.instance_id or "").partition("@")[2]
    return max(1, int(said)) if said.isdecimal() else 1

"""Racks (KIP-881): whether they tell members apart, and who is near to which partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from raylog.assignors.api import Member, Topic

Nearness = Callable[[int, int], bool]
"""Whether the member of that index is near to the partition."""


def nearness(members: Sequence[Member], topic: Topic) -> Nearness:
    """Who is near to which partition of a topic; a member without a rack is near to everything."""
    racks = topic.racks or (frozenset[str](),) * topic.partitions

    def near(member: int, partition: int) -> bool:
        rack = members[member].rack
        return rack is None or rack in racks[partition]

    return near


def racks_matter(members: Sequence[Member], subscribed: Iterable[int], topic: Topic) -> bool:
    """Whether replicas are in the racks of some subscribed members, but not everywhere alike."""
    if len(set(topic.racks)) < 2:  # none known, or all partitions in the same racks
        return False
    racks = {members[index].rack for index in subscribed}
    return any(not racks.isdisjoint(replica_racks) for replica_racks in topic.racks)

"""Racks (KIP-881): whether they tell members apart, and who is near to which partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

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


def racks_matter(
    members: Sequence[Member], subscribed: Iterable[int], topics: Collection[Topic]
) -> bool:
    """Whether replicas are in racks of subscribed members, but not everywhere alike."""
    replica_racks = {rack for topic in topics for racks in topic.racks for rack in racks}
    if not replica_racks:
        return False
    if all(members[index].rack not in replica_racks for index in subscribed):
        return False
    return not all(racks == replica_racks for topic in topics for racks in topic.racks)

"""Racks (KIP-881): whether they make a difference, and which members are close to a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from raylog.assignors.api import Member, Topic

Nearness = Callable[[int, int], bool]
"""Whether the member with that index is close to the partition."""


def nearness(members: Sequence[Member], topic: Topic) -> Nearness:
    """Closeness to the partitions of a topic. Members without a rack are close to everything."""
    racks = topic.racks or (frozenset[str](),) * topic.partitions

    def near(member: int, partition: int) -> bool:
        rack = members[member].rack
        return rack is None or rack in racks[partition]

    return near


def racks_matter(members: Sequence[Member], subscribed: Iterable[int], topic: Topic) -> bool:
    """Whether replicas are in racks of subscribed members, but not the same for all partitions."""
    if len(set(topic.racks)) < 2:  # unknown, or all partitions in the same racks
        return False
    racks = {members[index].rack for index in subscribed}
    return any(not racks.isdisjoint(replica_racks) for replica_racks in topic.racks)

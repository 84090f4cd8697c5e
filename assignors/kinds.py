"""Groups partitions into kinds: those with the same subscribers and the same racks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.assignors.api import Member, Topic
from raylog.assignors.members import subscribers
from raylog.assignors.racks import racks_matter


class Partition(NamedTuple):
    """One partition of a topic, sorted by topic and number."""

    topic: str
    number: int


@dataclass(slots=True)
class Kind:
    """Partitions that differ only in their current owners."""

    partitions: list[Partition]
    """Sorted."""
    members: list[int]
    """Indexes of the members that may have them, ascending."""
    near: frozenset[int] | None
    """The members in one of their racks; None if racks make no difference."""
    owned: dict[int, list[Partition]] = field(default_factory=dict)
    """The sorted partitions that each of `members` owns now."""


Owners = dict[str, dict[int, int]]
"""By topic and partition, the index of the owner."""


def owners_of(members: Sequence[Member]) -> Owners:
    """The current owner of each partition.

    If several members claim a partition, the one with the latest generation is right. With equal
    generations the owner is unknown, and there is none.
    """
    owners: Owners = {}
    disputed: set[Partition] = set()
    for index, member in enumerate(members):
        for topic, numbers in member.owned.items():
            known = owners.setdefault(topic, {})
            for number in numbers:
                rival = known.setdefault(number, index)
                if rival == index:
                    continue
                if members[rival].generation == member.generation:
                    disputed.add(Partition(topic, number))
                elif members[rival].generation < member.generation:
                    known[number] = index
                    disputed.discard(Partition(topic, number))
    for topic, number in disputed:
        del owners[topic][number]
    return owners


def kinds_of(
    members: Sequence[Member], topics: Mapping[str, Topic], owners: Owners, *, by_rack: bool
) -> list[Kind]:
    """Group all subscribed partitions into kinds, those with the fewest possible members first."""
    kinds: dict[tuple[int, frozenset[str] | None], Kind] = {}
    for name, subscribed in subscribers(members, topics).items():
        topic = topics[name]
        matter = by_rack and racks_matter(members, subscribed, topic)
        may_have = set(subscribed)
        owned = owners.get(name, {})
        for number in range(topic.partitions):
            racks = topic.racks[number] if matter else None
            key = id(subscribed), racks  # equal lists of subscribers are one object
            kind = kinds.get(key)
            if kind is None:
                kind = kinds[key] = Kind([], subscribed, _near(members, subscribed, racks))
            partition = Partition(name, number)
            kind.partitions.append(partition)
            owner = owned.get(number)
            if owner in may_have:
                kind.owned.setdefault(owner, []).append(partition)
    return sorted(kinds.values(), key=lambda kind: len(kind.members))


def _near(
    members: Sequence[Member], subscribed: Sequence[int], racks: frozenset[str] | None
) -> frozenset[int] | None:
    """The members in one of `racks`. Members without a rack are close to everything."""
    if racks is None:
        return None
    return frozenset(
        index for index in subscribed if members[index].rack is None or members[index].rack in racks
    )

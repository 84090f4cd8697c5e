"""Partitions that are alike: of the same subscribers, and with replicas in the same racks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.assignors.api import Member, Topic
from raylog.assignors.members import subscribers
from raylog.assignors.racks import racks_matter


class Partition(NamedTuple):
    """One partition of one topic; sorts by topic and number."""

    topic: str
    number: int


@dataclass(slots=True)
class Kind:
    """Partitions that differ only in who has them now."""

    partitions: list[Partition]
    """Sorted."""
    members: list[int]
    """Who may have them: indexes, ascending."""
    near: frozenset[int] | None
    """Members in a rack of theirs; None where racks make no difference."""
    owned: dict[int, list[Partition]] = field(default_factory=dict)
    """Who of `members` has which now, sorted."""


Owners = dict[str, dict[int, int]]
"""Topic to partition to the index of the member that has it."""


def owners_of(members: Sequence[Member]) -> Owners:
    """Who has which partition.

    Where several members claim one, the one of the latest generation is right; with equal
    generations nobody can tell, and nobody has it.
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
    """Sort all subscribed partitions into kinds; those that fewest members may have come first."""
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
    """The members in one of `racks`; those without a rack are near to everything."""
    if racks is None:
        return None
    return frozenset(
        index for index in subscribed if members[index].rack is None or members[index].rack in racks
    )

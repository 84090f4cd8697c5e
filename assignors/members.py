"""The order of members, and the subscribers of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from raylog.assignors.api import Member, MemberAssignment, Topic


def served_order(members: Sequence[Member]) -> list[Member]:
    """Static members by instance id, then the others by member id.

    So a static member keeps its place when it comes back under another member id.
    """
    return sorted(members, key=_place)


def _place(member: Member) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member.member_id


def subscribers(members: Sequence[Member], topics: Mapping[str, Topic]) -> dict[str, list[int]]:
    """By topic, sorted by name, the indexes in `members` of its subscribers.

    Topics without subscribers are left out. Equal lists are the same object.
    """
    groups = subscription_groups(members)
    found: dict[str, list[int]] = {name: [] for name in sorted(topics)}
    for group, subscribed in enumerate(groups):
        for listed in map(found.get, subscribed):
            if listed is not None:
                listed.append(group)
    members_of = list(groups.values())
    each_its_own = len(members_of) == len(members)  # a group's number is its member's index
    expanded: dict[tuple[int, ...], list[int]] = {}
    result = {}
    for name, listed in found.items():
        if listed:
            key = tuple(listed)
            indexes = expanded.get(key)
            if indexes is None:
                together = map(members_of.__getitem__, listed)
                indexes = listed if each_its_own else sorted(chain.from_iterable(together))
                expanded[key] = indexes
            result[name] = indexes
    return result


def subscription_groups(members: Sequence[Member]) -> dict[frozenset[str], list[int]]:
    """The distinct subscriptions, each with the indexes of its members."""
    groups: dict[frozenset[str], list[int]] = {}
    for index, member in enumerate(members):
        groups.setdefault(member.topics, []).append(index)
    return groups


def as_assignment(
    members: Sequence[Member], given: Sequence[dict[str, list[int]]]
) -> dict[str, MemberAssignment]:
    """Convert `given`, one entry per member, to a sorted result of `assign`."""
    result = {}
    for member, partitions in sorted(
        zip(members, given, strict=True), key=lambda pair: pair[0].member_id
    ):
        result[member.member_id] = MemberAssignment(
            {topic: sorted(partitions[topic]) for topic in sorted(partitions) if partitions[topic]}
        )
    return result

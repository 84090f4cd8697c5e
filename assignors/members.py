"""Members in the order in which they are served, and who subscribes to what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.assignors.api import Member, MemberAssignment, Topic


def served_order(members: Sequence[Member]) -> list[Member]:
    """Static members first, by instance id, then the others by member id.

    A static member keeps its place when it comes back under another member id.
    """
    return sorted(members, key=_place)


def _place(member: Member) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member.member_id


def subscribers(members: Sequence[Member], topics: Mapping[str, Topic]) -> dict[str, list[int]]:
    """Per topic, sorted by name, the indexes in `members` of those who subscribe to it.

    Topics that nobody subscribes to are left out. Equal lists are one object.
    """
    groups = subscription_groups(members)
    found: dict[str, list[int]] = {}
    for group, subscribed in enumerate(groups):
        for name in subscribed:
            if name in topics:
                found.setdefault(name, []).append(group)
    members_of = list(groups.values())
    expanded: dict[tuple[int, ...], list[int]] = {}
    result = {}
    for name in sorted(found):
        key = tuple(found[name])
        indexes = expanded.get(key)
        if indexes is None:
            indexes = sorted(index for group in key for index in members_of[group])
            expanded[key] = indexes
        result[name] = indexes
    return result


def subscription_groups(members: Sequence[Member]) -> dict[frozenset[str], list[int]]:
    """The different subscriptions, each with the indexes of its members."""
    groups: dict[frozenset[str], list[int]] = {}
    for index, member in enumerate(members):
        groups.setdefault(member.topics, []).append(index)
    return groups


def as_assignment(
    members: Sequence[Member], given: Sequence[dict[str, list[int]]]
) -> dict[str, MemberAssignment]:
    """Put `given`, one a member, into the form that `assign` returns: everything sorted."""
    result = {}
    for member, partitions in sorted(
        zip(members, given, strict=True), key=lambda pair: pair[0].member_id
    ):
        result[member.member_id] = MemberAssignment(
            {topic: sorted(partitions[topic]) for topic in sorted(partitions) if partitions[topic]}
        )
    return result

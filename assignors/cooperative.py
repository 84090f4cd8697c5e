"""The first of two rounds in a cooperative rebalance (KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.assignors.api import Member, MemberAssignment

Partition = tuple[str, int]


def first_round(
    members: Sequence[Member], target: Mapping[str, MemberAssignment]
) -> dict[str, MemberAssignment]:
    """The target without partitions that another member must revoke first.

    The owner sees that a partition is missing, revokes it and rejoins, and the next round assigns
    it. The leader of a classic group with a `cooperative` assignor sends this. A KIP-848
    coordinator does not: it moves each partition as soon as it is revoked.

    If several members claim a partition, those with the latest generation may be consuming it
    (KIP-792). So may members whose generation is unknown, since it is in the user data or nowhere.
    """
    by_age = sorted(members, key=lambda member: member.generation)
    latest = {key: member.generation for member in by_age for key in _partitions(member.owned)}
    given_up = {
        partition
        for member in members
        for partition in _partitions(member.owned)
        - _partitions(target.get(member.member_id, MemberAssignment()).partitions)
        if member.generation in (latest[partition], -1)
    }
    return {
        member_id: MemberAssignment(_without(assignment, given_up), assignment.user_data)
        for member_id, assignment in target.items()
    }


def _partitions(by_topic: Mapping[str, Sequence[int]]) -> set[Partition]:
    return {(topic, number) for topic, numbers in by_topic.items() for number in numbers}


def _without(assignment: MemberAssignment, given_up: set[Partition]) -> dict[str, list[int]]:
    """The partitions of an assignment that no other member must revoke first."""
    kept = {}
    for topic, numbers in assignment.partitions.items():
        some = [number for number in numbers if (topic, number) not in given_up]
        if some:
            kept[topic] = some
    return kept

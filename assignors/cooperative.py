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
    """
    owner = {
        (topic, number): member.member_id
        for member in members
        for topic, numbers in member.owned.items()
        for number in numbers
    }
    given_up = {
        partition
        for partition, member_id in owner.items()
        if partition not in _partitions(target.get(member_id))
    }
    return {
        member_id: MemberAssignment(_without(assignment, given_up), assignment.user_data)
        for member_id, assignment in target.items()
    }


def _partitions(assignment: MemberAssignment | None) -> set[Partition]:
    if assignment is None:
        return set()
    return {(topic, number) for topic, some in assignment.partitions.items() for number in some}


def _without(assignment: MemberAssignment, given_up: set[Partition]) -> dict[str, list[int]]:
    """The partitions of an assignment that no other member must revoke first."""
    kept = {}
    for topic, numbers in assignment.partitions.items():
        some = [number for number in numbers if (topic, number) not in given_up]
        if some:
            kept[topic] = some
    return kept

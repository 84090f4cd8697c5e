"""The most balanced assignment that subscriptions allow, with the fewest moves.

The sticky, cooperative-sticky and uniform assignors use it. They differ in how they learn the
current owners, and in how they distribute partitions that move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raylog.assignors.api import Member, MemberAssignment, Topic
from raylog.assignors.kinds import Kind, Owners, Partition, kinds_of, owners_of
from raylog.assignors.levels import blocks_of
from raylog.assignors.members import as_assignment
from raylog.assignors.placing import Placing


def assign_evenly(
    members: Sequence[Member],
    topics: Mapping[str, Topic],
    owners: Owners,
    *,
    by_rack: bool,
    in_turn: bool,
) -> dict[str, MemberAssignment]:
    """Divide the partitions. Indexes in `owners` are those of `members`.

    Balance comes first: no other assignment has a smaller largest share, then fewer members with
    that share, and so on. Among those, with `by_rack`, replicas are close to their members
    (KIP-881). Then as few partitions as possible move. Partitions without an owner are distributed
    `in_turn`, where the first members get the larger shares, or else in runs, where the last
    members get them.
    """
    kinds = kinds_of(members, topics, owners, by_rack=by_rack)
    given: list[dict[str, list[int]]] = [{} for _ in members]
    for block in blocks_of(kinds, len(members)):
        placing = Placing(block, kinds, last_get_more=not in_turn)
        for index, counts in placing.divide().items():
            for member, partition in _name(kinds[index], counts, in_turn=in_turn):
                given[member].setdefault(partition.topic, []).append(partition.number)
    return as_assignment(members, given)


def assign_stickily(
    members: Iterable[Member], topics: Mapping[str, Topic]
) -> dict[str, MemberAssignment]:
    """Divide the partitions by racks and with the fewest moves, whatever the members' order."""
    ordered = sorted(members, key=lambda member: member.member_id)
    return assign_evenly(ordered, topics, owners_of(ordered), by_rack=True, in_turn=True)


def _name(kind: Kind, counts: dict[int, int], *, in_turn: bool) -> list[tuple[int, Partition]]:
    """The partitions of a kind that each member gets, given their numbers."""
    named = []
    left = set(kind.partitions)
    lacking = {}
    for member in sorted(counts):
        kept = kind.owned.get(member, [])[: counts[member]]
        named += [(member, partition) for partition in kept]
        left.difference_update(kept)
        if len(kept) < counts[member]:
            lacking[member] = counts[member] - len(kept)
    order = _turns(lacking) if in_turn else _runs(lacking)
    named += zip(order, sorted(left), strict=True)
    return named


def _runs(lacking: dict[int, int]) -> list[int]:
    """All partitions of one member, then those of the next."""
    return [member for member, count in lacking.items() for _ in range(count)]


def _turns(lacking: dict[int, int]) -> list[int]:
    """One partition for each member in turn, as long as it lacks any."""
    order: list[int] = []
    left = dict(lacking)
    while left:
        order += left
        left = {member: count - 1 for member, count in left.items() if count > 1}
    return order

"""The most even division that subscriptions allow, with the fewest moves that it can be had for.

Sticky, cooperative-sticky and uniform share it. They differ in where they learn who has what, and
in how partitions that nobody keeps are dealt out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.assignors.api import Member, MemberAssignment, Topic
from raylog.assignors.kinds import Kind, Owners, Partition, kinds_of
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
    """Divide the partitions; indexes in `owners` are those of `members`.

    Evenness comes first: no other division has a smaller largest share, then fewer members with
    it, and so on down. Among those, with `by_rack`, replicas near to their members (KIP-881); then
    as few partitions as possible leave who has them. What is dealt out afresh goes to the members
    `in_turn`, and the first get the larger shares; or else in runs, and the last get them.
    """
    kinds = kinds_of(members, topics, owners, by_rack=by_rack)
    given: list[dict[str, list[int]]] = [{} for _ in members]
    for block in blocks_of(kinds, len(members)):
        placing = Placing(block, kinds, last_get_more=not in_turn)
        for index, counts in placing.divide().items():
            for member, partition in _name(kinds[index], counts, in_turn=in_turn):
                given[member].setdefault(partition.topic, []).append(partition.number)
    return as_assignment(members, given)


def _name(kind: Kind, counts: dict[int, int], *, in_turn: bool) -> list[tuple[int, Partition]]:
    """Which partitions of a kind each member gets, given how many."""
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
    """One member after the other."""
    return [member for member, count in lacking.items() for _ in range(count)]


def _turns(lacking: dict[int, int]) -> list[int]:
    """One to each in turn, as long as it lacks any."""
    order: list[int] = []
    left = dict(lacking)
    while left:
        order += left
        left = {member: count - 1 for member, count in left.items() if count > 1}
    return order

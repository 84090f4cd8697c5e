"""The share of each member in the most balanced assignment that subscriptions allow.

It does not depend on the current owners. Members form blocks: those of a block get either `level`
or `level - 1` partitions, and the partitions of a block cannot move to members of a lower block. An
assignment is most balanced if and only if the partitions of each block are divided that evenly
within the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raylog.assignors.kinds import Kind


@dataclass(slots=True)
class Block:
    """Members among which some kinds of partitions are divided evenly."""

    level: int
    """The larger of the two shares."""
    members: list[int]
    kinds: list[int]
    """Indexes of kinds, in the given order."""


def pour(
    amount: int, members: Sequence[int], loads: Sequence[int] | Mapping[int, int]
) -> dict[int, int]:
    """Distribute `amount` over members so that the lowest loads rise first.

    Returns the number for each member. Among equal loads the first in `members` get more.
    """
    if amount == 1:
        return {min(members, key=loads.__getitem__): 1}
    ordered = sorted(members, key=loads.__getitem__)
    below = 0  # the sum of the loads of the first `count`
    count = 0
    for member in ordered:
        if loads[member] * count - below > amount:
            break
        below += loads[member]
        count += 1
    level, more = divmod(amount + below, count)
    poured = {member: level - loads[member] for member in ordered[:count]}
    raised = (member for member in members if member in poured)
    for member, _ in zip(raised, range(more), strict=False):
        poured[member] += 1
    return {member: added for member, added in poured.items() if added}


def blocks_of(kinds: Sequence[Kind], members: int) -> list[Block]:
    """The blocks, highest level first. Members without possible partitions are in none."""
    return _Levelling(kinds, members).blocks()


class _Levelling:
    """Distributes the partitions of each kind, then shifts partitions until nothing improves.

    A shift moves load along a chain of members, from one member to another that has at least two
    fewer partitions: each passes a partition of some kind to the next. If no chain leads from the
    highest members to lower ones, they and all members reached by chains form a block.
    """

    def __init__(self, kinds: Sequence[Kind], members: int) -> None:
        self._kinds = kinds
        self._loads = [0] * members
        self._held: list[dict[int, int]] = [{} for _ in range(members)]  # kind to count
        self._done_members: set[int] = set()  # in a block
        for index, kind in enumerate(kinds):
            given = pour(len(kind.partitions), kind.members, self._loads)
            for member, count in given.items():
                self._loads[member] += count
                self._held[member][index] = count

    def blocks(self) -> list[Block]:
        """Compute the blocks. Call this once."""
        found = []
        left = set(range(len(self._loads)))
        while left:
            level = max(self._loads[member] for member in left)
            if level == 0:
                break
            top = [member for member in left if self._loads[member] == level]
            reached = self._settle(level, sorted(top))
            if reached:
                left -= reached
                found.append(Block(level, sorted(reached), sorted(self._close(reached))))
        return found

    def _settle(self, level: int, top: list[int]) -> set[int]:
        """Shift from members at `level`.

        Returns those reached by members that cannot be lowered.
        """
        reached: set[int] = set()
        seen_kinds: set[int] = set()
        for member in top:
            while self._loads[member] == level and member not in reached:
                came_by = {member: (member, -1)}  # the previous member, and the kind passed on
                kinds = set(seen_kinds)
                end = self._search(came_by, kinds, reached, level - 2)
                if end is None:
                    reached |= came_by.keys()
                    seen_kinds = kinds
                else:
                    self._shift(came_by, end)
        return reached

    def _search(
        self,
        came_by: dict[int, tuple[int, int]],
        seen_kinds: set[int],
        reached: set[int],
        low: int,
    ) -> int | None:
        """The first member with at most `low` partitions that a chain reaches; None if none."""
        queue = list(came_by)
        for member in queue:  # grows as members are found
            for index in self._held[member]:
                if index in seen_kinds:
                    continue
                seen_kinds.add(index)
                for other in self._kinds[index].members:
                    if other in came_by or other in reached or other in self._done_members:
                        continue
                    came_by[other] = (member, index)
                    if self._loads[other] <= low:
                        return other
                    queue.append(other)
        return None

    def _shift(self, came_by: dict[int, tuple[int, int]], end: int) -> None:
        """Shift partitions along the chain that ends at `end`, as many as make loads more equal."""
        chain = []
        member = end
        while came_by[member][1] >= 0:
            before, index = came_by[member]
            chain.append((before, index, member))
            member = before
        most = (self._loads[member] - self._loads[end]) // 2
        amount = min(most, *(self._held[before][index] for before, index, _ in chain))
        for before, index, after in chain:
            left = self._held[before].pop(index) - amount
            if left:
                self._held[before][index] = left
            self._held[after][index] = self._held[after].get(index, 0) + amount
        self._loads[member] -= amount
        self._loads[end] += amount

    def _close(self, reached: set[int]) -> set[int]:
        """Complete a block. Its members and kinds take no further part. Returns the kinds."""
        self._done_members |= reached
        return {index for member in reached for index in self._held[member]}

"""Divides the partitions of one block evenly, and moves as few of them as possible.

The problem is a flow of partitions from kinds to members: every member gets `level - 1` or `level`,
with as many of the latter as needed. A partition that stays gains 1. One that goes to a member far
from its replicas costs more than all those gains. First every member keeps what the division
allows. Then partitions are placed without taking a kept one away, directly or by chains in which
members pass on what is not theirs. The rest needs chains that take kept partitions away. Each step
uses the cheapest chain, which keeps the total minimal (successive shortest paths). The steps of
that search are limited: if thousands of different subscriptions compete for hundreds of partitions,
the last ones are placed by any chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from raylog.assignors.kinds import Kind
from raylog.assignors.levels import Block, pour

FAR = 1_000_000
"""The cost of a partition far from its member, which exceeds any number of moves."""
STEPS_MAX = 100_000
"""The most edges that the search for cheapest chains may look at, per block."""
_INFINITE = 1 << 62

Node = int
"""A member's index; `_POOL`; or `_KINDS - index` for a kind."""
_POOL = -1
"""Connects members whose larger shares can be exchanged."""
_KINDS = -2
Chain = list[Node]
"""From a kind to a member with room. Each member passes on a partition of the next kind."""


class Placing:
    """The division of one block.

    Invariants: no member has more than `level`, and `_larger_shares` more members may have `level`.
    """

    def __init__(self, block: Block, kinds: Sequence[Kind], *, last_get_more: bool) -> None:
        self._level = block.level
        self._last_get_more = last_get_more
        inside = set(block.members)
        self._members = block.members
        self._kinds = {index: kinds[index] for index in block.kinds}
        self._may_have = {
            index: kind.members
            if inside.issuperset(kind.members)
            else [member for member in kind.members if member in inside]
            for index, kind in self._kinds.items()
        }
        self._given: dict[int, dict[int, int]] = {index: {} for index in self._kinds}
        self._held: dict[int, dict[int, int]] = {member: {} for member in block.members}
        self._loads = dict.fromkeys(block.members, 0)
        self._unplaced = {index: len(kind.partitions) for index, kind in self._kinds.items()}
        total = sum(self._unplaced.values())
        self._larger_shares = total - (block.level - 1) * len(block.members)
        self._steps_left = STEPS_MAX

    def divide(self) -> dict[int, dict[int, int]]:
        """Compute how many partitions of each kind each member gets. Call this once."""
        self._keep()
        self._place_directly(self._near)
        self._place_freely()
        self._place_cheaply(FAR // 2)
        if any(self._unplaced.values()):
            self._place_cheaply(_INFINITE)
            self._keep_far()
            self._place_directly(self._may_have.__getitem__)
            self._place_anyhow()
        assert not any(self._unplaced.values()), "the block's level says that all have room"
        return self._given

    def _near(self, index: int) -> list[int]:
        """The members close to the partitions of a kind."""
        near = self._kinds[index].near
        members = self._may_have[index]
        return members if near is None else [member for member in members if member in near]

    def _give(self, index: int, member: int, count: int) -> None:
        """Place partitions with a member that has room for them."""
        self._hand(index, member, count)
        self._loads[member] += count
        assert self._loads[member] <= self._level
        if self._loads[member] == self._level:
            self._larger_shares -= 1
        self._unplaced[index] -= count

    def _hand(self, index: int, member: int, count: int) -> None:
        """Add partitions of a kind to a member, or remove them if the count is negative."""
        now = self._given[index].get(member, 0) + count
        self._given[index][member] = now
        self._held[member][index] = now
        if not now:
            del self._given[index][member], self._held[member][index]

    def _room(self, member: int) -> int:
        """How many partitions a member can take without any other giving one up."""
        cap = self._level if self._larger_shares > 0 else self._level - 1
        return max(0, cap - self._loads[member])

    def _keep(self) -> None:
        """Let members keep close partitions, up to their room; the least shareable first."""
        for index in self._kinds:
            for member, owned in self._owners(index):
                count = min(owned, self._level - 1 - self._loads[member])
                if count and self._is_near(index, member):
                    self._give(index, member, count)
        for index in self._kinds:
            for member, owned in self._owners(index):
                lost = owned - self._given[index].get(member, 0)
                if lost and self._room(member) and self._is_near(index, member):
                    self._give(index, member, 1)

    def _keep_far(self) -> None:
        """Let members keep distant partitions, if they have room."""
        for index, left in self._unplaced.items():
            for member, owned in self._owners(index) if left else ():
                lost = owned - self._given[index].get(member, 0)
                count = min(lost, self._unplaced[index], self._room(member))
                if count > 0:  # a chain may have brought it more than it had
                    self._give(index, member, count)

    def _owners(self, index: int) -> list[tuple[int, int]]:
        """The members of this block that own partitions of a kind, with their numbers."""
        owned = self._kinds[index].owned
        return [(member, len(owned[member])) for member in sorted(owned) if member in self._loads]

    def _is_near(self, index: int, member: int) -> bool:
        near = self._kinds[index].near
        return near is None or member in near

    def _place_directly(self, members_for: Callable[[int], list[int]]) -> None:
        """Fill the smaller shares of suitable members directly, then the larger ones."""
        lacking = {index: members_for(index) for index, left in self._unplaced.items() if left}
        for index, fitting in lacking.items():
            for member, count in self._smaller_shares(fitting, self._unplaced[index]).items():
                self._give(index, member, count)
        for index, fitting in lacking.items():
            for member in reversed(fitting) if self._last_get_more else fitting:
                if not self._larger_shares or not self._unplaced[index]:
                    break
                if self._loads[member] == self._level - 1:
                    self._give(index, member, 1)

    def _smaller_shares(self, fitting: list[int], amount: int) -> dict[int, int]:
        """Divide partitions among members so that none gets more than `level - 1` in total."""
        if amount == 1 and fitting:
            lowest = min(fitting, key=self._loads.__getitem__)
            return {lowest: 1} if self._loads[lowest] < self._level - 1 else {}
        base = [member for member in fitting if self._loads[member] < self._level - 1]
        room = sum(self._level - 1 - self._loads[member] for member in base)
        amount = min(room, amount)
        return pour(amount, base, self._loads) if amount else {}

    def _place_freely(self) -> None:
        """Place by chains without cost, in which no member loses a kept or close partition."""
        dead: set[Node] = set()  # no chain leads on from these, whatever other chains change
        for index in self._kinds:
            while self._unplaced[index]:
                chain = self._shortest_chain(index, dead, free=True)
                if chain is None:
                    break
                self._carry_out(chain, self._capacity(chain))

    def _place_anyhow(self) -> None:
        """Place what is left by any chain."""
        for index in self._kinds:
            while self._unplaced[index]:
                chain = self._shortest_chain(index, set(), free=False)
                assert chain is not None, "the block's level says that all have room"
                self._carry_out(chain)

    def _place_cheaply(self, below: int) -> None:
        """Place by the cheapest chains that cost less than `below`, while steps are left."""
        for index in self._kinds:
            while self._unplaced[index] and self._steps_left > 0:
                chain = self._cheapest_chain(index, below)
                if chain is None:
                    break
                self._carry_out(chain)

    def _shortest_chain(self, index: int, dead: set[Node], *, free: bool) -> Chain | None:
        """The shortest chain, free or of any cost. Without one, all visited nodes join `dead`."""
        start = _KINDS - index
        before: dict[Node, Node] = {start: start}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for following, cost in self._edges(node):
                if following in before or following in dead or (free and cost):
                    continue
                before[following] = node
                if following >= 0 and self._room(following):
                    return _chain(before, following)
                queue.append(following)
        dead |= before.keys()
        return None

    def _cheapest_chain(self, index: int, below: int) -> Chain | None:
        """The cheapest chain, or the best one found when the steps run out.

        None if it costs `below` or more. Some edges have a negative cost, but no cycle has.
        """
        start = _KINDS - index
        before: dict[Node, Node] = {start: start}
        costs: dict[Node, int] = {start: 0}
        queue = deque([start])
        queued = {start}
        while queue and self._steps_left > 0:
            node = queue.popleft()
            queued.discard(node)
            for following, cost in self._edges(node):
                self._steps_left -= 1
                sum_so_far = costs[node] + cost
                if sum_so_far < costs.get(following, _INFINITE):
                    costs[following] = sum_so_far
                    before[following] = node
                    if following not in queued:
                        queued.add(following)
                        queue.append(following)
        ends = [member for member in costs if member >= 0 and self._room(member)]
        end = min(ends, key=lambda member: (costs[member], member), default=None)
        if end is None or costs[end] >= below:
            return None
        return _chain(before, end)

    def _edges(self, node: Node) -> Iterator[tuple[Node, int]]:
        """The next nodes of a chain, with the cost of each step."""
        if node == _POOL:
            for member in self._members:
                if self._loads[member] == self._level:
                    yield member, 0
        elif node >= 0:
            for index, count in self._held[node].items():
                yield _KINDS - index, -self._cost(index, node, count - 1)
            if self._loads[node] < self._level:
                yield _POOL, 0
        else:
            index = _KINDS - node
            given, kind = self._given[index], self._kinds[index]
            for member in self._may_have[index]:
                if member in kind.owned or kind.near is not None:
                    yield member, self._cost(index, member, given.get(member, 0))
                else:
                    yield member, 0

    def _cost(self, index: int, member: int, count: int) -> int:
        """The cost of one more partition of a kind for a member that has `count` of them."""
        owned = self._kinds[index].owned.get(member)
        far = not self._is_near(index, member)
        return (FAR if far else 0) - (1 if owned is not None and count < len(owned) else 0)

    def _capacity(self, chain: Chain) -> int:
        """How many partitions can take a free chain without cost."""
        if _POOL in chain:
            return 1
        most = min(self._unplaced[_KINDS - chain[0]], self._level - 1 - self._loads[chain[-1]])
        for member, following in pairwise(chain):
            if member >= 0:
                index = _KINDS - following
                owned = self._kinds[index].owned.get(member, ())
                most = min(most, self._given[index][member] - len(owned))
        return max(1, most)  # a larger share is a single partition

    def _carry_out(self, chain: Chain, count: int = 1) -> None:
        """Move partitions along a chain. Each member passes on as many as it gets."""
        for node, following in pairwise(chain):
            if following == _POOL:
                self._loads[node] += 1
                self._larger_shares -= self._loads[node] == self._level
            elif node == _POOL:  # leads only to members at the level
                self._loads[following] -= 1
                self._larger_shares += 1
            elif node >= 0:
                self._hand(_KINDS - following, node, -count)
            elif following != chain[-1]:
                self._hand(_KINDS - node, following, count)
            else:
                self._give(_KINDS - node, following, count)
                self._unplaced[_KINDS - node] += count
        self._unplaced[_KINDS - chain[0]] -= count


def _chain(before: dict[Node, Node], end: Node) -> Chain:
    """The nodes on the path to `end`, in order."""
    chain = [end]
    while before[end] != end:
        end = before[end]
        chain.append(end)
    chain.reverse()
    return chain

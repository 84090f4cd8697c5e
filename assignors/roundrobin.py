"""The round-robin assignor, which deals out all partitions of all topics one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.members import as_assignment, served_order, subscribers


class RoundRobinAssignor(Assignor):
    """Goes round the members. Each partition goes to the next one that subscribes to its topic.

    Topics are ordered by name, partitions by number. With equal subscriptions, shares differ by one
    at most. With different ones they may be unbalanced.
    """

    name = "roundrobin"

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions."""
        ordered = served_order(members)
        given: list[dict[str, list[int]]] = [{} for _ in ordered]
        turn = 0  # index of the next member
        for name, subscribed in subscribers(ordered, topics).items():
            place = bisect_left(subscribed, turn)
            for partition in range(topics[name].partitions):
                member = subscribed[place % len(subscribed)]
                given[member].setdefault(name, []).append(partition)
                place += 1
                turn = member + 1
        return as_assignment(ordered, given)

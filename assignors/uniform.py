"""The uniform assignor: balanced and sticky, for groups whose coordinator assigns (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.even import assign_evenly
from raylog.assignors.kinds import owners_of


class UniformAssignor(Assignor):
    """As balanced as subscriptions allow, then with the fewest moves. It ignores racks.

    Partitions that move are given out in runs, as Apache Kafka's coordinator does if all
    subscriptions are equal.
    """

    name = "uniform"

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions."""
        ordered = sorted(members, key=lambda member: member.member_id)
        return assign_evenly(ordered, topics, owners_of(ordered), by_rack=False, in_turn=False)

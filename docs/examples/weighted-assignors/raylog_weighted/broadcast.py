"""Every partition to every member: publish and subscribe within one group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic


class BroadcastAssignor(Assignor):
    """Gives every member all partitions of the topics that it subscribes to."""

    name = "broadcast"
    shares_partitions = True  # else a partition given twice is refused as a mistake

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Give everything to everyone."""
        return {
            member.member_id: MemberAssignment(
                {
                    name: list(range(topics[name].partitions))
                    for name in sorted(member.topics)
                    if name in topics
                }
            )
            for member in members
        }

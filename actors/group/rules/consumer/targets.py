"""The target assignment: its assignor, its input, and its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from raylog.actors.group.rules.consumer import topics
from raylog.actors.group.rules.consumer.member import Partitions
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.actors.group.rules.consumer.writing import GroupLog
from raylog.actors.metadata.image import MetadataImage
from raylog.assignors.api import Member, MemberAssignment, Topic


class Assigning(Protocol):
    """Runs assignors by name."""

    def assign(
        self, group_id: str, name: str, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Assign the partitions.

        Raises AssignmentUnderWay if another process computes the assignment; the group must call
        again when it is done. Raises another PluginError if the assignor fails.
        """
        ...


def chosen_assignor(state: GroupState, supported: Sequence[str]) -> str:
    """Return the assignor that most members voted for; without votes the first supported one."""
    votes = Counter(
        profile.server_assignor
        for profile in state.profiles.values()
        if profile.server_assignor in supported
    )
    return max(supported, key=lambda name: votes[name])


def members_of(state: GroupState, image: MetadataImage) -> list[Member]:
    """Return the members for assignors, by id, including static ones that may come back."""
    return [
        Member(
            member_id=member_id,
            topics=state.topics_of(profile),
            owned=_by_name(state.target(member_id), image),
            instance_id=profile.instance_id,
            rack=profile.rack_id,
            generation=state.target_epoch,
        )
        for member_id, profile in sorted(state.profiles.items())
    ]


def _by_name(partitions: Partitions, image: MetadataImage) -> dict[str, tuple[int, ...]]:
    return {
        image.topics[topic_id].name: tuple(sorted(some))
        for topic_id, some in partitions.items()
        if topic_id in image.topics
    }


def compute(
    group_id: str, state: GroupState, image: MetadataImage, assigning: Assigning, name: str
) -> dict[str, Partitions]:
    """Compute what each member should own; raises PluginError, like `Assigning.assign`."""
    members = members_of(state, image)
    found = assigning.assign(group_id, name, members, topics.assignable(image, state.subscribed()))
    return {
        member.member_id: _by_id(found.get(member.member_id, _NOTHING), image) for member in members
    }


_NOTHING = MemberAssignment()


def _by_id(assignment: MemberAssignment, image: MetadataImage) -> Partitions:
    return {
        image.topic_ids[name]: frozenset(some)
        for name, some in sorted(assignment.partitions.items())
        if some
    }


def write(
    log: GroupLog, state: GroupState, targets: Mapping[str, Partitions], epoch: int, now_ms: int
) -> None:
    """Record the differences from the old target, and the epoch of the new one."""
    for member_id, partitions in targets.items():
        if state.targets.get(member_id) != partitions:
            log.target(member_id, partitions)
    log.target_epoch(epoch, now_ms)

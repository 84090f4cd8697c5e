"""Who may commit and fetch offsets as a member of a KIP-848 group."""

from __future__ import annotations

from raylog.actors.group.consumer.context import GroupContext
from raylog.actors.group.consumer.member import Profile
from raylog.actors.group.consumer.requests import unknown_member
from raylog.wire.errors import IllegalGeneration, StaleMemberEpoch


def member_profile(group: GroupContext, member_id: str) -> Profile:
    """The member of that id; raises UnknownMemberId if there is none."""
    profile = group.state.profiles.get(member_id)
    if profile is None:
        raise unknown_member(member_id, group.group_id)
    return profile


def check_epoch_of(profile: Profile, said: int, epoch: int) -> None:
    """Raises unless the member said its current epoch: in words of the protocol it speaks."""
    if said == epoch:
        return
    if profile.classic is not None:
        raise IllegalGeneration(
            f"The received generation id {said} does not match the expected member epoch {epoch}."
        )
    raise StaleMemberEpoch(
        f"The received member epoch {said} does not match the expected member epoch {epoch}."
    )

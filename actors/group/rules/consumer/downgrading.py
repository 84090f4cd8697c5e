"""Makes a KIP-848 group classic once only classic members are left (migration policy).

The records create the classic group, with the last target as its assignment and the group epoch as
its generation. What they do not contain is left in `GroupContext.downgrade` for the shard.
"""

from __future__ import annotations

from collections.abc import Collection

from raylog.actors.coordination.rules.step import Step
from raylog.actors.group.rules.classic.members import Member, Roster
from raylog.actors.group.rules.classic.metadata import VALUE_VERSION
from raylog.actors.group.rules.consumer import embedded
from raylog.actors.group.rules.consumer.context import REGEX_TIMER, Downgrade, GroupContext
from raylog.actors.group.rules.consumer.member import Partitions, Profile
from raylog.actors.group.rules.consumer.writing import GroupLog
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.internal.offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata


def is_due(group: GroupContext, leaving: Collection[str], joining: int = 0) -> bool:
    """Whether only classic members remain and the policy allows a classic group.

    `joining` is the number of classic members that replace some that leave.
    """
    stay = [one for member_id, one in group.state.profiles.items() if member_id not in leaving]
    return (
        group.settings.may_downgrade
        and 0 < len(stay) + joining <= group.settings.size_max
        and all(profile.classic is not None for profile in stay)
    )


def downgrade(
    group: GroupContext, step: Step, leaving: Collection[str], *, rebalance: bool
) -> None:
    """Record the group as a classic group without the members in `leaving`."""
    state = group.state
    epoch = state.group_epoch
    targets = {member_id: state.target(member_id) for member_id in state.profiles}
    roster = Roster()
    for member_id, profile in state.profiles.items():
        group.end_timers(step, member_id)
        if member_id not in leaving:
            roster.add(_member(member_id, profile), embedded.CONSUMER_PROTOCOL)
    step.cancel_timer(group.group_id, REGEX_TIMER)
    protocol = roster.vote()
    GroupLog(group.group_id, step).forget_group(state)
    value = GroupMetadataValue(
        protocol_type=embedded.CONSUMER_PROTOCOL,
        generation=epoch,
        protocol=protocol,
        leader=roster.leader,
        current_state_timestamp=step.now_ms,
        members=[
            _recorded(member, protocol, targets[member.member_id], step.image)
            for member in roster.members.values()
        ],
    )
    protocols = {member.member_id: member.protocols for member in roster.members.values()}
    group.downgrade = Downgrade(protocols, rebalance)
    step.append(GroupMetadataKey(group=group.group_id), value, VALUE_VERSION)


def _member(member_id: str, profile: Profile) -> Member:
    classic = profile.classic
    assert classic is not None
    return Member(
        member_id,
        profile.instance_id,
        profile.client_id,
        profile.client_host,
        profile.rebalance_timeout_ms,
        classic.session_timeout_ms,
        dict(classic.protocols),
    )


def _recorded(
    member: Member, protocol: str, target: Partitions, image: MetadataImage
) -> MemberMetadata:
    subscription = member.protocols[protocol]
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=subscription,
        assignment=embedded.assignment_blob(target, image, subscription),
    )

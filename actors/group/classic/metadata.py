"""Records of classic groups: the metadata of a generation.

Kafka writes one when the leader has brought the assignment, when a static member is replaced
without a rebalance, when a group has become empty, and an empty one when a group is first heard of.
"""

from collections.abc import Mapping

from raylog.actors.coordination.step import Step
from raylog.actors.group.classic.members import Member
from raylog.actors.group.classic.state import GroupState
from raylog.wire.internal.offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata

VALUE_VERSION = 3
"""As Kafka writes it; the flexible version 4 is read only."""


def create(step: Step, group_id: str) -> None:
    """Make an empty group, at generation 0 and without a protocol type."""
    value = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=step.now_ms,
    )
    step.append(GroupMetadataKey(group=group_id), value, VALUE_VERSION)


def record(group: GroupState, step: Step, assignments: Mapping[str, bytes]) -> None:
    """Settle the generation with these assignments by member id; others get an empty one."""
    members = group.roster.members.values()
    value = GroupMetadataValue(
        protocol_type=group.roster.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.roster.leader,
        current_state_timestamp=group.since_ms,
        members=[_recorded(m, group.protocol, assignments.get(m.member_id, b"")) for m in members],
    )
    step.append(GroupMetadataKey(group=group.group_id), value, VALUE_VERSION)


def delete(group_id: str, step: Step) -> None:
    """Append the group's tombstone."""
    step.append(GroupMetadataKey(group=group_id), None)


def _recorded(member: Member, protocol: str | None, assignment: bytes) -> MemberMetadata:
    assert protocol is not None, "a generation with members has a protocol"
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.protocols[protocol],
        assignment=assignment,
    )

"""Records of classic groups: the metadata of a generation.

As in Kafka, one is written when the leader has sent the assignment, when a static member is
replaced without a rebalance, and when a group has become empty; an empty one creates a group.
"""

from collections.abc import Mapping

from raylog.actors.coordination.rules.step import Step
from raylog.actors.group.rules.classic.members import Member
from raylog.actors.group.rules.classic.state import GroupState
from raylog.wire.internal.offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata

VALUE_VERSION = 3
"""The version that Kafka writes; the flexible version 4 can be read as well."""


def create(step: Step, group_id: str) -> None:
    """Create an empty group, at generation 0 and without a protocol type."""
    value = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=step.now_ms,
    )
    step.append(GroupMetadataKey(group=group_id), value, VALUE_VERSION)


def record(group: GroupState, step: Step, assignments: Mapping[str, bytes]) -> None:
    """Record the generation with assignments by member id; other members get an empty one."""
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

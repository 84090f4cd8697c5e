"""Converts between classic and KIP-848 groups while they are in use (KIP-848 online migration).

The shard calls `upgrade` when a ConsumerGroupHeartbeat finds a classic group. The appended records
turn the group into a KIP-848 group, which then handles the heartbeat. After each event of a KIP-848
group the shard calls `settle`. If the records of the event have made the group classic, `settle`
adds what they do not contain. Groups without members are converted either way, whatever the policy,
with tombstones only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.rules.classic import ClassicGroup, Member
from raylog.actors.group.rules.consumer import embedded, topics
from raylog.actors.group.rules.consumer.group import ConsumerGroup
from raylog.actors.group.rules.consumer.member import (
    ClassicSide,
    Holding,
    Partitions,
    Profile,
    sorted_names,
)
from raylog.actors.group.rules.consumer.requests import check_fields
from raylog.actors.group.rules.consumer.writing import GroupLog
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.errors import (
    DecodeError,
    GroupIdNotFound,
    GroupMaxSizeReached,
)
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

UPGRADE_BYTES_MAX = 1 << 20
"""Limit for the metadata of all members in an upgrade. Their records are one batch, and a log with
the default max.message.bytes would refuse a larger one."""


def upgrade(
    step: Step,
    classic: ClassicGroup,
    settings: GroupSettings,
    call: ClientCall[ConsumerGroupHeartbeatRequest],
) -> None:
    """Record a classic group as a KIP-848 group, for a member that joins it.

    Raises the error that refuses the upgrade, or the heartbeat itself, before any record is
    appended.
    """
    request = call.request
    check_fields(request, call.version, settings.consumer_assignors)
    if request.member_epoch != 0:
        raise GroupIdNotFound(f"Group {classic.group_id} is not a consumer group.")
    if request.subscribed_topic_regex:
        topics.check_regex(request.subscribed_topic_regex)
    if not classic.members:
        classic.delete(step)
        return
    _check_policy(classic, settings)
    _check_room(classic, settings, request)
    members = [_read(classic, member, step.image) for member in classic.members]
    generation = classic.generation
    classic.delete(step)
    _write(GroupLog(classic.group_id, step), members, generation, step.image)
    for member_id, profile, _ in members:
        assert profile.classic is not None
        key = ("session", member_id)
        step.set_timer(classic.group_id, key, profile.classic.session_timeout_ms)


def _check_policy(classic: ClassicGroup, settings: GroupSettings) -> None:
    if not settings.may_upgrade:
        raise _cannot(classic, "online upgrade is disabled.")
    if classic.protocol_type != embedded.CONSUMER_PROTOCOL:
        raise _cannot(classic, "the group does not use the consumer embedded protocol.")
    if len(classic.members) > settings.consumer_size_max:
        raise _cannot(
            classic,
            "the group size exceeds the consumer group maximum size.",
        )
    if sum(map(_metadata_bytes, classic.members)) > UPGRADE_BYTES_MAX:
        raise _cannot(
            classic, f"the metadata of its members exceed {UPGRADE_BYTES_MAX} bytes in total."
        )


def _metadata_bytes(member: Member) -> int:
    return len(member.assignment) + sum(map(len, member.protocols.values()))


def _cannot(classic: ClassicGroup, reason: str) -> GroupIdNotFound:
    return GroupIdNotFound(
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}"
    )


def _check_room(
    classic: ClassicGroup, settings: GroupSettings, request: ConsumerGroupHeartbeatRequest
) -> None:
    """Check that there is room for the joining member, unless it replaces itself."""
    most = settings.consumer_size_max
    if len(classic.members) < most:
        return
    if all(member.member_id != request.member_id for member in classic.members):
        raise GroupMaxSizeReached(
            f"The consumer group has reached its maximum capacity of {most} members."
        )


def _read(
    classic: ClassicGroup, member: Member, image: MetadataImage
) -> tuple[str, Profile, Partitions]:
    """Convert a member for the new group, with the partitions of its last assignment."""
    blob = member.protocols.get(classic.protocol or "") or next(iter(member.protocols.values()))
    try:
        subscription = embedded.subscription_of(blob)
        assignment = embedded.assignment_of(member.assignment)
    except DecodeError as malformed:
        raise _cannot(classic, "the embedded consumer protocol is malformed.") from malformed
    if assignment.user_data:
        raise _cannot(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade.",
        )
    profile = Profile(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=sorted_names(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicSide(member.session_timeout_ms, tuple(member.protocols.items())),
    )
    owned = embedded.partitions_of(assignment.assigned_partitions, image)
    return member.member_id, profile, owned


def _write(
    log: GroupLog,
    members: list[tuple[str, Profile, Partitions]],
    generation: int,
    image: MetadataImage,
) -> None:
    """Record all members at the generation, with what they own as their target."""
    subscribed = {name for _, profile, _ in members for name in profile.topic_names}
    for member_id, profile, _ in members:
        log.profile(member_id, profile)
    log.epoch(generation, topics.metadata_hash(image, subscribed))
    for member_id, _, owned in members:
        log.target(member_id, owned)
    log.target_epoch(generation, 0)
    for member_id, _, owned in members:
        assigned = {
            topic_id: dict.fromkeys(sorted(some), generation) for topic_id, some in owned.items()
        }
        log.holding(member_id, Holding(generation, generation, assigned=assigned))


def settle(step: Step, group: ConsumerGroup, groups: Mapping[str, Any]) -> None:
    """Complete a downgrade, if the event that `group` handled in this step caused one."""
    downgrade = group.take_downgrade()
    if downgrade is None:
        return
    classic = groups[group.group_id]
    assert isinstance(classic, ClassicGroup)
    classic.adopt(step, downgrade.protocols, rebalance=downgrade.rebalance)


__all__ = ["settle", "upgrade"]

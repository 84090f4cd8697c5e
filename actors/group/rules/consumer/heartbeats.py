"""ConsumerGroupHeartbeat: a member joins, stays and leaves (KIP-848).

Everything that can fail is checked before the first record is appended. The records then follow in
Kafka's order: the member's profile, the group epoch, the target, what the member owns.
"""

from __future__ import annotations

from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.rules.consumer import rebalance, topics
from raylog.actors.group.rules.consumer.checks import check_size
from raylog.actors.group.rules.consumer.context import GroupContext
from raylog.actors.group.rules.consumer.member import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Epochs,
    Holding,
)
from raylog.actors.group.rules.consumer.requests import (
    Seat,
    changed_profile,
    check_fields,
    check_instance,
    find_seat,
    is_full,
    owned_of,
    unknown_member,
)
from raylog.actors.group.rules.consumer.writing import GroupLog
from raylog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from raylog.wire.uuids import random_uuid, to_base64


def heartbeat(
    group: GroupContext, step: Step, call: ClientCall[ConsumerGroupHeartbeatRequest]
) -> None:
    """Answer a member; raises the KafkaError that refuses it before any record is appended."""
    request = call.request
    check_fields(request, call.version, group.settings.consumer_assignors)
    if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        response = _leave(group, step, request)
    else:
        response = _stay(group, step, call)
    step.answer(call, response)


def _leave(
    group: GroupContext, step: Step, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    state, member_id = group.state, request.member_id
    if request.instance_id is not None:
        check_instance(member_id, request.instance_id, state.static_ids.get(request.instance_id))
    elif member_id not in state.profiles:
        raise unknown_member(member_id, group.group_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        _pause(group, step, member_id)
    else:
        rebalance.remove_members(group, step, [member_id], "it asked to")
    return ConsumerGroupHeartbeatResponse(
        error_code=0, member_id=member_id, member_epoch=request.member_epoch
    )


def _pause(group: GroupContext, step: Step, member_id: str) -> None:
    """Let a static member leave temporarily: it keeps its partitions until its session ends.

    Its successor must not commit with epochs in which it was not a member, so they are forgotten.
    """
    holding = group.state.holding(member_id)
    paused = Holding(
        epoch=STATIC_LEAVE_EPOCH,
        previous_epoch=holding.previous_epoch,
        state=holding.state,
        assigned={
            topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in holding.assigned.items()
        },
    )
    GroupLog(group.group_id, step).holding(member_id, paused)
    group.end_revocation(step, member_id)


def _stay(
    group: GroupContext, step: Step, call: ClientCall[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse:
    request = call.request
    member_id = request.member_id or to_base64(random_uuid(step.random))
    check_size(group, member_id)
    seat = find_seat(group.state, group.group_id, member_id, request)
    profile = changed_profile(seat.profile, call)
    regex = profile.topic_regex
    if regex and regex != seat.profile.topic_regex and not group.state.regex_counts[regex]:
        topics.check_regex(regex)
    rebalance.admit(group, step, member_id, seat, profile, owned_of(request))
    group.restart_session(step, member_id)
    return _answer(group, step, member_id, seat, full=is_full(request))


def _answer(
    group: GroupContext, step: Step, member_id: str, seat: Seat, *, full: bool
) -> ConsumerGroupHeartbeatResponse:
    """Answer, including the assignment if it has changed or was requested."""
    holding = group.state.holding(member_id)
    assignment = None
    if full or not _same_partitions(seat.holding.assigned, holding.assigned):
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(epochs))
                for topic_id, epochs in holding.assigned.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id=member_id,
        member_epoch=holding.epoch,
        heartbeat_interval_ms=group.settings.heartbeat_interval_ms_of(step.image, group.group_id),
        assignment=assignment,
    )


def _same_partitions(one: Epochs, other: Epochs) -> bool:
    return one is other or (
        one.keys() == other.keys()
        and all(epochs.keys() == other[topic_id].keys() for topic_id, epochs in one.items())
    )

"""A member of a KIP-848 group: its own data, and what it owns.

Each half is one record of `__consumer_offsets`, and is replaced as a whole when its record is
replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from raylog.actors.common_messages import TopicId
from raylog.wire.internal.consumer_groups import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

Partitions = Mapping[TopicId, frozenset[int]]
"""Topics without partitions are left out."""
Epochs = Mapping[TopicId, Mapping[int, int]]
"""Partitions with the member epoch at which each was assigned; topics without any are left out."""

LEAVE_EPOCH = -1
"""The epoch that a leaving member sends."""
STATIC_LEAVE_EPOCH = -2
"""The epoch of a static member that has left and may come back with its instance id (KIP-345)."""


class MemberState(IntEnum):
    """A member's progress towards its target; the numbers are those in its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must still give up partitions."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others own."""
    UNKNOWN = 127
    """A newer build wrote a state that this one does not know."""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """The join request of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Assignor names and subscriptions, in the member's order of preference."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A member's own data, without its epoch."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Sorted and unique."""
    topic_regex: str = ""
    """Empty if it subscribes to no pattern."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicSide | None = None
    """None if it uses KIP-848."""

    def record(self) -> ConsumerGroupMemberMetadataValue:
        """Build the record's value."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=None
            if self.classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=self.classic.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in self.classic.protocols
                ],
            ),
        )


def profile_of(value: ConsumerGroupMemberMetadataValue) -> Profile:
    """Parse a record's value."""
    classic = value.classic_member_metadata
    return Profile(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=sorted_names(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms,
            tuple((one.name, bytes(one.metadata)) for one in classic.supported_protocols),
        ),
    )


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return topic names as in a profile."""
    return tuple(sorted(set(names)))


@dataclass(frozen=True, slots=True)
class Holding:
    """The partitions that a member owns, and the epochs at which it got them.

    Changed only by `reconcile`, which lists the transitions of `state`.
    """

    epoch: int = 0
    previous_epoch: int = 0
    """Also accepted, in case the response with the new epoch was lost."""
    state: MemberState = MemberState.STABLE
    assigned: Epochs = field(default_factory=dict)
    """No other member owns these."""
    revoking: Epochs = field(default_factory=dict)
    """The member was asked to give these up, and may still be using them."""

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has reached the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def record(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Build the record's value."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            assigned_partitions=_to_wire(self.assigned),
            partitions_pending_revocation=_to_wire(self.revoking),
        )


def holding_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Holding:
    """Parse a record's value."""
    known = value.state in _STATES
    return Holding(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if known else MemberState.UNKNOWN,
        assigned=_from_wire(value.assigned_partitions, value.member_epoch),
        revoking=_from_wire(value.partitions_pending_revocation, value.member_epoch),
    )


_STATES = frozenset(MemberState)


def _to_wire(partitions: Epochs) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=list(epochs),
            assignment_epochs=list(epochs.values()),
        )
        for topic_id, epochs in partitions.items()
    ]


def _from_wire(partitions: Iterable[TopicPartitions], member_epoch: int) -> Epochs:
    """Convert partitions; in records without assignment epochs, all get the member's epoch."""
    return {
        TopicId(bytes(one.topic_id)): dict(
            zip(
                one.partitions,
                one.assignment_epochs or [member_epoch] * len(one.partitions),
                strict=True,
            )
        )
        for one in partitions
        if one.partitions
    }

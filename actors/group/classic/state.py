"""A classic group's state: what records have settled, and what is under way.

Settled by records alone: the generation, its protocol, and each member's assignment. The rest is
soft, as in Kafka: a rebalance under way is not recorded, and after a crash members repeat it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from raylog.actors.coordination.step import Change, Step, Undo
from raylog.actors.group.classic.members import Member, Roster
from raylog.actors.group.classic.subscriptions import topics_of
from raylog.actors.group.settings import GroupSettings
from raylog.wire.internal.offsets import GroupMetadataValue, MemberMetadata

CONSUMER_PROTOCOL = "consumer"


class State(Enum):
    """Where a group is, named as ListGroups tells it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class GroupState:
    """All that one group remembers."""

    group_id: str
    settings: GroupSettings
    state: State = State.EMPTY
    previous: State = State.EMPTY
    since_ms: int = -1
    """Wall-clock time of the last change of state; -1: unknown."""
    generation: int = 0
    protocol: str | None = None
    roster: Roster = field(default_factory=Roster)
    newly_joined: bool = False
    """A member came during the delay of the first rebalance, which may be extended for it."""
    initial_delay: tuple[int, int] | None = None
    """In the first rebalance's delay: how long it is, and how much more there may be, in ms."""
    assignment_was_refused: bool = False
    """The log has refused what the leader assigned: members have to join again."""
    _subscriptions: tuple[bytes, ...] = ()
    """The members' metadata as the generation began."""
    _topics: frozenset[str] | tuple[()] | None = ()
    """Topics of `_subscriptions`; None: unreadable; an empty tuple: not looked at yet."""

    def move_to(self, state: State, now_ms: int) -> None:
        """Change the state."""
        self.previous, self.state, self.since_ms = self.state, state, now_ms

    def next_generation(self) -> None:
        """Number the generation that begins, and choose its protocol."""
        self.generation += 1
        self.roster.unsynced.clear()
        self.protocol = self.roster.vote() if self.roster.members else None
        self._note_subscriptions()

    def subscribes(self, topic: str) -> bool:
        """Whether the generation's members read the topic, as far as their metadata tells.

        Only consumers' metadata says so. True where it cannot be read.
        """
        if self.roster.protocol_type != CONSUMER_PROTOCOL:
            return False
        topics = self.topics()
        return topics is None or topic in topics

    def topics(self) -> frozenset[str] | None:
        """The topics that consumers subscribed to; None if that cannot be read."""
        if isinstance(self._topics, tuple):
            self._topics = topics_of(self._subscriptions)
        return self._topics

    def unread(self) -> tuple[bytes, ...]:
        """The subscriptions that `topics` has to read first; none if it has read them."""
        is_read = not isinstance(self._topics, tuple)
        reads_topics = self.roster.protocol_type == CONSUMER_PROTOCOL
        return self._subscriptions if reads_topics and not is_read else ()

    def read(self, subscriptions: tuple[bytes, ...], topics: frozenset[str] | None) -> None:
        """Take what a thread has read, unless another generation has begun meanwhile."""
        if subscriptions is self._subscriptions:
            self._topics = topics

    def settle(self, value: GroupMetadataValue) -> Change:
        """Take what a record says; who is known already keeps what a record does not carry."""
        before, known = self.state, self.roster
        settled = Roster(joining=known.joining, syncing=known.syncing, pending=known.pending)
        settled.protocol_type = value.protocol_type or None
        for recorded in value.members:
            member = known.members.get(recorded.member_id)
            settled.add(_settled(member, recorded, value.protocol), value.protocol_type)
        settled.unsynced = known.unsynced & settled.members.keys()
        settled.leader = value.leader
        self.roster = settled
        self.generation = value.generation
        self.protocol = value.protocol
        self.move_to(State.STABLE if value.members else State.EMPTY, value.current_state_timestamp)
        self._note_subscriptions()
        return Undo(partial(self._unsettle, before, value))

    def _unsettle(self, before: State, value: GroupMetadataValue) -> None:
        """A record was refused: nobody has been given what was assigned.

        As in Kafka memory is ahead of the log otherwise: a group whose members have all left stays
        without any, and whatever was begun since goes on.
        """
        is_assigned = before is State.COMPLETING_REBALANCE and self.state is State.STABLE
        if is_assigned and self.generation == value.generation:
            for member in self.roster.members.values():
                member.assignment = b""
            self.move_to(before, self.since_ms)
            self.assignment_was_refused = True

    def restart_session(self, step: Step, member: Member, timeout_ms: int | None = None) -> None:
        """Count the member's session from now; None: as long as it asked for."""
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        step.set_timer(self.group_id, ("session", member.member_id), delay_ms)

    def ensure_session(self, step: Step, member: Member) -> None:
        """Count the member's session from now unless it is counted already."""
        key = ("session", member.member_id)
        step.ensure_timer(self.group_id, key, member.session_timeout_ms)

    def end_session(self, step: Step, member_id: str) -> None:
        """Stop counting a session."""
        step.cancel_timer(self.group_id, ("session", member_id))

    def _note_subscriptions(self) -> None:
        name = self.protocol
        members = self.roster.members.values()
        noted = () if name is None else tuple(m.protocols[name] for m in members)
        if noted != self._subscriptions:
            self._subscriptions, self._topics = noted, ()


def _settled(member: Member | None, recorded: MemberMetadata, protocol: str | None) -> Member:
    """The member that a record describes."""
    assert protocol is not None, "a generation with members has a protocol"
    if member is not None and member.protocols.get(protocol) == recorded.subscription:
        member.assignment = recorded.assignment
        return member
    rebalance_ms = recorded.rebalance_timeout
    return Member(
        recorded.member_id,
        recorded.group_instance_id,
        recorded.client_id,
        recorded.client_host,
        rebalance_ms if rebalance_ms != -1 else recorded.session_timeout,
        recorded.session_timeout,
        {protocol: recorded.subscription},
        recorded.assignment,
    )

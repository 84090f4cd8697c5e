"""The state of a classic group: the recorded state, and work in progress.

Only the generation, its protocol and each member's assignment are recorded. The rest is soft state,
as in Kafka: a rebalance in progress is not recorded, and members repeat it after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from raylog.actors.coordination.rules.step import Change, Step, Undo
from raylog.actors.group.rules.classic.members import Member, Roster
from raylog.actors.group.rules.classic.subscriptions import topics_of
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.internal.offsets import GroupMetadataValue, MemberMetadata

CONSUMER_PROTOCOL = "consumer"


class State(Enum):
    """The state of a group, with the names in ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class GroupState:
    """The state of one group."""

    group_id: str
    settings: GroupSettings
    state: State = State.EMPTY
    previous: State = State.EMPTY
    since_ms: int = -1
    """Wall-clock time of the last change of state; -1 if unknown."""
    generation: int = 0
    protocol: str | None = None
    roster: Roster = field(default_factory=Roster)
    newly_joined: bool = False
    """Whether a member joined during the first rebalance's delay, which may then be extended."""
    initial_delay: tuple[int, int] | None = None
    """The length of the first rebalance's delay, and its maximum extension, in ms; None later."""
    assignment_was_refused: bool = False
    """Whether the log has refused the leader's assignment, so that members must join again."""
    _subscriptions: tuple[bytes, ...] = ()
    """The members' metadata at the start of the generation."""
    _topics: frozenset[str] | tuple[()] | None = ()
    """The topics of `_subscriptions`; None if unreadable; an empty tuple if not read yet."""

    def move_to(self, state: State, now_ms: int) -> None:
        """Change the state."""
        self.previous, self.state, self.since_ms = self.state, state, now_ms

    def next_generation(self) -> None:
        """Start the next generation, and choose its protocol."""
        self.generation += 1
        self.roster.unsynced.clear()
        self.protocol = self.roster.vote() if self.roster.members else None
        self._note_subscriptions()

    def subscribes(self, topic: str) -> bool:
        """Whether the generation's members read the topic, according to their metadata.

        Only the metadata of consumers says so. True if it cannot be read.
        """
        if self.roster.protocol_type != CONSUMER_PROTOCOL:
            return False
        topics = self.topics()
        return topics is None or topic in topics

    def topics(self) -> frozenset[str] | None:
        """Return the topics that consumers subscribe to; None if that cannot be read."""
        if isinstance(self._topics, tuple):
            self._topics = topics_of(self._subscriptions)
        return self._topics

    def unread(self) -> tuple[bytes, ...]:
        """Return the subscriptions that must be read before `topics`; empty if that is done."""
        is_read = not isinstance(self._topics, tuple)
        reads_topics = self.roster.protocol_type == CONSUMER_PROTOCOL
        return self._subscriptions if reads_topics and not is_read else ()

    def read(self, subscriptions: tuple[bytes, ...], topics: frozenset[str] | None) -> None:
        """Set what a thread has read, unless a new generation has started in the meantime."""
        if subscriptions is self._subscriptions:
            self._topics = topics

    def settle(self, value: GroupMetadataValue) -> Change:
        """Apply a record; known members keep what the record does not contain."""
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
        """Undo a refused record: no member has received its assignment.

        Otherwise, as in Kafka, memory stays ahead of the log: a group that all members have left
        stays empty, and whatever has started since continues.
        """
        is_assigned = before is State.COMPLETING_REBALANCE and self.state is State.STABLE
        if is_assigned and self.generation == value.generation:
            for member in self.roster.members.values():
                member.assignment = b""
            self.move_to(before, self.since_ms)
            self.assignment_was_refused = True

    def restart_session(self, step: Step, member: Member, timeout_ms: int | None = None) -> None:
        """Restart the member's session, by default with the timeout that it requested."""
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        step.set_timer(self.group_id, ("session", member.member_id), delay_ms)

    def ensure_session(self, step: Step, member: Member) -> None:
        """Start the member's session unless it is running."""
        key = ("session", member.member_id)
        step.ensure_timer(self.group_id, key, member.session_timeout_ms)

    def end_session(self, step: Step, member_id: str) -> None:
        """Stop a session."""
        step.cancel_timer(self.group_id, ("session", member_id))

    def _note_subscriptions(self) -> None:
        name = self.protocol
        members = self.roster.members.values()
        noted = () if name is None else tuple(m.protocols[name] for m in members)
        if noted != self._subscriptions:
            self._subscriptions, self._topics = noted, ()


def _settled(member: Member | None, recorded: MemberMetadata, protocol: str | None) -> Member:
    """Return the member that a record describes."""
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

"""One KIP-848 group with what no record carries."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.coordination.step import Step
from raylog.actors.group.consumer.member import Profile
from raylog.actors.group.consumer.state import GroupState
from raylog.actors.group.consumer.targets import Assigning
from raylog.actors.group.consumer.topics import Matching
from raylog.actors.group.settings import GroupSettings

REGEX_TIMER = ("regex",)


def cancel_timers(step: Step, group_id: str, member_id: str) -> None:
    """Nothing is expected of a member any more."""
    for name in ("session", "rebalance", "join", "sync"):
        step.cancel_timer(group_id, (name, member_id))


@dataclass(frozen=True, slots=True)
class Downgrade:
    """What the records of a downgrade to a classic group do not carry."""

    protocols: dict[str, dict[str, bytes]]
    """All that each member supports, by member id: its record carries the chosen one."""
    rebalance: bool
    """Whether the members have to join again: someone has left."""


@dataclass(slots=True)
class GroupContext:
    """A group as its handlers see it."""

    group_id: str
    settings: GroupSettings
    assigning: Assigning
    state: GroupState = field(default_factory=GroupState)
    """Changed by records alone."""
    metadata_is_stale: bool = True
    """The topics subscribed to may have changed since the hash was computed."""
    regexes_resolved_ms: float | None = None
    """Monotonic time; None: not since this coordinator took over."""
    regexes_are_due: bool = False
    """A timer is set to resolve patterns."""
    regexes_left: list[str] = field(default_factory=list)
    """Those that are still to be looked at in this round, the next one at the end."""
    regex_under_way: Matching | None = None
    """The one that is being looked at."""
    regexes_begun: int = -1
    """The offset of the metadata as the round began."""
    regexes_offset: int = -1
    """That of the last round, of which all are known."""
    rejoining: set[str] = field(default_factory=set)
    """Classic members that have been told to join again."""
    assignment_is_under_way: bool = False
    """An assignor works elsewhere; the group is told when it is done."""
    assignor_error: str | None = None
    """Why the last attempt at a target failed; None if it did not."""
    failed_epoch: int = 0
    """The group epoch of that attempt, and when the next one may be, in monotonic ms."""
    retry_at_ms: float = 0.0

    downgrade: Downgrade | None = None
    """Set in the step whose records made this a classic group, for the shard to take."""

    def restart_session(self, step: Step, member_id: str) -> None:
        """Count a member's session from now."""
        delay_ms = self.session_timeout_ms(step, self.state.profiles[member_id])
        step.set_timer(self.group_id, ("session", member_id), delay_ms)

    def session_timeout_ms(self, step: Step, profile: Profile) -> int:
        """Silence after which a member is out."""
        if profile.classic is not None:
            return profile.classic.session_timeout_ms
        return self.settings.session_timeout_ms_of(step.image, self.group_id)

    def end_timers(self, step: Step, member_id: str) -> None:
        """A member is gone."""
        cancel_timers(step, self.group_id, member_id)
        self.rejoining.discard(member_id)

    def allow_revocation(self, step: Step, member_id: str) -> None:
        """Count the time that a member has to give partitions up, from now."""
        delay_ms = self.state.profiles[member_id].rebalance_timeout_ms
        step.set_timer(self.group_id, ("rebalance", member_id), delay_ms)

    def end_revocation(self, step: Step, member_id: str) -> None:
        """A member has given up what it was asked to."""
        step.cancel_timer(self.group_id, ("rebalance", member_id))

    def await_rejoin(self, step: Step, member_id: str) -> None:
        """A classic member is told to join again: once in its rebalance timeout."""
        if member_id not in self.rejoining:
            self.rejoining.add(member_id)
            delay_ms = self.state.profiles[member_id].rebalance_timeout_ms
            step.set_timer(self.group_id, ("join", member_id), delay_ms)

    def await_sync(self, step: Step, member_id: str) -> None:
        """A classic member has joined, and has its rebalance timeout to ask what it owns."""
        self.rejoining.discard(member_id)
        step.cancel_timer(self.group_id, ("join", member_id))
        delay_ms = self.state.profiles[member_id].rebalance_timeout_ms
        step.set_timer(self.group_id, ("sync", member_id), delay_ms)

    def end_sync(self, step: Step, member_id: str) -> None:
        """A classic member has asked what it owns."""
        step.cancel_timer(self.group_id, ("sync", member_id))

    def resolve_regexes_in(self, step: Step, delay_ms: float) -> None:
        """Resolve the patterns once `delay_ms` have passed, unless that is due anyway."""
        if not self.regexes_are_due:
            self.regexes_are_due = True
            step.set_timer(self.group_id, REGEX_TIMER, delay_ms)

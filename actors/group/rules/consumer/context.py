"""One KIP-848 group, including its unrecorded state."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.coordination.rules.step import Step
from raylog.actors.group.rules.consumer.member import Profile
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.actors.group.rules.consumer.targets import Assigning
from raylog.actors.group.rules.consumer.topics import Matching
from raylog.actors.group.rules.settings import GroupSettings

REGEX_TIMER = ("regex",)


def cancel_timers(step: Step, group_id: str, member_id: str) -> None:
    """Cancel all timers of a member."""
    for name in ("session", "rebalance", "join", "sync"):
        step.cancel_timer(group_id, (name, member_id))


@dataclass(frozen=True, slots=True)
class Downgrade:
    """What the shard needs for a downgrade to a classic group, in addition to its records."""

    protocols: dict[str, dict[str, bytes]]
    """All protocols of each member, by member id; a record has only the chosen one."""
    rebalance: bool
    """Whether the members must join again, because one has left."""


@dataclass(slots=True)
class GroupContext:
    """A group, as its handlers see it."""

    group_id: str
    settings: GroupSettings
    assigning: Assigning
    state: GroupState = field(default_factory=GroupState)
    """Changed only by records."""
    metadata_is_stale: bool = True
    """Whether the subscribed topics may have changed since the hash was computed."""
    regexes_resolved_ms: float | None = None
    """Monotonic time of the last round; None if this coordinator has not run one."""
    regexes_are_due: bool = False
    """Whether a timer is set to resolve patterns."""
    regexes_left: list[str] = field(default_factory=list)
    """Patterns that are still to be resolved in this round; the next one is last."""
    regex_under_way: Matching | None = None
    """The pattern that is being resolved."""
    regexes_begun: int = -1
    """The metadata offset at the start of the round."""
    regexes_offset: int = -1
    """The metadata offset of the last completed round."""
    rejoining: set[str] = field(default_factory=set)
    """Classic members that were told to join again."""
    assignment_is_under_way: bool = False
    """Whether an assignor is running in another process; the group is notified when it is done."""
    assignor_error: str | None = None
    """Why the last attempt at a target failed; None if it did not."""
    failed_epoch: int = 0
    """The group epoch of that attempt; `retry_at_ms` says when to retry, in monotonic ms."""
    retry_at_ms: float = 0.0

    downgrade: Downgrade | None = None
    """For the shard: set in the step whose records made this a classic group."""

    def restart_session(self, step: Step, member_id: str) -> None:
        """Restart a member's session."""
        delay_ms = self.session_timeout_ms(step, self.state.profiles[member_id])
        step.set_timer(self.group_id, ("session", member_id), delay_ms)

    def session_timeout_ms(self, step: Step, profile: Profile) -> int:
        """Return the session timeout of a member."""
        if profile.classic is not None:
            return profile.classic.session_timeout_ms
        return self.settings.session_timeout_ms_of(step.image, self.group_id)

    def end_timers(self, step: Step, member_id: str) -> None:
        """Cancel the timers of a member that is gone."""
        cancel_timers(step, self.group_id, member_id)
        self.rejoining.discard(member_id)

    def allow_revocation(self, step: Step, member_id: str) -> None:
        """Start the timer within which a member must give up partitions."""
        delay_ms = self.state.profiles[member_id].rebalance_timeout_ms
        step.set_timer(self.group_id, ("rebalance", member_id), delay_ms)

    def end_revocation(self, step: Step, member_id: str) -> None:
        """Stop that timer: the member has given them up."""
        step.cancel_timer(self.group_id, ("rebalance", member_id))

    def await_rejoin(self, step: Step, member_id: str) -> None:
        """Tell a classic member to join again, at most once per rebalance timeout."""
        if member_id not in self.rejoining:
            self.rejoining.add(member_id)
            delay_ms = self.state.profiles[member_id].rebalance_timeout_ms
            step.set_timer(self.group_id, ("join", member_id), delay_ms)

    def await_sync(self, step: Step, member_id: str) -> None:
        """Start the timer within which a classic member must sync after its join."""
        self.rejoining.discard(member_id)
        step.cancel_timer(self.group_id, ("join", member_id))
        delay_ms = self.state.profiles[member_id].rebalance_timeout_ms
        step.set_timer(self.group_id, ("sync", member_id), delay_ms)

    def end_sync(self, step: Step, member_id: str) -> None:
        """Stop that timer: the member has requested its assignment."""
        step.cancel_timer(self.group_id, ("sync", member_id))

    def resolve_regexes_in(self, step: Step, delay_ms: float) -> None:
        """Resolve the patterns after `delay_ms`, unless that is already due."""
        if not self.regexes_are_due:
            self.regexes_are_due = True
            step.set_timer(self.group_id, REGEX_TIMER, delay_ms)

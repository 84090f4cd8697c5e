"""Mistakes that replicated logs have made, planted into the real code by name.

The simulation must find each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from raylog.actors.broker.rules.machine import BrokerMachine
from raylog.actors.broker.rules.voter import Ready as VoterReady
from raylog.actors.broker.rules.voter import VoterRules
from raylog.actors.broker.voter import Voter
from raylog.actors.controller.rules import brokers as controller_brokers
from raylog.actors.controller.rules import quorum as quorum_rules
from raylog.actors.controller.rules.changes import PartitionChange
from raylog.actors.controller.rules.partitions import PartitionControl
from raylog.actors.controller.rules.quorum import QuorumRules, Ready
from raylog.actors.metadata.entries import LogEntry
from raylog.actors.metadata.log_copy import Append, Promise
from raylog.actors.metadata.records import NO_LEADER
from raylog.actors.metadata.voting import VoterAppend, VoterState
from raylog.actors.replica import follower_sessions
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules import sessions
from raylog.actors.replica.rules.leading import FollowerState, LeaderProgress, Proposal
from raylog.actors.replica.rules.machine import (
    Effect,
    Follow,
    PartitionMachine,
    ReleaseUpTo,
    StartLeading,
    Truncated,
)
from raylog.actors.replica.writes import Write
from raylog.storage.producers import ProducerStates
from tests.sim.planting import Plant, plants_into, replace

PLANTS: dict[str, Plant] = {}


plant = plants_into(PLANTS)


# ---- the replica -----------------------------------------------------------------------------


@plant
def truncates_to_high_watermark(stack: ExitStack) -> None:
    """Followers truncate to their high watermark, as before KIP-101."""
    carry_out = Partition._carry_out

    def mistaken(partition: Partition, effect: Effect) -> None:
        if isinstance(effect, Follow) and not partition.log.busy:
            partition.log.truncate_to(partition.high_watermark, 0)
            partition.machine.handle(Truncated(partition.log.log_end_offset))
        carry_out(partition, effect)

    replace(stack, Partition, "_carry_out", mistaken)


@plant
def does_not_compare_histories(stack: ExitStack) -> None:
    """The leader serves a follower without looking at the epoch of its last record."""
    fetch_obstacle: Any = sessions.fetch_obstacle

    def mistaken(*asked: Any) -> Any:
        return fetch_obstacle(*asked[:-1], asked[-1]._replace(last_fetched_epoch=-1))

    replace(stack, follower_sessions, "fetch_obstacle", mistaken)


@plant
def high_watermark_off_by_one(stack: ExitStack) -> None:
    """The leader releases one record more than all in-sync replicas have."""
    replicated = LeaderProgress.replicated_up_to

    def mistaken(progress: LeaderProgress, log_end_offset: int) -> int:
        return min(replicated(progress, log_end_offset) + 1, log_end_offset)

    replace(stack, LeaderProgress, "replicated_up_to", mistaken)


@plant
def grows_isr_too_early(stack: ExitStack) -> None:
    """A follower joins the ISR with its first fetch, however far behind it is."""
    propose = LeaderProgress.propose

    def mistaken(
        progress: LeaderProgress, log_end_offset: int, high_watermark: int, now_ms: int
    ) -> Proposal | None:
        progress.epoch_start = -1
        for state in progress._followers.values():
            if state.log_end_offset >= 0:
                state.caught_up_ms = now_ms
        return propose(progress, log_end_offset, 0, now_ms)

    replace(stack, LeaderProgress, "propose", mistaken)


@plant
def lets_laggards_rejoin(stack: ExitStack) -> None:
    """A follower that left for lagging rejoins at once, because it has the high watermark."""
    propose = LeaderProgress.propose

    def mistaken(
        progress: LeaderProgress, log_end_offset: int, high_watermark: int, now_ms: int
    ) -> Proposal | None:
        for one, state in progress._followers.items():
            if one not in progress.isr:
                state.caught_up_ms = max(state.caught_up_ms, now_ms - progress._lag_ms_max)
        return propose(progress, log_end_offset, high_watermark, now_ms)

    replace(stack, LeaderProgress, "propose", mistaken)


@plant
def joining_members_do_not_count(stack: ExitStack) -> None:
    """The high watermark ignores replicas that are about to join the ISR."""

    def mistaken(progress: LeaderProgress) -> None:
        progress._counted = tuple(
            progress._followers.get(one) or FollowerState("")
            for one in progress.isr
            if one != progress._own
        )

    replace(stack, LeaderProgress, "_count", mistaken)


@plant
def leaving_members_do_not_count(stack: ExitStack) -> None:
    """The high watermark ignores replicas that are about to leave, before that is confirmed."""

    def mistaken(progress: LeaderProgress) -> None:
        pending = progress._pending
        members = progress.isr if pending is None else [one for one, _ in pending.isr]
        progress._counted = tuple(
            progress._followers.get(one) or FollowerState("")
            for one in members
            if one != progress._own
        )

    replace(stack, LeaderProgress, "_count", mistaken)


@plant
def forgets_producers_when_it_leads(stack: ExitStack) -> None:
    """A new leader does not know the producers that wrote to the old one."""
    carry_out = Partition._carry_out

    def mistaken(partition: Partition, effect: Effect) -> None:
        if isinstance(effect, StartLeading):
            partition.log.state.producers = ProducerStates()
        carry_out(partition, effect)

    replace(stack, Partition, "_carry_out", mistaken)


@plant
def counts_fetches_of_an_older_opening(stack: ExitStack) -> None:
    """A fetch position from before a follower's restart still counts."""
    fetched = LeaderProgress.fetched
    meet = LeaderProgress._meet_followers

    def mistaken_meet(progress: LeaderProgress, now_ms: int) -> None:
        before = dict(progress._followers)
        meet(progress, now_ms)
        for one, state in before.items():
            if one in progress._followers:
                progress._followers[one] = state
        progress._count()

    def mistaken(progress: LeaderProgress, broker_id: int, incarnation: str, *offsets: int) -> bool:
        state = progress._followers.get(broker_id)
        return fetched(
            progress, broker_id, incarnation if state is None else state.incarnation, *offsets
        )

    replace(stack, LeaderProgress, "_meet_followers", mistaken_meet)
    replace(stack, LeaderProgress, "fetched", mistaken)


@plant
def answers_before_replication(stack: ExitStack) -> None:
    """acks=all is answered when the leader has the records."""

    answer = Partition._answer

    def mistaken(partition: Partition, write: Write, acks: int, *answered: Any) -> None:
        answer(partition, write, abs(acks), *answered)

    replace(stack, Partition, "_answer", mistaken)


@plant
def follower_releases_what_it_lacks(stack: ExitStack) -> None:
    """A follower adopts the leader's high watermark even above its own log end."""

    def mistaken(
        machine: PartitionMachine, log_end_offset: int, leader_high_watermark: int
    ) -> list[Effect]:
        machine.log_end_offset = log_end_offset
        if leader_high_watermark <= machine.high_watermark:
            return []
        machine.high_watermark = leader_high_watermark
        return [ReleaseUpTo(leader_high_watermark)]

    replace(stack, PartitionMachine, "_followed", mistaken)


@plant
def readers_see_all_there_is(stack: ExitStack) -> None:
    """Readers get records that are not replicated yet."""
    read = Partition._read

    def mistaken(partition: Partition, *asked: Any) -> Any:
        machine = partition.machine
        reported, machine.high_watermark = machine.high_watermark, partition.log.log_end_offset
        try:
            return read(partition, *asked)
        finally:
            machine.high_watermark = reported

    replace(stack, Partition, "_read", mistaken)


@plant
def restarts_as_the_same_opening(stack: ExitStack) -> None:
    """A reopened log reports its previous incarnation."""
    replace(stack, BrokerMachine, "_new_incarnation", lambda machine, slot: "always")


# ---- the controller --------------------------------------------------------------------------


@plant
def accepts_late_isr_changes(stack: ExitStack) -> None:
    """AlterPartitionManager accepts changes with any epochs."""
    replace(stack, PartitionControl, "_check_epochs", lambda *_, **__: None)


@plant
def trusts_a_crashed_broker(stack: ExitStack) -> None:
    """A broker whose machine lost power stays in sync when it registers again."""
    replace(stack, controller_brokers, "_kept_everything", lambda *_: True)
    replace(stack, controller_brokers.BrokerControl, "_resumes", lambda *_: True)


@plant
def elects_anybody_alive(stack: ExitStack) -> None:
    """The first live assigned replica leads, in sync or not."""

    def mistaken(change: PartitionChange, candidates: tuple[int, ...]) -> int:
        return next((one for one in change.replicas if change._may_lead(one)), NO_LEADER)

    replace(stack, PartitionChange, "_first", mistaken)


# ---- the metadata quorum ---------------------------------------------------------------------


@plant
def voters_do_not_sync(stack: ExitStack) -> None:
    """A voter answers before its disk has what it promises."""

    async def mistaken(voter: Voter) -> None:
        return None

    replace(stack, Voter, "_sync", mistaken)


@plant
def writes_without_a_majority(stack: ExitStack) -> None:
    """A record is committed once any voter has it."""
    replace(stack, quorum_rules, "is_majority", lambda votes, _: votes > 0)


@plant
def counts_copies_of_older_epochs(stack: ExitStack) -> None:
    """A new controller commits entries of older epochs before one of its own has a majority."""
    append = QuorumRules.append

    def mistaken(rules: QuorumRules, entries: Sequence[LogEntry], now_ms: float) -> Ready:
        if rules.committed:
            return append(rules, entries, now_ms)
        rules.log.apply(Append(tuple(entries)))
        rules.committed = rules.log.next_offset
        return Ready()

    replace(stack, QuorumRules, "append", mistaken)


@plant
def adopts_the_shortest_log(stack: ExitStack) -> None:
    """A new controller continues from a voter that lacks records."""

    def mistaken(state: VoterState) -> tuple[int, int]:
        return -state.last_epoch, -state.next_offset

    replace(stack, VoterState, "recency", property(mistaken))


@plant
def voters_take_any_epoch(stack: ExitStack) -> None:
    """A deposed controller may still write."""

    def mistaken(rules: VoterRules, epoch: int, controller: str, *_: object) -> tuple[Promise, ...]:
        is_later = epoch > rules.copy.promised_epoch
        return (Promise(epoch, controller),) if is_later else ()

    replace(stack, VoterRules, "require_current", lambda *_: None)
    replace(stack, VoterRules, "_follow", mistaken)


@plant
def voters_do_not_look_back(stack: ExitStack) -> None:
    """A voter accepts entries without checking what precedes them in its log."""
    append = VoterRules.append

    def mistaken(rules: VoterRules, asked: VoterAppend, now_ms: float) -> VoterReady:
        epoch = rules.copy.epoch_before(asked.previous_offset)
        if epoch is not None:
            asked = asked._replace(previous_epoch=epoch)
        return append(rules, asked, now_ms)

    replace(stack, VoterRules, "append", mistaken)

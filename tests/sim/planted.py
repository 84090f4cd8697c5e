"""Mistakes that replicated logs have made, each planted into the real code by name.

The simulation must find each.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from raylog.actors.broker.machine import BrokerMachine
from raylog.actors.broker.voter import Voter
from raylog.actors.controller import brokers as controller_brokers
from raylog.actors.controller.changes import PartitionChange
from raylog.actors.controller.partitions import PartitionControl
from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.metadata.log import LogEntry
from raylog.actors.metadata.records import NO_LEADER
from raylog.actors.metadata.voting import VoterAppend, VoterAppended, VoterState
from raylog.actors.replica import serving
from raylog.actors.replica.leading import FollowerState, LeaderProgress, Proposal
from raylog.actors.replica.machine import (
    Effect,
    Follow,
    PartitionMachine,
    ReleaseUpTo,
    StartLeading,
    Truncated,
)
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.produce import Write
from raylog.storage.producers import ProducerStates
from tests.sim.planting import Plant, replace

PLANTS: dict[str, Plant] = {}


def plant(function: Plant) -> Plant:
    """Name a mistake by its function."""
    PLANTS[function.__name__] = function
    return function


# ---- the replica -----------------------------------------------------------------------------


@plant
def truncates_to_high_watermark(stack: ExitStack) -> None:
    """Followers cut at their high watermark, as before KIP-101."""
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
    standing = serving._standing

    def mistaken(partition: Partition, interest: Any) -> Any:
        return standing(partition, interest._replace(last_fetched_epoch=-1))

    replace(stack, serving, "_standing", mistaken)


@plant
def high_watermark_off_by_one(stack: ExitStack) -> None:
    """The leader releases one record more than all in sync hold."""
    replicated = LeaderProgress.replicated_up_to

    def mistaken(progress: LeaderProgress, log_end_offset: int) -> int:
        return min(replicated(progress, log_end_offset) + 1, log_end_offset)

    replace(stack, LeaderProgress, "replicated_up_to", mistaken)


@plant
def grows_isr_too_early(stack: ExitStack) -> None:
    """A follower joins with its first fetch, however far behind it is."""
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
    """Who left for lagging joins again at once, for it still holds the high watermark."""
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
    """The high watermark passes those who are to join: the committed members alone hold it."""

    def mistaken(progress: LeaderProgress) -> None:
        progress._counted = tuple(
            progress._followers.get(one) or FollowerState("")
            for one in progress.isr
            if one != progress._own
        )

    replace(stack, LeaderProgress, "_count", mistaken)


@plant
def leaving_members_do_not_count(stack: ExitStack) -> None:
    """The high watermark passes those who are to leave before that is confirmed."""

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
    """A new leader knows nothing of the producers that wrote to the old one."""
    carry_out = Partition._carry_out

    def mistaken(partition: Partition, effect: Effect) -> None:
        if isinstance(effect, StartLeading):
            partition.log.producers = ProducerStates()
        carry_out(partition, effect)

    replace(stack, Partition, "_carry_out", mistaken)


@plant
def counts_fetches_of_an_older_opening(stack: ExitStack) -> None:
    """What a follower held before it restarted counts for what it holds now."""
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
    """A follower takes the leader's high watermark over, even above its own log end."""

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
        told, machine.high_watermark = machine.high_watermark, partition.log.log_end_offset
        try:
            return read(partition, *asked)
        finally:
            machine.high_watermark = told

    replace(stack, Partition, "_read", mistaken)


@plant
def restarts_as_the_same_opening(stack: ExitStack) -> None:
    """A log that is opened anew says it is the opening that was there before."""
    replace(stack, BrokerMachine, "_new_incarnation", lambda machine, slot: "always")


# ---- the controller --------------------------------------------------------------------------


@plant
def accepts_late_isr_changes(stack: ExitStack) -> None:
    """AlterPartition counts whatever epochs it was asked under."""
    replace(stack, PartitionControl, "_check_epochs", lambda *_, **__: None)


@plant
def trusts_a_crashed_broker(stack: ExitStack) -> None:
    """A broker whose machine lost power stays in sync when it registers again."""
    replace(stack, controller_brokers, "_kept_everything", lambda *_: True)
    replace(stack, controller_brokers.BrokerControl, "_resumes", lambda *_: True)


@plant
def elects_anybody_alive(stack: ExitStack) -> None:
    """The first assigned replica that lives leads, in sync or not."""

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
    """A record counts once any voter has it."""
    replace(stack, VoterQuorum, "_is_majority", staticmethod(any))


@plant
def counts_copies_of_older_epochs(stack: ExitStack) -> None:
    """What a new controller found counts before an entry of its own epoch is with a majority."""
    append = VoterQuorum.append
    began: set[tuple[int, int]] = set()

    async def mistaken(quorum: VoterQuorum, entries: list[LogEntry]) -> None:
        term = (id(quorum), quorum.epoch)
        if term in began:
            await append(quorum, entries)
            return
        began.add(term)
        quorum._log.entries.extend(entries)

    replace(stack, VoterQuorum, "append", mistaken)


@plant
def adopts_the_shortest_log(stack: ExitStack) -> None:
    """A controller that takes over goes on from a voter that lacks records."""

    def mistaken(state: VoterState) -> tuple[int, int]:
        return -state.last_epoch, -state.next_offset

    replace(stack, VoterState, "recency", property(mistaken))


@plant
def voters_take_any_epoch(stack: ExitStack) -> None:
    """A deposed controller may still write."""

    async def mistaken(voter: Voter, epoch: int, controller: str) -> None:
        if epoch > voter.promised_epoch:
            await voter._promise(epoch, controller)

    replace(stack, Voter, "_require_current", lambda *_: None)
    replace(stack, Voter, "_follow", mistaken)


@plant
def voters_do_not_look_back(stack: ExitStack) -> None:
    """A voter takes entries whatever its log holds before them."""
    append = Voter.append

    async def mistaken(voter: Voter, asked: VoterAppend) -> VoterAppended:
        epoch = voter._log.epoch_before(asked.previous_offset)
        return await append(voter, asked if epoch is None else asked._replace(previous_epoch=epoch))

    replace(stack, Voter, "append", mistaken)

"""The controller's side of the metadata log: epochs and appends that a majority of voters holds.

Raft's rules, with the controller as a leader that is no voter itself (design: Ray places the
controller, a quorum fences it):
- An epoch is won by a majority's promise to refuse lower ones. The longest log of that majority
  (last epoch, then length) is adopted: it holds everything that ever counted.
- An entry counts once a majority has synced it, and nothing older than the new epoch's first entry
  counts before that one does.
- Between several voters the controller serves only while a majority of them has heard it within
  the lease (`metadata.voting.lease_ms`): for as long these let no other win an epoch. Heartbeats of
  the voters' brokers tell; only when they do not come, an append without entries asks.
- A voter whose log differs is cut back to where it agrees and brought level; one that lags behind
  the entries kept here gets the snapshot first.
- The voter set is what the log names last and counts from the moment it is appended: majorities are
  of the set in force, at a take-over of that which the adopted log names. Sets that follow one
  another differ by one voter (`controller.voters` sees to it), so that their majorities meet.
- Who is to join is brought level first, and counts for nothing before a set has it.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - the controller's shell: voters are asked side by side
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from raylog.actors.metadata.followed import WAYS_OUT, DirectoryHistory, MetadataLost
from raylog.actors.metadata.log import LogEntry, LogSnapshot
from raylog.actors.metadata.records import Voters, voters_in
from raylog.actors.metadata.voting import (
    JoinVoters,
    NewEpoch,
    VoterAppend,
    VoterAppended,
    VoterLog,
    VoterState,
)
from raylog.actors.names import broker_name
from raylog.actors.runtime.base import ActorGone, BackgroundTask, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import FencedLeaderEpoch, KafkaError, NotController

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")
_LOST = (PeerLost, PeerTimeout, ActorGone, KafkaError)
CALL_TIMEOUT_MS = 5_000
INSTALL_TIMEOUT_MS = 30_000
"""For a voter to write a snapshot: its disk may be slow, and it takes entries meanwhile."""
STATE_TIMEOUT_MS = 1_500
"""For a voter to say what it has. It waits for nothing to say it."""
MOMENT_MS = 250
"""For one that hangs while a majority has said so."""


class QuorumLost(Exception):
    """No majority of voters answers, or one of them knows a later controller."""


class RivalLeads(QuorumLost):
    """A majority has heard another controller within the lease."""


@dataclass(slots=True)
class _Voter:
    """A voter as the controller follows it."""

    broker_id: int
    directory_id: str
    next_offset: int
    """Where to send from; everything below is synced there once an append was answered."""
    synced_offset: int = -1
    last_contact_ms: int = -1
    caught_up_ms: int = -1
    """When it held all there was, by the wall clock; -1 never."""
    supported_ms: float = -math.inf
    """Until when, and for the lease after it, it lets no rival win: on the clock of sessions."""
    sender: BackgroundTask | None = None
    failed: bool = False
    """Whether its last sender gave up; the next append tries again."""

    @property
    def key(self) -> tuple[int, str]:
        """How voter sets name it."""
        return self.broker_id, self.directory_id


@dataclass(slots=True)
class _Adopted:
    """The log that this controller goes on with."""

    snapshot: LogSnapshot = field(default_factory=lambda: LogSnapshot(0, 0, ()))
    entries: list[LogEntry] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        return self.entries[-1].next_offset if self.entries else self.snapshot.offset

    def epoch_before(self, offset: int) -> int:
        """Epoch of the entry that ends at `offset`."""
        for entry in reversed(self.entries):
            if entry.next_offset == offset:
                return entry.epoch
        assert offset == self.snapshot.offset, "voters agree on where entries end"
        return self.snapshot.epoch

    def boundary(self, offset: int) -> int:
        """The end of the last entry that ends at or below `offset`, itself below the snapshot."""
        for entry in reversed(self.entries):
            if entry.next_offset <= offset:
                return entry.next_offset
        return min(offset, self.snapshot.offset)

    def since(self, offset: int) -> list[LogEntry]:
        """The entries from `offset` on."""
        at = len(self.entries)
        while at and self.entries[at - 1].offset >= offset:
            at -= 1
        return self.entries[at:]


class VoterQuorum:
    """The majority of the voters, asked through the brokers that host them."""

    def __init__(
        self,
        runtime: Runtime,
        cluster_id: str,
        broker_ids: Iterable[int],
        name: str = "",
        *,
        moment_ms: int = MOMENT_MS,
        above_epoch: int = 0,
    ) -> None:
        self._runtime = runtime
        self._above_epoch = above_epoch
        """A controller epoch that some broker knows: lower ones are over."""
        self._moment_s = moment_ms / 1000
        self._cluster_id = cluster_id
        self._broker_ids = tuple(broker_ids)
        self._name = name
        self._voters: list[_Voter] = []
        self._joining: list[_Voter] = []
        """Who is brought level in order to vote."""
        self._log = _Adopted()
        self._progressed = asyncio.Event()
        self._fenced = False
        self._refused_by_lease = 0
        self.epoch = 0
        self.silent_ms = 0.0
        """For how long nobody of the majority that promised the epoch had heard a controller."""

    @property
    def voters(self) -> Voters:
        """The voter set in force."""
        return tuple(one.key for one in self._voters)

    def heard_since(self, at_ms: float) -> Voters:
        """The voters that are known to have followed this controller at that time or later."""
        return tuple(one.key for one in self._voters if one.supported_ms >= at_ms)

    @property
    def adopted(self) -> tuple[LogSnapshot, list[LogEntry]]:
        """The log so far: a snapshot and what follows it."""
        return self._log.snapshot, self._log.entries

    @property
    def next_offset(self) -> int:
        """Offset after the last entry."""
        return self._log.next_offset

    def progress(self) -> list[tuple[int, str, int, int, int]]:
        """(broker id, directory id, log end offset, last contact, last caught up) of each voter.

        Times are in ms by the wall clock, -1 unknown.
        """
        return [
            (
                one.broker_id,
                one.directory_id,
                one.next_offset,
                one.last_contact_ms,
                one.caught_up_ms,
            )
            for one in self._voters
        ]

    # ---- the lease -----------------------------------------------------------------------

    @property
    def supported_ms(self) -> float:
        """When a majority was last known to follow this controller; always now for one voter."""
        if len(self._voters) == 1:
            return self._runtime.monotonic_ms()
        times = sorted((one.supported_ms for one in self._voters), reverse=True)
        return times[len(times) // 2]

    def supported(self, broker_id: int, directory_id: str, at_ms: float) -> None:
        """A voter has heard this controller at that time or later, on this controller's clock."""
        for voter in self._voters:
            if voter.key == (broker_id, directory_id):
                self._heard(voter, at_ms)

    def _heard(self, voter: _Voter, at_ms: float) -> None:
        voter.supported_ms = max(voter.supported_ms, at_ms)
        voter.last_contact_ms = self._runtime.now_ms()
        if voter.synced_offset == self._log.next_offset:
            voter.caught_up_ms = voter.last_contact_ms

    def probe(self) -> None:
        """Ask the voters whether they still follow."""
        for voter in self._voters:
            self._start_sending(voter, at_least_once=True)

    @property
    def is_deposed(self) -> bool:
        """Whether a voter has refused this controller for a later one."""
        return self._fenced

    # ---- taking over ---------------------------------------------------------------------

    async def take_over(self) -> None:
        """Win an epoch and adopt the longest log; raises QuorumLost, MetadataLost.

        A cluster is founded only where no broker's directory has ever known one. Metadata is lost
        where no voter has any, and where those whose directories are new leave no majority.
        """
        states = await self._states()
        known = max(states, key=lambda state: state.recency, default=None)
        if known is None or not known.voters:
            raise QuorumLost("no voter answers")
        present = [one for one in states if one.key in known.voters]
        founds = len(present) == len(known.voters) and all(one.next_offset == 0 for one in present)
        if founds:
            await self._require_new(one.broker_id for one in states)
        blank = [one.broker_id for one in present if one.is_blank and not founds]
        present = [one for one in present if one.broker_id not in blank]
        if known.next_offset and 2 * len(blank) >= len(known.voters):
            raise MetadataLost(
                f"the metadata is lost. {WAYS_OUT}. Of the {len(known.voters)} voters of cluster "
                f"{self._cluster_id} too few have any: the directory of broker "
                f"{', '.join(map(str, sorted(blank)))} is new"
            )
        self._require_majority(len(present), len(known.voters), blank=blank)
        # The latest log may be that of a voter which it says votes no more: only it may know so.
        asked_of = {one.key: one.broker_id for one in (*present, known)}
        # Higher than any: a copy that votes no more, or not yet, may know a later epoch too.
        epoch = max(self._above_epoch, *(state.promised_epoch for state in states)) + 1
        asked = NewEpoch(epoch, self._name, founds)
        asked_ms = self._runtime.monotonic_ms()
        self._refused_by_lease = 0
        promised: list[VoterState] = await self._gathered(
            asked_of.values(), lambda one: self._call(one, "voter_new_epoch", asked)
        )
        promised = [one for one in promised if one.key in asked_of]
        longest = max(promised, key=lambda state: state.recency, default=known)
        counted = sum(one.key in longest.voters for one in promised)
        self._require_majority(counted, len(longest.voters), all_of_them=founds)
        self.epoch = epoch
        self.silent_ms = min(one.silent_ms for one in promised if one.key in longest.voters)
        self._log = await self._fetched(longest)
        self._voters = [_Voter(*one, self._log.next_offset) for one in longest.voters]
        for state in promised:
            self.supported(*state.key, asked_ms)

    async def _require_new(self, voters: Iterable[int]) -> None:
        """Raise unless every broker that is known of says that its directory is new, too."""
        asked = sorted({*self._broker_ids, *voters})
        histories: list[DirectoryHistory] = await self._gathered(
            asked, lambda one: self._call(one, "history", timeout_ms=STATE_TIMEOUT_MS)
        )
        known = [str(one) for one in sorted(histories) if not one.is_blank]
        if known:
            raise MetadataLost(
                f"the metadata is lost. {WAYS_OUT}. "
                f"No voter of cluster {self._cluster_id} has any, but brokers have data of it: "
                f"{'; '.join(known)}"
            )
        silent = sorted({*asked} - {one.broker_id for one in histories})
        if silent:
            raise QuorumLost(
                f"no voter has any metadata, and broker {', '.join(map(str, silent))} has not said "
                "yet that it knows none either"
            )

    async def _states(self) -> list[VoterState]:
        """The states of all copies that are known of: what they say may name more.

        Once a majority has told, who hangs is waited for a moment only: his machine may be lost.
        """
        states: list[VoterState] = []
        asked: set[int] = set()
        while ahead := {*self._broker_ids, *_broker_ids(states)} - asked:
            asked |= ahead
            states += await self._gathered(
                sorted(ahead),
                lambda one: self._call(one, "voter_state", timeout_ms=STATE_TIMEOUT_MS),
                partial(_suffice, states),
            )
        return states

    async def _fetched(self, voter: VoterState) -> _Adopted:
        """A voter's whole log."""
        adopted = _Adopted()
        while True:
            got = await self._fetch(voter.broker_id, adopted.next_offset)
            if got.snapshot is not None:
                adopted = _Adopted(got.snapshot)
            adopted.entries.extend(got.entries)
            if adopted.next_offset >= voter.next_offset:
                return adopted
            if not got.entries and got.snapshot is None:
                raise QuorumLost(f"voter {voter.broker_id} does not give its log")

    async def _fetch(self, broker_id: int, offset: int) -> VoterLog:
        try:
            fetched: VoterLog = await self._call(broker_id, "voter_fetch", self.epoch, offset)
        except _LOST as lost:
            raise QuorumLost(f"voter {broker_id} does not give its log: {lost}") from lost
        return fetched

    # ---- appending -----------------------------------------------------------------------

    async def append(self, entries: list[LogEntry]) -> None:
        """Add entries and return once a majority has synced them; raises QuorumLost.

        One append at a time. Voters outside the majority are brought level in the background, and
        who votes no more by these entries is told so.
        """
        before = self._voters
        for entry in entries:
            voters = voters_in(entry.records)
            if voters is not None:
                self._take(voters)
        self._log.entries.extend(entries)
        target = self._log.next_offset
        for voter in {one.key: one for one in (*before, *self._voters)}.values():
            self._start_sending(voter)
        while not self._is_majority(voter.synced_offset >= target for voter in self._voters):
            if self._fenced or not self._is_majority(not voter.failed for voter in self._voters):
                raise QuorumLost("no majority of the voters takes the controller's records")
            self._progressed.clear()
            await self._progressed.wait()

    def _take(self, voters: Voters) -> None:
        """Another voter set is in force from now on."""
        known = {one.key: one for one in (*self._voters, *self._joining)}
        self._voters = [known.get(one) or _Voter(*one, self._log.next_offset) for one in voters]
        self._joining = []

    async def bring_level(self, broker_id: int, directory_id: str) -> bool:
        """Have a copy that does not vote follow this controller until it is level with the log.

        False if it knows a later controller, which is to be outbid: then nobody is served any
        more. Raises QuorumLost if it cannot be brought level.
        """
        joining = _Voter(broker_id, directory_id, self._log.next_offset)
        asked = JoinVoters(self.epoch, self._name, directory_id)
        try:
            await self._call(broker_id, "voter_join", asked)
        except FencedLeaderEpoch:
            return False
        except _LOST as lost:
            raise QuorumLost(f"broker {broker_id} does not join: {lost}") from lost
        self._joining = [joining]
        while joining.synced_offset < self._log.next_offset:
            if joining.failed:
                raise QuorumLost(f"broker {broker_id} does not take the metadata log")
            self._start_sending(joining)
            self._progressed.clear()
            await self._progressed.wait()
        return True

    def _start_sending(self, voter: _Voter, *, at_least_once: bool = False) -> None:
        if voter.sender is None:
            voter.failed = False
            sending = self._send(voter, at_least_once=at_least_once)
            voter.sender = self._runtime.start(sending, f"voter {voter.broker_id}")

    async def _send(self, voter: _Voter, *, at_least_once: bool) -> None:
        """Bring a voter level with the log, however long it grows meanwhile."""
        try:
            while at_least_once or voter.synced_offset < self._log.next_offset:
                at_least_once = False
                await self._send_once(voter)
                self._progressed.set()
        except _LOST as lost:
            log.info("voter %d does not take the metadata log: %s", voter.broker_id, lost)
            voter.failed = True
            counts = any(one is voter for one in self._voters)
            self._fenced = self._fenced or (counts and isinstance(lost, FencedLeaderEpoch))
        finally:
            voter.sender = None
            self._progressed.set()

    async def _send_once(self, voter: _Voter) -> None:
        """Send what a voter lacks; cut back to where it agrees if it differs."""
        snapshot = self._log.snapshot
        if voter.next_offset < snapshot.offset:
            await self._install(voter, snapshot)
            voter.next_offset = snapshot.offset
            return  # there may be a later snapshot meanwhile
        asked = VoterAppend(
            epoch=self.epoch,
            previous_epoch=self._log.epoch_before(voter.next_offset),
            previous_offset=voter.next_offset,
            entries=self._log.since(voter.next_offset),
            controller=self._name,
            directory_id=voter.directory_id,
        )
        asked_ms = self._runtime.monotonic_ms()
        answer: VoterAppended = await self._call(voter.broker_id, "voter_append", asked)
        if answer.matched:
            voter.next_offset = voter.synced_offset = answer.next_offset
        self._heard(voter, asked_ms)
        if not answer.matched:
            voter.next_offset = self._log.boundary(answer.next_offset)

    async def install_snapshot(self, snapshot: LogSnapshot) -> None:
        """Replace everything below the snapshot by it, here and on all voters that answer.

        One after the other: not all disks are busy with it at once.
        """
        self._log = _Adopted(snapshot, self._log.since(snapshot.offset))
        for voter in tuple(self._voters):
            try:
                await self._install(voter, snapshot)
            except _LOST as lost:
                log.info("voter %d does not take the snapshot: %s", voter.broker_id, lost)

    async def _install(self, voter: _Voter, snapshot: LogSnapshot) -> None:
        asked = (self.epoch, snapshot, self._name, voter.directory_id)
        await self._call(voter.broker_id, "voter_install", *asked, timeout_ms=INSTALL_TIMEOUT_MS)

    # ---- asking --------------------------------------------------------------------------

    async def _call(
        self, broker_id: int, method: str, *args: object, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> Any:
        name = broker_name(self._cluster_id, broker_id)
        return await self._runtime.call(name, method, *args, timeout_ms=timeout_ms)

    async def _gathered(
        self,
        peers: Iterable[T],
        ask: Callable[[T], Awaitable[R]],
        suffice: Callable[[list[R]], bool] = lambda _: False,
    ) -> list[R]:
        """The answers of those that answer; while what there is suffices, within a moment."""
        asked = [asyncio.ensure_future(ask(peer)) for peer in peers]
        waiting = set(asked)
        answers: list[R] = []
        try:
            while waiting:
                moment_s = self._moment_s if suffice(answers) else None
                told, waiting = await asyncio.wait(
                    waiting, timeout=moment_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not told:
                    log.info("%d voters hang", len(waiting))
                    break
                answers += self._answers([one for one in asked if one in told])
        finally:
            for one in asked:
                one.cancel()
        return answers

    def _answers(self, outcomes: list[asyncio.Future[R]]) -> list[R]:
        """What was answered; who did not is passed over."""
        answers: list[R] = []
        for outcome in outcomes:
            try:
                answers.append(outcome.result())
            except _LOST as lost:
                self._refused_by_lease += isinstance(lost, NotController)
                log.info("a voter does not take part: %s", lost)
        return answers

    @staticmethod
    def _is_majority(votes: Iterable[bool]) -> bool:
        cast = list(votes)
        return sum(cast) * 2 > len(cast)

    def _require_majority(
        self, answered: int, voters: int, *, all_of_them: bool = False, blank: Sequence[int] = ()
    ) -> None:
        if answered * 2 > voters and (answered == voters or not all_of_them):
            return
        if self._refused_by_lease * 2 > voters:
            raise RivalLeads("the voters follow another controller")
        lost = f"; the directory of broker {', '.join(map(str, blank))} is new" if blank else ""
        raise QuorumLost(f"{answered} of {voters} voters answer: no majority{lost}")


def _suffice(known: list[VoterState], told: list[VoterState]) -> bool:
    """Whether a majority of the voters, as the latest of these copies names them, is among them."""
    states = [*known, *told]
    latest = max(states, key=lambda state: state.recency, default=None)
    if latest is None:
        return False
    votes = [one for one in states if one.key in latest.voters and not one.is_blank]
    return 2 * len(votes) > len(latest.voters)


def _broker_ids(states: Iterable[VoterState]) -> set[int]:
    """The brokers that copies take for voters."""
    return {broker_id for state in states for broker_id, _ in state.voters}

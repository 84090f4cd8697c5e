"""The quorum: wins an epoch for a controller, and decides when its entries are committed.

The rules are Raft's, but the controller is a leader that is not a voter: Ray decides where it runs,
and the quorum fences older ones.
- An epoch is won when a majority promises to refuse lower ones. The controller adopts the longest
  log of that majority (last epoch, then length), which has everything that was ever committed.
- An entry is committed when a majority has synced it, but nothing older than the first entry of the
  new epoch is committed before that entry.
- With several voters the controller serves only while a majority has heard it within the lease
  (`metadata.voting.lease_ms`), because for that time they let no other controller win an epoch.
  Heartbeats of the voters' brokers prove it. Without them it sends an append without entries.
- A voter whose log differs is truncated to where it agrees and then catches up. One that lags
  behind the entries kept here gets the snapshot first.
- The voter set is the last one in the log and is in force as soon as it is appended. Majorities are
  of the set in force, at a takeover of the set in the adopted log. Consecutive sets differ by one
  voter (`rules.voters` sees to that), so their majorities overlap.
- A copy that is to join catches up first, and counts for nothing before a set includes it.

| role     | requests                                       | ends when                            |
|----------|------------------------------------------------|--------------------------------------|
| LOOKING  | every broker that may hold a copy, for its     | all have answered or failed; or a    |
|          | state; states may name more brokers            | majority has, and a moment is over   |
| FOUNDING | if all voters are blank: every broker, for its | all have answered or failed          |
|          | directory's history                            |                                      |
| ELECTING | the voters, for the promise of a new epoch     | all have answered or failed          |
| FETCHING | the voter with the longest log, for its log    | it is complete                       |
| LEADING  | the voters, to append what was decided         | never                                |
| OVER     | none: `failure` has the reason                 | never                                |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.followed import WAYS_OUT, DirectoryHistory, MetadataLost
from raylog.actors.metadata.log_copy import Append, LogCopy
from raylog.actors.metadata.records import Voters
from raylog.actors.metadata.voting import (
    JoinVoters,
    NewEpoch,
    VoterAppend,
    VoterAppended,
    VoterLog,
    VoterState,
)
from raylog.wire.errors import FencedLeaderEpoch, NotController


class QuorumLost(Exception):
    """No majority of the voters answers, or one of them knows a later controller."""


class RivalLeads(QuorumLost):
    """A majority has heard from another controller within the lease."""


class Role(Enum):
    """The stage of a controller's attempt to lead."""

    LOOKING = auto()
    FOUNDING = auto()
    ELECTING = auto()
    FETCHING = auto()
    LEADING = auto()
    OVER = auto()


class AskState(NamedTuple):
    """Requests a VoterState."""


class AskHistory(NamedTuple):
    """Requests a DirectoryHistory."""


class AskLog(NamedTuple):
    """Requests a VoterLog."""

    epoch: int
    offset: int


class InstallSnapshot(NamedTuple):
    """Replaces the entries below a snapshot's offset by the snapshot."""

    epoch: int
    snapshot: LogSnapshot
    controller: str
    directory_id: str


Request = AskState | AskHistory | NewEpoch | AskLog | JoinVoters | VoterAppend | InstallSnapshot


class Ask(NamedTuple):
    """A request to a broker, followed by at most one call of `answered` or `failed`."""

    broker_id: int
    request: Request
    number: int
    """The number of the round, or of the request itself. Responses with another number are
    ignored."""
    asked_ms: float


class Ready(NamedTuple):
    """The results of an event: send all `asks`, in any order.

    With `moment`, the responses so far suffice: call `moment_over` after a short time, unless
    another event comes first.
    """

    asks: tuple[Ask, ...] = ()
    moment: bool = False


@dataclass(slots=True)
class Follower:
    """The controller's view of one copy."""

    broker_id: int
    directory_id: str
    next_offset: int
    """The offset from which to send. Once an append was answered, everything below it is synced
    there."""
    synced_offset: int = -1
    contact_ms: float = -math.inf
    """When the voter last heard from this controller, at the least; for the lease after that, it
    lets no rival win. By the clock of sessions."""
    level_ms: float = -math.inf
    """The time at which it last held the whole log."""
    busy: int = 0
    """Number of the request in progress; 0 if there is none."""
    has_joined: bool = False
    """Whether a copy that is not a voter yet has confirmed that it follows."""
    failure: Exception | None = None
    """Why the last request failed; the next append or probe retries."""

    @property
    def key(self) -> tuple[int, str]:
        """The copy's key in voter sets."""
        return self.broker_id, self.directory_id


class QuorumRules:
    """One attempt to lead. Times are ms of the clock of sessions."""

    def __init__(
        self, cluster_id: str, broker_ids: Iterable[int], name: str = "", above_epoch: int = 0
    ) -> None:
        self._cluster_id = cluster_id
        self._broker_ids = frozenset(broker_ids)
        """The brokers to ask first for voters."""
        self._name = name
        self._above_epoch = above_epoch
        """A controller epoch that some broker knows; the new epoch must exceed it."""
        self.role = Role.LOOKING
        self.failure: Exception | None = None
        """QuorumLost or MetadataLost: the reason for the role OVER."""
        self.epoch = 0
        self.silent_ms = 0.0
        """How long no voter in the majority that promised the epoch had heard from a controller."""
        self.log = LogCopy()
        """The adopted log and everything appended since."""
        self.committed = 0
        """The committed end of the log (exclusive)."""
        self.is_deposed = False
        """Whether a voter has refused this controller in favour of a later one."""
        self._number = 0
        """Number of the last round or request."""
        self._waiting: set[int] = set()
        """Brokers that have not answered in this round."""
        self._asked: set[int] = set()
        self._states: dict[int, VoterState] = {}
        self._histories: list[DirectoryHistory] = []
        self._promised: list[VoterState] = []
        self._refused_by_lease = 0
        self._founds = False
        self._electors: dict[tuple[int, str], int] = {}
        """Copies that were asked for a promise, with their brokers."""
        self._elect_ms = -math.inf
        """The time at which they were asked."""
        self._source: VoterState | None = None
        """The voter whose log is being adopted."""
        self._adopted_end = 0
        self._voters: Voters = ()
        self._joining: Follower | None = None
        self._followers: dict[tuple[int, str], Follower] = {}
        """The voters, the copy that is joining, and removed voters until they have been told."""

    # ---- winning an epoch ----------------------------------------------------------------

    def begin(self, now_ms: float) -> Ready:
        """Start to look for the voters."""
        return self._look(self._broker_ids, now_ms)

    def _look(self, ahead: Iterable[int], now_ms: float) -> Ready:
        self._asked.update(ahead)
        return self._ask_all(ahead, AskState(), now_ms)

    def _ask_all(self, broker_ids: Iterable[int], request: Request, now_ms: float) -> Ready:
        """Start a new round."""
        self._number += 1
        self._waiting = set(broker_ids)
        if not self._waiting:
            return self._round_over(now_ms)
        return Ready(
            tuple(Ask(one, request, self._number, now_ms) for one in sorted(self._waiting))
        )

    def answered(self, ask: Ask, answer: Any, now_ms: float) -> Ready:
        """Handle the response to a request."""
        if isinstance(ask.request, VoterAppend | InstallSnapshot | JoinVoters):
            return self._follower_answered(ask, answer, now_ms)
        if ask.number != self._number:
            return Ready()
        match answer:
            case VoterLog():
                return self._adopt(answer, now_ms)
            case DirectoryHistory():
                self._histories.append(answer)
            case VoterState() if self.role is Role.LOOKING:
                self._states[ask.broker_id] = answer
            case VoterState():
                self._promised.append(answer)
        return self._answered(ask, now_ms)

    def failed(self, ask: Ask, why: Exception, now_ms: float) -> Ready:
        """Handle a request that was refused, or that may or may not have taken effect."""
        if isinstance(ask.request, VoterAppend | InstallSnapshot | JoinVoters):
            return self._follower_failed(ask, why)
        if ask.number != self._number:
            return Ready()
        if isinstance(ask.request, AskLog):
            return self._give_up(QuorumLost(f"voter {ask.broker_id} does not give its log: {why}"))
        if isinstance(ask.request, NewEpoch):
            self._refused_by_lease += isinstance(why, NotController)
        return self._answered(ask, now_ms)

    def moment_over(self, now_ms: float) -> Ready:
        """Continue without the others if a majority has answered and the wait for more is over."""
        return self._round_over(now_ms) if self._suffices() else Ready()

    @property
    def waiting(self) -> int:
        """The number of voters that have not answered in this round."""
        return len(self._waiting)

    def _answered(self, ask: Ask, now_ms: float) -> Ready:
        self._waiting.discard(ask.broker_id)
        if not self._waiting:
            return self._round_over(now_ms)
        return Ready(moment=self._suffices())

    def _suffices(self) -> bool:
        """Whether a majority of the voters that the latest copy names has reported its state."""
        states = self._states.values()
        latest = max(states, key=lambda state: state.recency, default=None)
        if self.role is not Role.LOOKING or latest is None:
            return False
        votes = [one for one in states if one.key in latest.voters and not one.is_blank]
        return is_majority(len(votes), len(latest.voters))

    def _round_over(self, now_ms: float) -> Ready:
        """Continue with the responses of the round."""
        try:
            match self.role:
                case Role.LOOKING:
                    named = {one for state in self._states.values() for one, _ in state.voters}
                    ahead = {*self._broker_ids, *named} - self._asked
                    return self._look(ahead, now_ms) if ahead else self._looked(now_ms)
                case Role.FOUNDING:
                    self._require_new()
                    return self._elect(now_ms)
                case _:
                    return self._elected(now_ms)
        except (QuorumLost, MetadataLost) as lost:
            return self._give_up(lost)

    def _give_up(self, why: Exception) -> Ready:
        self.role, self.failure = Role.OVER, why
        self._number += 1
        return Ready()

    def _known(self) -> VoterState:
        """Return the state of the copy that may have the most records."""
        if not self._states:
            raise QuorumLost("no voter answers")
        known = max(self._all_states(), key=lambda state: state.recency)
        if not known.voters:
            raise QuorumLost("no voter answers")
        return known

    def _all_states(self) -> list[VoterState]:
        return [self._states[one] for one in sorted(self._states)]

    def _looked(self, now_ms: float) -> Ready:
        known = self._known()
        present = [one for one in self._all_states() if one.key in known.voters]
        self._founds = len(present) == len(known.voters) and all(
            one.next_offset == 0 for one in present
        )
        if self._founds:
            self.role = Role.FOUNDING
            return self._ask_all({*self._broker_ids, *self._states}, AskHistory(), now_ms)
        return self._elect(now_ms)

    def _require_new(self) -> None:
        """Raise unless all known brokers report that their directories are new."""
        known = [
            str(one)
            for one in sorted(self._histories, key=lambda one: one.broker_id)
            if not one.is_blank
        ]
        if known:
            raise MetadataLost(
                f"the metadata is lost. {WAYS_OUT}. "
                f"No voter of cluster {self._cluster_id} has any, but brokers have data of it: "
                f"{'; '.join(known)}"
            )
        answered = {one.broker_id for one in self._histories}
        silent = sorted({*self._broker_ids, *self._states} - answered)
        if silent:
            raise QuorumLost(
                f"no voter has any metadata, and broker {_listed(silent)} has not said "
                "yet that it knows none either"
            )

    def _elect(self, now_ms: float) -> Ready:
        """Ask for promises; raises MetadataLost, QuorumLost."""
        known = self._known()
        present = [one for one in self._all_states() if one.key in known.voters]
        blank = [one.broker_id for one in present if one.is_blank and not self._founds]
        present = [one for one in present if one.broker_id not in blank]
        if known.next_offset and 2 * len(blank) >= len(known.voters):
            raise MetadataLost(
                f"the metadata is lost. {WAYS_OUT}. Of the {len(known.voters)} voters of cluster "
                f"{self._cluster_id} too few have any: the directory of broker "
                f"{_listed(sorted(blank))} is new"
            )
        self._require_majority(len(present), len(known.voters), blank=blank)
        # Above all of them, because a copy that is not a voter (any more, or yet) may know a later
        # epoch.
        highest = max(state.promised_epoch for state in self._states.values())
        self.epoch = max(self._above_epoch, highest) + 1
        self.role, self._refused_by_lease = Role.ELECTING, 0
        # The latest log may be on a voter that this log removes, and only that voter may know this.
        self._electors = {one.key: one.broker_id for one in (*present, known)}
        self._elect_ms = now_ms
        return self._ask_all(
            {*self._electors.values()}, NewEpoch(self.epoch, self._name, self._founds), now_ms
        )

    def _elected(self, now_ms: float) -> Ready:
        """Adopt the longest log among those that promised; raises QuorumLost."""
        promised = [one for one in self._promised if one.key in self._electors]
        promised.sort(key=lambda state: state.broker_id)
        self._promised = promised
        longest = max(promised, key=lambda state: state.recency, default=self._known())
        counted = sum(one.key in longest.voters for one in promised)
        self._require_majority(counted, len(longest.voters), all_of_them=self._founds)
        self.silent_ms = min(one.silent_ms for one in promised if one.key in longest.voters)
        self.role, self._source = Role.FETCHING, longest
        return self._ask_all([longest.broker_id], AskLog(self.epoch, 0), now_ms)

    def _adopt(self, got: VoterLog, now_ms: float) -> Ready:
        """Add a part of the longest log; start to lead when the log is complete."""
        source = self._source
        assert source is not None, "a log is asked for when it is known whose"
        if got.snapshot is not None:
            self.log = LogCopy()
            self.log.replace(got.snapshot)
        self.log.apply(Append(tuple(got.entries)))
        if self.log.next_offset < source.next_offset:
            if not got.entries and got.snapshot is None:
                lost = QuorumLost(f"voter {source.broker_id} does not give its log")
                return self._give_up(lost)
            request = AskLog(self.epoch, self.log.next_offset)
            return self._ask_all([source.broker_id], request, now_ms)
        self.role, self._adopted_end = Role.LEADING, self.log.next_offset
        self._take(source.voters)
        for state in self._promised:
            self.supported(*state.key, self._elect_ms)
        return Ready()

    def _require_majority(
        self, answered: int, voters: int, *, all_of_them: bool = False, blank: Sequence[int] = ()
    ) -> None:
        if is_majority(answered, voters) and (answered == voters or not all_of_them):
            return
        if is_majority(self._refused_by_lease, voters):
            raise RivalLeads("the voters follow another controller")
        lost = f"; the directory of broker {_listed(blank)} is new" if blank else ""
        raise QuorumLost(f"{answered} of {voters} voters answer: no majority{lost}")

    # ---- who follows ---------------------------------------------------------------------

    @property
    def voters(self) -> Voters:
        """The voter set in force."""
        return self._voters

    @property
    def followers(self) -> list[Follower]:
        """The voters, as followers."""
        return [self._followers[one] for one in self._voters]

    def supported(self, broker_id: int, directory_id: str, at_ms: float) -> None:
        """Note that a voter heard this controller at `at_ms` (the controller's clock) or later."""
        if (broker_id, directory_id) in self._voters:
            self._record_contact(self._followers[broker_id, directory_id], at_ms)

    def supported_ms(self, now_ms: float) -> float:
        """Return when a majority was last known to follow this controller; with one voter, now."""
        if len(self._voters) == 1:
            return now_ms
        times = sorted((one.contact_ms for one in self.followers), reverse=True)
        return times[len(times) // 2]

    def in_contact_since(self, at_ms: float) -> Voters:
        """Return the voters that are known to have followed this controller since that time."""
        return tuple(one.key for one in self.followers if one.contact_ms >= at_ms)

    def _record_contact(self, follower: Follower, at_ms: float) -> None:
        follower.contact_ms = max(follower.contact_ms, at_ms)
        if follower.synced_offset == self.log.next_offset:
            follower.level_ms = max(follower.level_ms, at_ms)

    def probe(self, now_ms: float) -> Ready:
        """Ask the voters whether they still follow."""
        return self._send_to(self.followers, now_ms, at_least_once=True)

    def _take(self, voters: Voters) -> None:
        """Put a new voter set in force."""
        if self._joining is not None and self._joining.key in voters:
            self._followers[self._joining.key] = self._joining
            self._joining = None
        for key in voters:
            self._followers.setdefault(key, Follower(*key, self.log.next_offset))
        self._voters = voters

    # ---- appending -----------------------------------------------------------------------

    def append(self, entries: Sequence[LogEntry], now_ms: float) -> Ready:
        """Append entries. They are committed once `committed` is beyond them.

        Voters that are removed by these entries also get them.
        """
        before, named = self.followers, self.log.voters
        self.log.apply(Append(tuple(entries)))
        if self.log.voters != named:
            self._take(self.log.voters)
        recipients = {one.key: one for one in (*before, *self.followers)}
        return self._send_to(recipients.values(), now_ms)

    @property
    def takes_entries(self) -> bool:
        """Whether a majority can still sync what was appended."""
        sound = sum(one.failure is None for one in self.followers)
        return not self.is_deposed and is_majority(sound, len(self._voters))

    def install(self, snapshot: LogSnapshot) -> list[tuple[int, InstallSnapshot]]:
        """Replace everything below a snapshot here; return the requests to the voters."""
        self.log.replace(snapshot)
        return [(one.broker_id, self._installing(one)) for one in self.followers]

    def bring_level(self, broker_id: int, directory_id: str, now_ms: float) -> Ready:
        """Let a copy that is not a voter follow this controller until it has caught up."""
        self._joining = Follower(broker_id, directory_id, self.log.next_offset)
        request = JoinVoters(self.epoch, self._name, directory_id)
        return Ready((self._ask(self._joining, request, now_ms),))

    @property
    def joining(self) -> Follower | None:
        """The copy that is catching up; `is_level` says whether it is done."""
        return self._joining

    def is_level(self, follower: Follower) -> bool:
        """Whether a copy has synced the whole log."""
        return follower.synced_offset >= self.log.next_offset

    def _send_to(
        self, followers: Iterable[Follower], now_ms: float, *, at_least_once: bool = False
    ) -> Ready:
        asks = []
        for one in followers:
            if not one.busy:
                one.failure = None
                if at_least_once or not self.is_level(one):
                    asks.append(self._next_for(one, now_ms))
        return Ready(tuple(asks))

    def _next_for(self, follower: Follower, now_ms: float) -> Ask:
        """Build the next request to a follower, whose log is truncated if it differs."""
        if follower.next_offset < self.log.snapshot.offset:
            return self._ask(follower, self._installing(follower), now_ms)
        previous_epoch = self.log.epoch_before(follower.next_offset)
        assert previous_epoch is not None, "voters agree on where entries end"
        request = VoterAppend(
            epoch=self.epoch,
            previous_epoch=previous_epoch,
            previous_offset=follower.next_offset,
            entries=self.log.since(follower.next_offset),
            controller=self._name,
            directory_id=follower.directory_id,
        )
        return self._ask(follower, request, now_ms)

    def _ask(self, follower: Follower, request: Request, now_ms: float) -> Ask:
        """Send a request to a follower; only one is in progress at a time."""
        self._number += 1
        follower.busy = self._number
        return Ask(follower.broker_id, request, self._number, now_ms)

    def _installing(self, follower: Follower) -> InstallSnapshot:
        return InstallSnapshot(self.epoch, self.log.snapshot, self._name, follower.directory_id)

    def _follower_of(self, ask: Ask) -> Follower | None:
        """Return the follower that a request was sent to; None if the response does not matter."""
        for one in (self._joining, *self._followers.values()):
            if one is not None and one.busy == ask.number:
                return one
        return None

    def _follower_answered(self, ask: Ask, answer: Any, now_ms: float) -> Ready:
        follower = self._follower_of(ask)
        if follower is None:
            return Ready()
        follower.busy = 0
        match ask.request, answer:
            case VoterAppend(), VoterAppended(matched=True, next_offset=synced):
                follower.next_offset = follower.synced_offset = synced
                self._record_contact(follower, ask.asked_ms)
                self._commit()
            case VoterAppend(), VoterAppended(next_offset=at_most):
                self._record_contact(follower, ask.asked_ms)
                follower.next_offset = self.log.boundary(at_most)
            case InstallSnapshot(snapshot=snapshot), _:
                follower.next_offset = snapshot.offset
            case _:
                follower.has_joined = True
        if not self.is_level(follower):
            return Ready((self._next_for(follower, now_ms),))
        self._forget(follower)
        return Ready()

    def _follower_failed(self, ask: Ask, why: Exception) -> Ready:
        follower = self._follower_of(ask)
        if follower is not None:
            follower.busy, follower.failure = 0, why
            if follower.key in self._voters and isinstance(why, FencedLeaderEpoch):
                self.is_deposed = True
            self._forget(follower)
        return Ready()

    def _forget(self, follower: Follower) -> None:
        """Forget a removed voter once it has been told, or cannot be."""
        if follower is not self._joining and follower.key not in self._voters:
            self._followers.pop(follower.key, None)

    def _commit(self) -> None:
        """Commit what a majority has synced, if that extends beyond the adopted log."""
        synced = [one.synced_offset for one in self.followers]
        for offset in synced:
            holders = sum(other >= offset for other in synced)
            if offset > max(self.committed, self._adopted_end) and is_majority(
                holders, len(synced)
            ):
                self.committed = offset


def is_majority(votes: int, voters: int) -> bool:
    """Whether these are more than half of the voters."""
    return 2 * votes > voters


def _listed(broker_ids: Iterable[int]) -> str:
    return ", ".join(map(str, broker_ids))

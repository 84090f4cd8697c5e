"""Decides what a voter promises, accepts and refuses, based on its copy of the metadata log.

A promise of a controller epoch is final: lower epochs are refused. So of two controllers only the
later one can write.

With several voters, a voter that has heard from its controller within the lease does not support a
rival. It hears from it by an append, or by an answer to its broker's heartbeat. A copy that has
promised nothing is blank: its directory is new. It takes no part until a controller has seen that
all copies are empty and that no broker's directory knows a cluster, which is how a cluster is
founded. A lost directory is replaced by a blank one too, and a majority must not forget what it had
promised and stored. A voter refuses to found a cluster on the remains of a directory.

The voter set is the last one in the copy, committed or not, as in Raft. A copy that does not vote
only catches up: once a controller lets it join, it follows that controller as a voter does. The
controller counts it once the voter set includes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raylog.actors.controller.messages import BrokerHeartbeat, BrokerHeartbeatAnswer
from raylog.actors.metadata.entries import LogEntry
from raylog.actors.metadata.followed import DirectoryHistory
from raylog.actors.metadata.log_copy import Append, Change, LogCopy, Promise, Truncate
from raylog.actors.metadata.records import Voters
from raylog.actors.metadata.voting import (
    JoinVoters,
    NewEpoch,
    VoterAppend,
    VoterAppended,
    VoterLog,
    VoterState,
    lease_ms,
)
from raylog.wire.errors import FencedLeaderEpoch, InvalidRequest, InvalidVoterKey, NotController

FETCH_BYTES = 8 * 1024 * 1024
EPOCHS_AHEAD_MAX = 1 << 24
"""The most by which a controller's epoch may exceed the promised one: half a year of elections
at one a second."""


class Ready(NamedTuple):
    """Results of a message: three steps, in this order, before the next message is handled.

    1. `changes` are written to the log and applied to the copy;
    2. the log is synced;
    3. `answer` is sent.

    If a crash or a disk error interrupts this, no answer is sent, and the changes may or may not be
    there afterwards.
    """

    changes: tuple[Change, ...]
    answer: VoterState | VoterAppended | None = None


class _Contact(NamedTuple):
    """When a controller was heard under a promise."""

    epoch: int
    controller: str
    at_ms: float


class VoterRules:
    """Decides for one copy. Times are in ms of a monotonic clock."""

    def __init__(
        self,
        broker_id: int,
        directory_id: str,
        founders: Voters,
        copy: LogCopy,
        *,
        heartbeat_interval_ms: int,
        now_ms: float,
    ) -> None:
        self.broker_id = broker_id
        self.directory_id = directory_id
        self.copy = copy
        self._founders = founders
        self._lease_ms = lease_ms(heartbeat_interval_ms)
        self._contact: _Contact | None = None
        """The controller heard last. Its lease runs while the epoch is promised to it."""
        self._any_contact_ms = now_ms
        """When any controller was last heard; initially the start of this process."""
        self._answered: _Contact | None = None
        """When that controller sent its last answer to a heartbeat, by its own clock."""

    # ---- state ---------------------------------------------------------------------------

    @property
    def voters(self) -> Voters:
        """The last voter set in this copy; the founding set if there is none."""
        return self.copy.voters or self._founders

    @property
    def is_blank(self) -> bool:
        """Whether it has never promised an epoch."""
        return self.copy.promised_epoch == 0

    def state(self) -> VoterState:
        """Return how far this copy goes."""
        return VoterState(
            broker_id=self.broker_id,
            directory_id=self.directory_id,
            voters=self.voters,
            promised_epoch=self.copy.promised_epoch,
            last_epoch=self.copy.last_epoch,
            next_offset=self.copy.next_offset,
            start_offset=self.copy.snapshot.offset,
            controller=self.copy.promised_controller,
        )

    # ---- heartbeats ----------------------------------------------------------------------

    def signed(self, request: BrokerHeartbeat) -> BrokerHeartbeat:
        """Add to a heartbeat which controller this voter follows, and since when."""
        sent_ms = -1.0
        if self._answered is not None and self._is_promised(self._answered):
            sent_ms = self._answered.at_ms
        return request._replace(promised_epoch=self.copy.promised_epoch, heard_ms=sent_ms)

    def heartbeat_answered(self, answer: BrokerHeartbeatAnswer, now_ms: float) -> None:
        """Record a controller's answer to a heartbeat; it extends the promised controller's lease.

        The controller learns of that from the next heartbeat, which returns the answer's send time.
        """
        if answer.controller_epoch == self.copy.promised_epoch:
            promise = Promise(self.copy.promised_epoch, self.copy.promised_controller)
            self._record_contact(promise, now_ms)
            self._answered = _Contact(*promise, answer.sent_ms)

    def _record_contact(self, promise: Promise, now_ms: float) -> None:
        self._contact, self._any_contact_ms = _Contact(*promise, now_ms), now_ms

    def _is_promised(self, contact: _Contact) -> bool:
        promise = (self.copy.promised_epoch, self.copy.promised_controller)
        return promise == (contact.epoch, contact.controller)

    # ---- messages ------------------------------------------------------------------------

    def new_epoch(
        self, request: NewEpoch, now_ms: float, history: DirectoryHistory | None = None
    ) -> Ready:
        """Promise to refuse lower epochs. The answer says how long no controller was heard.

        `history` is the directory's knowledge, for founding a cluster. Raises FencedLeaderEpoch if
        an equal or higher epoch was promised, NotController while the current controller's lease
        runs, InvalidRequest from a blank copy, and InvalidRequest if a cluster is to be founded on
        a directory that already knows one.
        """
        self._require_possible(request.epoch)
        promised = self.copy.promised_epoch
        if request.epoch <= promised:
            raise FencedLeaderEpoch(
                f"controller epoch {promised} is promised, {request.epoch} is too low"
            )
        self._check_lease(request.controller, now_ms)
        if not request.founds:
            self._require_history()
        else:
            assert history is not None, "who is to found a cluster says what its directory knows"
            if not history.is_blank:
                raise InvalidRequest(f"no cluster is founded here: {history}")
        return self._promising(request.epoch, request.controller, now_ms - self._any_contact_ms)

    def join(self, request: JoinVoters) -> Ready:
        """Start to follow a controller that wants this copy as a voter. Safe to repeat.

        Raises FencedLeaderEpoch if a later epoch was promised, InvalidVoterKey if another directory
        is meant.
        """
        self._require_own(request.directory_id)
        self.require_current(request.epoch)
        if request.epoch == self.copy.promised_epoch:
            return Ready((), self.state())
        return self._promising(request.epoch, request.controller)

    def append(self, request: VoterAppend, now_ms: float) -> Ready:
        """Accept entries after the point on which the controller and this copy agree."""
        changes: list[Change] = [
            *self._follow(request.epoch, request.controller, request.directory_id, now_ms)
        ]
        _require_sequence(request)
        before = self.copy.epoch_before(request.previous_offset)
        if before is None or before != request.previous_epoch:
            # The leader tries next at the entry that differs, or at this copy's end.
            at_most = min(request.previous_offset - 1, self.copy.next_offset)
            return Ready(tuple(changes), VoterAppended(False, at_most))
        fresh = self._unknown(request.entries)
        if fresh and fresh[0].offset < self.copy.next_offset:
            changes.append(Truncate(fresh[0].offset))
        if fresh:
            changes.append(Append(tuple(fresh)))
        end = request.entries[-1].next_offset if request.entries else request.previous_offset
        return Ready(tuple(changes), VoterAppended(True, end))

    def install(self, epoch: int, controller: str, directory_id: str, now_ms: float) -> Ready:
        """Follow the controller, which is about to send a snapshot."""
        return Ready(self._follow(epoch, controller, directory_id, now_ms))

    def fetch(self, epoch: int, offset: int) -> VoterLog:
        """Read the log from an offset on; or the snapshot and the rest if the log starts later."""
        self.require_current(epoch)
        snapshot = self.copy.snapshot
        if offset < snapshot.offset:
            return VoterLog(snapshot, self.copy.read(snapshot.offset, FETCH_BYTES))
        return VoterLog(None, self.copy.read(offset, FETCH_BYTES))

    def _follow(
        self, epoch: int, controller: str, directory_id: str, now_ms: float
    ) -> tuple[Promise, ...]:
        """Follow a controller, and no longer any that it has replaced.

        It may have won without this voter. Then the voter promises the epoch now, or an older
        controller could still truncate what the new one writes. Or this voter promised the same
        epoch to another controller, which then cannot have won it. Brokers must not be sent to that
        one, nor may its return end the winner's lease.
        """
        self._require_own(directory_id)
        self.require_current(epoch)
        self._require_history()
        promised = Promise(self.copy.promised_epoch, self.copy.promised_controller)
        if epoch == promised.epoch and not controller:
            controller = promised.controller
        promise = Promise(epoch, controller)
        self._record_contact(promise, now_ms)
        return () if promise == promised else (promise,)

    def _promising(self, epoch: int, controller: str, silent_ms: float = 0.0) -> Ready:
        answer = self.state()._replace(
            promised_epoch=epoch, controller=controller, silent_ms=silent_ms
        )
        return Ready((Promise(epoch, controller),), answer)

    def _unknown(self, entries: Sequence[LogEntry]) -> Sequence[LogEntry]:
        """Return the entries from the first one that this copy lacks or has from another epoch."""
        for at, entry in enumerate(entries):
            if self.copy.epoch_before(entry.next_offset) != entry.epoch:
                return entries[at:]
        return []

    # ---- refusals ------------------------------------------------------------------------

    def _check_lease(self, controller: str, now_ms: float) -> None:
        """Refuse another controller during the lease.

        The same name is a restart of the same one.
        """
        contact = self._contact
        if contact is None or not self._is_promised(contact) or controller == contact.controller:
            return
        silent_ms = now_ms - contact.at_ms
        if silent_ms < self._lease_ms:
            raise NotController(f"{contact.controller} was heard {silent_ms:.0f} ms ago")

    def _require_history(self) -> None:
        if self.is_blank:
            raise InvalidRequest(
                f"the metadata log of broker {self.broker_id} is blank: its directory is new"
            )

    def _require_own(self, directory_id: str) -> None:
        """Refuse a message to a lost directory that this one replaces."""
        if directory_id not in ("", self.directory_id):
            raise InvalidVoterKey(
                f"broker {self.broker_id} has the directory {self.directory_id}, not {directory_id}"
            )

    def _require_possible(self, epoch: int) -> None:
        """Refuse an impossibly high epoch: promising it would leave no room for later ones."""
        if type(epoch) is not int or epoch > self.copy.promised_epoch + EPOCHS_AHEAD_MAX:
            raise InvalidRequest(
                f"controller epoch {epoch!r} is impossible: {self.copy.promised_epoch} is promised"
            )

    def require_current(self, epoch: int) -> None:
        """Raise FencedLeaderEpoch if a later epoch was promised."""
        self._require_possible(epoch)
        if epoch < self.copy.promised_epoch:
            raise FencedLeaderEpoch(
                f"controller epoch {self.copy.promised_epoch} is promised, {epoch} is over"
            )


def _require_sequence(request: VoterAppend) -> None:
    """Check that entries are contiguous and start where both sides agree."""
    end = request.previous_offset
    for entry in request.entries:
        if entry.offset != end:
            raise InvalidRequest(f"an entry at offset {entry.offset} behind offset {end}")
        end = entry.next_offset

"""A voter: the copy of the metadata log that a broker holds, and the rules by which it takes part.

A controller epoch is promised once and for all: whoever comes with a lower one is refused, so that
of two controllers only the later can write. Nothing is answered before it is synced.

Where there are several voters, one that has heard its controller within the lease lets no rival of
it come up: heard is an append, or an answer to the heartbeat of this voter's broker. A copy without
any promise is blank: its directory is new. It takes no part until a controller has seen that all
copies are empty and no broker's directory has known anything, which is how a cluster begins; a
directory that was lost comes back blank too, and what it had promised and held must not be
forgotten by a majority. Where more than the copy is left of a directory it lets nobody begin anew.

Who votes is what the copy itself names last, committed or not, as in Raft. A copy that does not
vote takes part in nothing but its own catching up: a controller has it join, and from then on it
follows that controller as a voter does; the controller counts it once the voter set names it.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: writes wait for one another
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from raylog.actors.controller.api import BrokerHeartbeat, BrokerHeartbeatAnswer
from raylog.actors.metadata.followed import DirectoryHistory
from raylog.actors.metadata.log import LogEntry, LogSnapshot, MetadataLog
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
from raylog.wire.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidVoterKey,
    KafkaStorageError,
    NotController,
)

T = TypeVar("T")
RunBlocking = Callable[..., Awaitable[Any]]
FETCH_BYTES = 8 * 1024 * 1024
EPOCHS_AHEAD_MAX = 1 << 24
"""By so much a controller's epoch may exceed the one that is promised: half a year of elections,
one each second."""


class Voter:
    """Holds one copy of the log; a disk error ends its part for good."""

    def __init__(
        self,
        broker_id: int,
        directory_id: str,
        founders: Voters,
        log: MetadataLog,
        run_blocking: RunBlocking,
        *,
        fsync: bool,
        clock_ms: Callable[[], float],
        heartbeat_interval_ms: int,
        history: Callable[[], DirectoryHistory] | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._history = history or (lambda: DirectoryHistory(broker_id))
        """What the directory around the copy knows of the cluster."""
        self._directory_id = directory_id
        self._founders = founders
        self._log = log
        self._run_blocking = run_blocking
        self._fsync = fsync
        self._clock_ms = clock_ms
        self._lease_ms = lease_ms(heartbeat_interval_ms)
        self._heard_ms: float | None = None
        """When the controller that was promised the epoch was heard last."""
        self._any_heard_ms = clock_ms()
        """When a controller was heard last, if that was not before this process."""
        self._last_answer_ms = -1.0
        """When it had sent its last answer, on its own clock."""
        self._failure: str | None = None
        self._writing = asyncio.Lock()
        self._installing = asyncio.Lock()
        """Held around `_writing`, and while a snapshot is written beside the log."""

    def state(self) -> VoterState:
        """How far this copy goes."""
        return VoterState(
            broker_id=self._broker_id,
            directory_id=self._directory_id,
            voters=self.voters,
            promised_epoch=self._log.promised_epoch,
            last_epoch=self._log.last_epoch,
            next_offset=self._log.next_offset,
            start_offset=self._log.snapshot.offset,
            controller=self._log.promised_controller,
        )

    @property
    def voters(self) -> Voters:
        """The voter set that this copy names last; until it names one, the cluster's first."""
        return self._log.voters or self._founders

    @property
    def trouble(self) -> str:
        """Why it takes nothing more; empty: it does."""
        return self._failure or ""

    @property
    def next_offset(self) -> int:
        """Offset after the last record of this copy."""
        return self._log.next_offset

    @property
    def is_blank(self) -> bool:
        """Whether it has never taken part."""
        return self._log.promised_epoch == 0

    @property
    def promised_epoch(self) -> int:
        """The epoch below which controllers are refused."""
        return self._log.promised_epoch

    def signed(self, asked: BrokerHeartbeat) -> BrokerHeartbeat:
        """A heartbeat of this voter's broker that tells whom it follows, and since when."""
        return asked._replace(
            promised_epoch=self._log.promised_epoch, heard_ms=self._last_answer_ms
        )

    def heard(self, answer: BrokerHeartbeatAnswer) -> None:
        """A controller has answered this voter's broker: if it is the one promised, its lease runs.

        The controller learns that from the next heartbeat, which returns when the answer was sent.
        """
        if answer.controller_epoch == self._log.promised_epoch:
            self._hears()
            self._last_answer_ms = answer.sent_ms

    async def new_epoch(self, asked: NewEpoch) -> VoterState:
        """Promise to refuse lower epochs; the answer says how long no controller was heard.

        Raises FencedLeaderEpoch if a rival was promised a higher one, NotController while the
        present controller's lease runs, InvalidRequest from a blank copy, and where a cluster is to
        be founded on a directory that has known one.
        """
        async with self._writing:
            self._require_sound()
            self._require_possible(asked.epoch)
            promised = self._log.promised_epoch
            if asked.epoch <= promised:
                raise FencedLeaderEpoch(
                    f"controller epoch {promised} is promised, {asked.epoch} is too low"
                )
            self._check_lease(asked.controller)
            if asked.founds:
                self._require_new()
            else:
                self._require_history()
            silent_ms = self._clock_ms() - self._any_heard_ms
            await self._promise(asked.epoch, asked.controller)
            return self.state()._replace(silent_ms=silent_ms)

    async def join(self, asked: JoinVoters) -> VoterState:
        """Begin to follow a controller that wants this copy for a voter.

        Raises FencedLeaderEpoch if a later one was promised, InvalidVoterKey if another directory
        is meant. Safe to repeat.
        """
        async with self._writing:
            self._require_sound()
            self._require_own(asked.directory_id)
            self._require_current(asked.epoch)
            if asked.epoch > self._log.promised_epoch:
                await self._promise(asked.epoch, asked.controller)
            return self.state()

    def _check_lease(self, controller: str) -> None:
        """A name that comes again is a controller that the runtime has restarted."""
        if self._heard_ms is None:
            return
        silent_ms = self._clock_ms() - self._heard_ms
        if silent_ms < self._lease_ms and controller != self._log.promised_controller:
            raise NotController(f"{self._log.promised_controller} was heard {silent_ms:.0f} ms ago")

    async def _promise(self, epoch: int, controller: str) -> None:
        self._log.promise(epoch, controller)
        self._heard_ms, self._last_answer_ms = None, -1.0
        await self._sync()

    def fetch(self, epoch: int, offset: int) -> VoterLog:
        """The log from an offset on; below the entries, the snapshot and what follows it."""
        self._require_sound()
        self._require_current(epoch)
        snapshot = self._log.snapshot
        if offset < snapshot.offset:
            return VoterLog(snapshot, self._log.read(snapshot.offset, FETCH_BYTES))
        return VoterLog(None, self._log.read(offset, FETCH_BYTES))

    async def append(self, asked: VoterAppend) -> VoterAppended:
        """Write entries behind what the controller and this copy agree on, and sync them."""
        async with self._writing:
            self._require_sound()
            self._require_own(asked.directory_id)
            await self._follow(asked.epoch, asked.controller)
            _require_sequence(asked)
            before = self._log.epoch_before(asked.previous_offset)
            if before is None or before != asked.previous_epoch:
                return VoterAppended(False, self._agreed_at_most(asked))
            fresh = self._unknown(asked.entries)
            if fresh:
                self._log.cut(fresh[0].offset)
                self._log.append(fresh)
            await self._sync()
            end = asked.entries[-1].next_offset if asked.entries else asked.previous_offset
            return VoterAppended(True, end)

    async def install(
        self, epoch: int, snapshot: LogSnapshot, controller: str = "", directory_id: str = ""
    ) -> None:
        """Put a snapshot in place of the entries below it.

        Entries and promises are taken while the snapshot is written, which may take long: a slow
        disk must not keep the controller from its majority. One that has lost its epoch meanwhile
        puts nothing in place.
        """
        async with self._installing:
            async with self._writing:
                self._require_sound()
                self._require_own(directory_id)
                await self._follow(epoch, controller)
            if snapshot.offset <= self._log.snapshot.offset:
                return
            await self._durably(self._log.write_snapshot, snapshot)
            async with self._writing:
                self._require_sound()
                self._require_current(epoch)
                fd = await self._durably(self._log.put_in_place, snapshot)
                self._log.finish_install(snapshot, fd)

    def close(self) -> None:
        """Close the log's file."""
        self._log.close()

    def _unknown(self, entries: list[LogEntry]) -> list[LogEntry]:
        """The entries from the first on that this copy has not, or has from another epoch."""
        for at, entry in enumerate(entries):
            if self._log.epoch_before(entry.next_offset) != entry.epoch:
                return entries[at:]
        return []

    def _agreed_at_most(self, asked: VoterAppend) -> int:
        """Where to try next: before the entry that differs, or at this copy's end."""
        return min(asked.previous_offset - 1, self._log.next_offset)

    async def _follow(self, epoch: int, controller: str) -> None:
        """Take a controller's word, and nobody's any more whom it has replaced.

        It may have won without this voter: then the promise is given now, or an older controller
        could still come and take away what this one has written. Or this voter has promised its
        epoch to another, which then has not won it: who looks for the controller must not be sent
        there, nor must its return end the lease of the one that has.
        """
        self._require_current(epoch)
        self._require_history()
        known = self._log.promised_controller
        if epoch > self._log.promised_epoch or controller not in ("", known):
            await self._promise(epoch, controller)
        self._hears()

    def _hears(self) -> None:
        self._heard_ms = self._any_heard_ms = self._clock_ms()

    def _require_history(self) -> None:
        if self.is_blank:
            raise InvalidRequest(
                f"the metadata log of broker {self._broker_id} is blank: its directory is new"
            )

    def _require_new(self) -> None:
        history = self._history()
        if not history.is_blank:
            raise InvalidRequest(f"no cluster is founded here: {history}")

    def _require_own(self, directory_id: str) -> None:
        """What is meant for a directory that was lost is not for the one in its place."""
        if directory_id not in ("", self._directory_id):
            raise InvalidVoterKey(
                f"broker {self._broker_id} has the directory {self._directory_id}, "
                f"not {directory_id}"
            )

    def _require_possible(self, epoch: int) -> None:
        """An epoch beyond all that can be there is not promised: no later one would be left."""
        if type(epoch) is not int or epoch > self._log.promised_epoch + EPOCHS_AHEAD_MAX:
            raise InvalidRequest(
                f"controller epoch {epoch!r} cannot be: {self._log.promised_epoch} is promised"
            )

    def _require_current(self, epoch: int) -> None:
        self._require_possible(epoch)
        if epoch < self._log.promised_epoch:
            raise FencedLeaderEpoch(
                f"controller epoch {self._log.promised_epoch} is promised, {epoch} is over"
            )

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise KafkaStorageError(self._failure)

    async def _sync(self) -> None:
        if self._fsync:
            await self._durably(self._log.sync)

    async def _durably(self, write: Callable[..., T], *args: object) -> T:
        """What a blocking write returns; an error of the disk ends this copy's part."""
        try:
            written: T = await self._run_blocking(write, *args)
        except OSError as broken:
            raise self._broken(broken) from broken
        return written

    def _broken(self, failure: OSError) -> KafkaStorageError:
        self._failure = f"the metadata log cannot be written: {failure}"
        return KafkaStorageError(self._failure)


def _require_sequence(asked: VoterAppend) -> None:
    """Entries follow on one another, and on what both sides are to agree on."""
    end = asked.previous_offset
    for entry in asked.entries:
        if entry.offset != end:
            raise InvalidRequest(f"an entry at offset {entry.offset} behind offset {end}")
        end = entry.next_offset

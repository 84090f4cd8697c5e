"""A voter: a broker's copy of the metadata log, and the order of its writes.

`rules.voter` decides what it promises, accepts and refuses. No answer is sent before the data is
synced.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: writes wait for one another
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.broker.rules.voter import Ready, VoterRules
from raylog.actors.controller.messages import BrokerHeartbeat, BrokerHeartbeatAnswer
from raylog.actors.metadata.entries import LogSnapshot
from raylog.actors.metadata.followed import DirectoryHistory
from raylog.actors.metadata.records import Voters
from raylog.actors.metadata.voting import (
    JoinVoters,
    NewEpoch,
    VoterAppend,
    VoterAppended,
    VoterLog,
    VoterState,
)
from raylog.storage.disk import is_passing
from raylog.wire.errors import KafkaStorageError

T = TypeVar("T")
RunBlocking = Callable[..., Awaitable[Any]]


class Voter:
    """Holds one copy of the log. After a disk error it takes part in nothing more.

    A full disk only refuses what is written, unless that is being synced.
    """

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
        self.rules = VoterRules(
            broker_id,
            directory_id,
            founders,
            log.copy,
            heartbeat_interval_ms=heartbeat_interval_ms,
            now_ms=clock_ms(),
        )
        self._log = log
        self._run_blocking = run_blocking
        self._fsync = fsync
        self._clock_ms = clock_ms
        self._history = history or (lambda: DirectoryHistory(broker_id))
        """Returns what the directory around the copy knows of the cluster."""
        self._failure: str | None = None
        self._writing = asyncio.Lock()
        self._installing = asyncio.Lock()
        """Acquired before `_writing`, and held while a snapshot is written next to the log."""

    @property
    def trouble(self) -> str:
        """Why it accepts no more writes; empty if it does."""
        return self._failure or ""

    @property
    def is_at_rest(self) -> bool:
        """Whether everything that it reports is durable, that is, nothing is being written."""
        return self._failure is None and not self._writing.locked()

    def state(self) -> VoterState:
        """Return how far this copy goes."""
        return self.rules.state()

    def signed(self, request: BrokerHeartbeat) -> BrokerHeartbeat:
        """Add to a heartbeat which controller this voter follows, and since when."""
        return self.rules.signed(request)

    def heartbeat_answered(self, answer: BrokerHeartbeatAnswer) -> None:
        """Record a controller's answer to this voter's broker."""
        self.rules.heartbeat_answered(answer, self._clock_ms())

    async def new_epoch(self, request: NewEpoch) -> VoterState:
        """Promise to refuse lower epochs; raises what the rules raise."""
        async with self._writing:
            self._require_sound()
            history = self._history() if request.founds else None
            answer = await self._carry_out(self.rules.new_epoch(request, self._clock_ms(), history))
            assert isinstance(answer, VoterState)
            return answer

    async def join(self, request: JoinVoters) -> VoterState:
        """Start to follow a controller that wants this copy as a voter; raises as the rules do."""
        async with self._writing:
            self._require_sound()
            answer = await self._carry_out(self.rules.join(request))
            assert isinstance(answer, VoterState)
            return answer

    def fetch(self, epoch: int, offset: int) -> VoterLog:
        """Read the log from an offset on; or the snapshot and the rest if the log starts later."""
        self._require_sound()
        return self.rules.fetch(epoch, offset)

    async def append(self, request: VoterAppend) -> VoterAppended:
        """Write entries after the point on which both sides agree, and sync them."""
        async with self._writing:
            self._require_sound()
            answer = await self._carry_out(self.rules.append(request, self._clock_ms()))
            assert isinstance(answer, VoterAppended)
            return answer

    async def install(
        self, epoch: int, snapshot: LogSnapshot, controller: str = "", directory_id: str = ""
    ) -> None:
        """Replace the entries below a snapshot's offset by the snapshot.

        Entries and promises are still accepted while the snapshot is written, which may take long,
        so that a slow disk does not keep the controller from its majority. If the epoch ends
        meanwhile, the snapshot is not put in place.
        """
        async with self._installing:
            async with self._writing:
                self._require_sound()
                now_ms = self._clock_ms()
                await self._carry_out(self.rules.install(epoch, controller, directory_id, now_ms))
            if snapshot.offset <= self._log.copy.snapshot.offset:
                return
            await self._durably(self._log.write_snapshot, snapshot, may_fail=True)
            async with self._writing:
                self._require_sound()
                self.rules.require_current(epoch)
                fd = await self._durably(self._log.put_in_place, snapshot)
                self._log.finish_install(snapshot, fd)

    def close(self) -> None:
        """Close the log's file."""
        self._log.close()

    async def _carry_out(self, ready: Ready) -> VoterState | VoterAppended | None:
        """Carry out a message's results in the order that `Ready` prescribes."""
        self._log.write(ready.changes)
        await self._sync()
        return ready.answer

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise KafkaStorageError(self._failure)

    async def _sync(self) -> None:
        if self._fsync:
            await self._durably(self._log.sync)

    async def _durably(self, write: Callable[..., T], *args: object, may_fail: bool = False) -> T:
        """Run a blocking write and return its result; a disk error stops this copy.

        If it `may_fail`, because the log does not depend on it yet, a full disk does not.
        """
        try:
            written: T = await self._run_blocking(write, *args)
        except OSError as broken:
            failure = f"the metadata log cannot be written: {broken}"
            if not (may_fail and is_passing(broken)):
                self._failure = failure
            raise KafkaStorageError(failure) from broken
        return written

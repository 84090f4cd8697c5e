"""A voter: the copy of the metadata log that a broker holds, and the rules by which it takes part.

A controller epoch is promised once and for all: whoever comes with a lower one is refused, so that
of two controllers only the later can write. Nothing is answered before it is synced.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: writes wait for one another
from collections.abc import Awaitable, Callable
from typing import Any

from raylog.actors.metadata.log import LogEntry, LogSnapshot, MetadataLog
from raylog.actors.metadata.voting import VoterAppend, VoterAppended, VoterLog, VoterState
from raylog.wire.errors import FencedLeaderEpoch, KafkaStorageError

RunBlocking = Callable[..., Awaitable[Any]]
FETCH_BYTES = 8 * 1024 * 1024


class Voter:
    """Holds one copy of the log; a disk error ends its part for good."""

    def __init__(
        self,
        broker_id: int,
        directory_id: str,
        voters: tuple[tuple[int, str], ...],
        log: MetadataLog,
        run_blocking: RunBlocking,
        *,
        fsync: bool,
    ) -> None:
        self._broker_id = broker_id
        self._directory_id = directory_id
        self.voters = voters
        self._log = log
        self._run_blocking = run_blocking
        self._fsync = fsync
        self._failure: str | None = None
        self._writing = asyncio.Lock()

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
        )

    async def new_epoch(self, epoch: int) -> VoterState:
        """Promise to refuse lower epochs; raises FencedLeaderEpoch if a rival was promised one."""
        async with self._writing:
            self._require_sound()
            if epoch <= self._log.promised_epoch:
                raise FencedLeaderEpoch(
                    f"controller epoch {self._log.promised_epoch} is promised, {epoch} is too low"
                )
            self._log.promise(epoch)
            await self._sync()
            return self.state()

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
            self._require_current(asked.epoch)
            if self._log.epoch_before(asked.previous_offset) != asked.previous_epoch:
                return VoterAppended(False, self._agreed_at_most(asked))
            fresh = self._unknown(asked.entries)
            if fresh:
                self._log.cut(fresh[0].offset)
                self._log.append(fresh)
            await self._sync()
            end = asked.entries[-1].next_offset if asked.entries else asked.previous_offset
            return VoterAppended(True, end)

    async def install(self, epoch: int, snapshot: LogSnapshot) -> None:
        """Put a snapshot in place of the entries below it."""
        async with self._writing:
            self._require_sound()
            self._require_current(epoch)
            if snapshot.offset <= self._log.snapshot.offset:
                return
            try:
                fd = await self._run_blocking(self._log.prepare_install, snapshot)
            except OSError as broken:
                raise self._broken(broken) from broken
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

    def _require_current(self, epoch: int) -> None:
        if epoch < self._log.promised_epoch:
            raise FencedLeaderEpoch(
                f"controller epoch {self._log.promised_epoch} is promised, {epoch} is over"
            )

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise KafkaStorageError(self._failure)

    async def _sync(self) -> None:
        if not self._fsync:
            return
        try:
            await self._run_blocking(self._log.sync)
        except OSError as broken:
            raise self._broken(broken) from broken

    def _broken(self, failure: OSError) -> KafkaStorageError:
        self._failure = f"the metadata log cannot be written: {failure}"
        return KafkaStorageError(self._failure)

"""A broker's membership in the metadata quorum: its copy of the log, if any, and when it votes.

| directory                            | copy                                                      |
|--------------------------------------|-----------------------------------------------------------|
| one of the founding voters           | opened at the start; it votes                             |
| never had a copy                     | none until a controller lets it join                      |
| joined                               | follows the controller; votes once the voter set has it   |
| removed                              | stays, and follows again when it is added again           |
| new in place of a lost one           | blank; the directory gets a new id, and no copy           |

`meta.json` names the committed voters, so that a starting broker finds the others.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: a copy is opened once
import logging
from collections.abc import Callable

from raylog.actors.broker.identity import DataDirectory
from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.broker.voter import Voter
from raylog.actors.controller.messages import BrokerHeartbeat, BrokerHeartbeatAnswer
from raylog.actors.metadata.records import MetadataCorrupt, Voters
from raylog.actors.metadata.voting import JoinVoters, VoterState
from raylog.actors.runtime.base import Runtime
from raylog.wire.errors import InvalidRequest, InvalidVoterKey, KafkaStorageError
from raylog.wire.uuids import random_uuid, to_base64

log = logging.getLogger(__name__)
RETRY_MS = 1_000
"""Delay before voters that could not be recorded are written again."""


class VoterMembership:
    """Opens the copy when it is needed, and keeps `meta.json` up to date."""

    def __init__(
        self, runtime: Runtime, data: DataDirectory, *, fsync: bool, heartbeat_interval_ms: int
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._fsync = fsync
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._changing = asyncio.Lock()
        self._committed: Voters = data.identity.voters
        self._committed_offset = 0
        """Exclusive end of the metadata that names them."""
        self.voter: Voter | None = None
        if data.identity.is_voter or data.has_metadata_log:
            self.voter = self._voter_of(self._open())

    @property
    def voters(self) -> Voters:
        """Last known voters: those in the copy, or in the committed metadata if that is newer."""
        if self.voter is not None and self.voter.rules.copy.next_offset >= self._committed_offset:
            return self.voter.rules.voters
        return self._committed

    @property
    def votes(self) -> bool:
        """Whether this broker's copy is one of the voters."""
        identity = self._data.identity
        return self.voter is not None and (identity.broker_id, identity.directory_id) in self.voters

    @property
    def trouble(self) -> str:
        """Why the copy accepts no more writes; empty if it does, or if there is none."""
        return "" if self.voter is None else self.voter.trouble

    def require_voter(self) -> Voter:
        """Return the copy; raises InvalidRequest if there is none."""
        if self.voter is None:
            raise InvalidRequest(f"broker {self._data.identity.broker_id} holds no metadata log")
        return self.voter

    async def join(self, request: JoinVoters) -> VoterState:
        """Let the copy follow the controller; raises InvalidVoterKey for another directory."""
        async with self._changing:
            identity = self._data.identity
            if request.directory_id != identity.directory_id:
                raise InvalidVoterKey(
                    f"broker {identity.broker_id} has the directory {identity.directory_id}, "
                    f"not {request.directory_id}"
                )
            if self.voter is None:
                try:
                    opened: MetadataLog = await self._runtime.run_blocking(self._open)
                except (OSError, MetadataCorrupt) as broken:
                    raise KafkaStorageError(
                        f"{self._data.metadata} cannot be opened: {broken}"
                    ) from broken
                self.voter = self._voter_of(opened)
        return await self.require_voter().join(request)

    def signed(self, request: BrokerHeartbeat) -> BrokerHeartbeat:
        """Add to a heartbeat which controller the copy follows."""
        return request if self.voter is None else self.voter.signed(request)

    def heartbeat_answered(self, answer: BrokerHeartbeatAnswer) -> None:
        """Record that the controller has answered a heartbeat."""
        if self.voter is not None:
            self.voter.heartbeat_answered(answer)

    @property
    def is_lost(self) -> bool:
        """Whether this directory replaces the one that held this voter's copy.

        All founding voters promise an epoch when a cluster is founded. So once anything is
        committed, a voter that has promised nothing is in a new directory.
        """
        return (
            self.voter is not None
            and self.voter.rules.is_blank
            and self._committed_offset > 0
            and self._data.identity.is_voter
        )

    async def begin_anew(self) -> None:
        """Give the directory a new id, because it lacks the promises of the lost one."""
        async with self._changing:
            new_id = to_base64(random_uuid(self._runtime.random))
            await self._runtime.run_blocking(self._data.rename, new_id)
            if self.voter is not None:
                self.voter.close()
                self.voter = None

    def learned(self, voters: Voters, offset: int) -> None:
        """Record the voters in the committed metadata, as of an exclusive end offset."""
        self._committed_offset = offset
        if voters and voters != self._committed:
            self._committed = voters
            self._runtime.start(self._remember(), "remember the voters")

    async def _remember(self) -> None:
        """Write the committed voters to `meta.json`; if the disk refuses, try again later."""
        while self._data.identity.voters != self._committed:
            try:
                async with self._changing:
                    await self._runtime.run_blocking(self._data.remember_voters, self._committed)
            except OSError as failure:
                log.error("the voters cannot be recorded: %s", failure)
                await self._runtime.sleep(RETRY_MS / 1000)

    def close(self) -> None:
        """Close the copy."""
        if self.voter is not None:
            self.voter.close()

    def _open(self) -> MetadataLog:
        return MetadataLog(self._data.metadata, self._runtime.disk)

    def _voter_of(self, opened: MetadataLog) -> Voter:
        identity = self._data.identity
        clock_ms: Callable[[], float] = self._runtime.monotonic_ms
        return Voter(
            identity.broker_id,
            identity.directory_id,
            identity.voters,
            opened,
            self._runtime.run_blocking,
            fsync=self._fsync,
            clock_ms=clock_ms,
            heartbeat_interval_ms=self._heartbeat_interval_ms,
            history=self._data.history,
        )

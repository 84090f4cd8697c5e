"""A broker's seat among the voters of the metadata log: the copy it has, if any, and when it votes.

| the directory                        | the copy                                                  |
|--------------------------------------|-----------------------------------------------------------|
| one of the cluster's first voters    | opened at start; it votes                                 |
| never had a copy                     | none until a controller has it join                       |
| joined                               | follows the controller; votes once the voter set has it   |
| removed                              | stays, and follows again when it is added again           |
| new in a lost one's place            | blank: the directory gets an id of its own, and no copy   |

`meta.json` follows what is committed: a broker that starts finds the others by it.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: a copy is opened once
from collections.abc import Callable

from raylog.actors.broker.identity import DataDirectory
from raylog.actors.broker.voter import Voter
from raylog.actors.controller.api import BrokerHeartbeat, BrokerHeartbeatAnswer
from raylog.actors.metadata.log import MetadataLog
from raylog.actors.metadata.records import MetadataCorrupt, Voters
from raylog.actors.metadata.voting import JoinVoters, VoterState
from raylog.actors.runtime.base import Runtime
from raylog.wire.errors import InvalidRequest, InvalidVoterKey, KafkaStorageError
from raylog.wire.uuids import random_uuid, to_base64


class Seat:
    """Opens the copy when it is wanted, and keeps `meta.json`."""

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
        """How far the metadata goes that names them (exclusive)."""
        self.voter: Voter | None = None
        if data.identity.is_voter or data.has_metadata_log:
            self.voter = self._voter_of(self._open())

    @property
    def voters(self) -> Voters:
        """The voters as last known: by the copy, or by committed metadata that is ahead of it."""
        if self.voter is not None and self.voter.next_offset >= self._committed_offset:
            return self.voter.voters
        return self._committed

    @property
    def votes(self) -> bool:
        """Whether this broker's copy is one of them."""
        identity = self._data.identity
        return self.voter is not None and (identity.broker_id, identity.directory_id) in self.voters

    @property
    def trouble(self) -> str:
        """Why the copy takes nothing more; empty: it does, or there is none."""
        return "" if self.voter is None else self.voter.trouble

    def require_voter(self) -> Voter:
        """The copy; raises InvalidRequest if there is none."""
        if self.voter is None:
            raise InvalidRequest(f"broker {self._data.identity.broker_id} holds no metadata log")
        return self.voter

    async def join(self, asked: JoinVoters) -> VoterState:
        """Have a copy follow the controller; raises InvalidVoterKey for another directory."""
        async with self._changing:
            identity = self._data.identity
            if asked.directory_id != identity.directory_id:
                raise InvalidVoterKey(
                    f"broker {identity.broker_id} has the directory {identity.directory_id}, "
                    f"not {asked.directory_id}"
                )
            if self.voter is None:
                try:
                    opened: MetadataLog = await self._runtime.run_blocking(self._open)
                except (OSError, MetadataCorrupt) as broken:
                    raise KafkaStorageError(
                        f"{self._data.metadata} cannot be opened: {broken}"
                    ) from broken
                self.voter = self._voter_of(opened)
        return await self.require_voter().join(asked)

    def signed(self, asked: BrokerHeartbeat) -> BrokerHeartbeat:
        """A heartbeat that tells whom the copy follows."""
        return asked if self.voter is None else self.voter.signed(asked)

    def heard(self, answer: BrokerHeartbeatAnswer) -> None:
        """The controller has answered a heartbeat."""
        if self.voter is not None:
            self.voter.heard(answer)

    @property
    def is_lost(self) -> bool:
        """Whether the directory is another than the one that held this voter's copy.

        A cluster begins with the promise of all its voters: where anything is committed, a voter
        that has promised nothing is a directory that was made anew.
        """
        return (
            self.voter is not None
            and self.voter.is_blank
            and self._committed_offset > 0
            and self._data.identity.is_voter
        )

    async def begin_anew(self) -> None:
        """Give the directory an id of its own: the promises of the lost one are not its."""
        async with self._changing:
            new_id = to_base64(random_uuid(self._runtime.random))
            await self._runtime.run_blocking(self._data.rename, new_id)
            if self.voter is not None:
                self.voter.close()
                self.voter = None

    def learned(self, voters: Voters, offset: int) -> None:
        """The committed metadata, which goes up to an offset (exclusive), names these voters."""
        self._committed_offset = offset
        if voters and voters != self._committed:
            self._committed = voters
            self._runtime.start(self._remember(), "remember the voters")

    async def _remember(self) -> None:
        async with self._changing:
            await self._runtime.run_blocking(self._data.remember_voters, self._committed)

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

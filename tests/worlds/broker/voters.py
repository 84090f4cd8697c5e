"""Brokers that only vote, in one process, on disks in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.broker.voter import Voter
from raylog.actors.metadata.entries import LogSnapshot
from raylog.actors.metadata.followed import DirectoryHistory
from raylog.actors.metadata.voting import (
    JoinVoters,
    NewEpoch,
    VoterAppend,
    VoterAppended,
    VoterLog,
    VoterState,
)
from raylog.actors.names import BROKER, broker_name
from raylog.actors.runtime.base import Actor, ActorSpec, LinkRequest, Runtime
from raylog.actors.runtime.inproc import InprocRuntime, InprocWorld
from raylog.wire.errors import InvalidRequest
from tests.worlds.storage.disk import FaultyDisk

CLUSTER = "cluster"


async def at_once(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function directly: a disk in memory blocks nobody."""
    return function(*args)


def voter(
    disk: FaultyDisk,
    broker_id: int = 0,
    voters: tuple[tuple[int, str], ...] = ((0, "d0"),),
    run: Callable[..., Awaitable[Any]] = at_once,
    clock_ms: Callable[[], float] = lambda: 0.0,
    directory_id: str | None = None,
    history: Callable[[], DirectoryHistory] | None = None,
) -> Voter:
    log = MetadataLog(Path(f"/b{broker_id}/metadata"), disk)
    return Voter(
        broker_id,
        directory_id or f"d{broker_id}",
        voters,
        log,
        run,
        fsync=True,
        clock_ms=clock_ms,
        heartbeat_interval_ms=500,
        history=history,
    )


class VoterHost:
    """A fake broker that only votes."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        broker_id: int,
        disk: FaultyDisk,
        voters: Any,
        directory_id: str | None = None,
    ) -> None:
        self.known = DirectoryHistory(broker_id)
        """The history that its directory knows, apart from the log copy."""
        self.voter = voter(
            disk,
            broker_id,
            voters,
            clock_ms=runtime.monotonic_ms,
            directory_id=directory_id,
            history=lambda: self.known,
        )
        self.appends: list[VoterAppend] = []
        self.gate: Callable[[], Awaitable[None]] | None = None
        """Awaited before an append, to delay it."""
        self.hangs = False
        """Whether it answers nothing."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def link_lost(self, peer: int) -> None: ...

    def link_received(self, request: LinkRequest) -> None:
        request.fail(InvalidRequest("no links here"))

    async def history(self) -> DirectoryHistory:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        return self.known

    async def voter_state(self) -> VoterState:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        return self.voter.state()

    async def voter_new_epoch(self, asked: NewEpoch) -> VoterState:
        return await self.voter.new_epoch(asked)

    async def voter_join(self, asked: JoinVoters) -> VoterState:
        return await self.voter.join(asked)

    async def voter_fetch(self, epoch: int, offset: int) -> VoterLog:
        return self.voter.fetch(epoch, offset)

    async def voter_append(self, asked: VoterAppend) -> VoterAppended:
        if self.gate is not None:
            await self.gate()
        self.appends.append(asked)
        return await self.voter.append(asked)

    async def voter_install(
        self, epoch: int, snapshot: LogSnapshot, controller: str, directory_id: str
    ) -> None:
        await self.voter.install(epoch, snapshot, controller, directory_id)


class VoterWorld:
    """Voters 0 to n-1. A killed voter finds its disk again when it is restarted."""

    def __init__(
        self, count: int = 1, roles: dict[str, Callable[..., Actor]] | None = None
    ) -> None:
        self.world = InprocWorld(lambda role: {BROKER: VoterHost, **(roles or {})}[role])
        self.runtime: InprocRuntime = self.world.runtime()
        self.disks = [FaultyDisk() for _ in range(count)]
        self.voters = tuple((one, f"d{one}") for one in range(count))
        self.hosts: dict[int, VoterHost] = {}

    async def up(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            args = {"broker_id": broker_id, "disk": self.disks[broker_id], "voters": self.voters}
            name = broker_name(CLUSTER, broker_id)
            await self.runtime.spawn(ActorSpec(name, BROKER, args))
            host = self.world.resident(name).actor
            assert isinstance(host, VoterHost)
            self.hosts[broker_id] = host

    async def down(self, broker_id: int) -> None:
        await self.runtime.kill(await self.runtime.find(broker_name(CLUSTER, broker_id)))
        self.disks[broker_id].kill()
        del self.hosts[broker_id]

"""Several controllers and three voters with lost messages and crashes: what is committed stays.

A run is a seed. In virtual time controllers start, append and vanish, voters lose power with their
unsynced data, or only their process, and calls or their answers get lost. Whatever one controller
was told is committed must be in the log of every controller that commits anything later, at the
same offset.
"""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.controller.rules.quorum import QuorumLost
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.names import BROKER, broker_name
from raylog.actors.runtime.base import ActorRef, PeerLost, PeerTimeout
from raylog.actors.runtime.inproc import InprocRuntime
from raylog.simulation.loop import run_in_virtual_time
from tests.worlds.broker.voters import CLUSTER, VoterHost, VoterWorld
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.virtual_time import VirtualRuntime, VirtualWorld

VOTERS = 3
SECONDS = 40
SETTLE_SECONDS = 20


class LossyWorld(VirtualWorld):
    """A world that loses calls."""

    def __init__(self, seed: int) -> None:
        super().__init__(lambda role: {BROKER: VoterHost}[role], seed)
        self.loss = self.random.choice([0.0, 0.01, 0.05])
        self.blocked: set[tuple[str | None, str]] = set()
        """(controller, voter) pairs that cannot communicate."""

    def runtime_for(self, instance: str, name: str | None) -> InprocRuntime:
        return LossyRuntime(self, instance, name)


class LossyRuntime(VirtualRuntime):
    """Loses a call before it takes effect, or its answer."""

    def __init__(self, world: LossyWorld, instance: str, name: str | None) -> None:
        super().__init__(world, instance, name)
        self._lossy = world

    async def call(
        self, peer: ActorRef | str, method: str, *args: object, timeout_ms: int
    ) -> object:
        chance = self._lossy.random
        if (self._name, str(peer)) in self._lossy.blocked or chance.random() < self._lossy.loss:
            await asyncio.sleep(chance.uniform(0, 0.2))
            raise PeerTimeout("lost on the way there")
        answer = await super().call(peer, method, *args, timeout_ms=timeout_ms)
        if chance.random() < self._lossy.loss:
            raise PeerLost("lost on the way back")
        if chance.random() < self._lossy.loss:
            await asyncio.sleep(chance.uniform(0, 0.5))
        return answer


class Voters(VoterWorld):
    """The voters of a lossy world."""

    def __init__(self, seed: int) -> None:
        super().__init__(VOTERS)
        self.world: LossyWorld = LossyWorld(seed)
        self.runtime = self.world.runtime()

    async def power_loss(self, broker_id: int, chance: Random) -> None:
        await self.runtime.kill(await self.runtime.find(broker_name(CLUSTER, broker_id)))
        self.disks[broker_id].crash(chance)
        del self.hosts[broker_id]


class History:
    """What controllers were told is committed."""

    def __init__(self) -> None:
        self.committed: list[bytes] = []
        self.commits = 0
        self.epochs: set[int] = set()

    def took_over(self, epoch: int) -> None:
        assert epoch not in self.epochs, "an epoch has one controller"
        self.epochs.add(epoch)

    def commit(self, log: list[bytes]) -> None:
        shorter = min(len(log), len(self.committed))
        assert log[:shorter] == self.committed[:shorter], "what counted has changed"
        self.commits += 1
        if len(log) > len(self.committed):
            self.committed = log


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.voters = Voters(seed)
        self.chance = self.voters.world.random
        self.history = History()
        self.ends = 0.0
        self.serial = 0

    async def main(self) -> None:
        loop = asyncio.get_running_loop()
        loss, self.voters.world.loss = self.voters.world.loss, 0.0
        await self.voters.up(*range(VOTERS))
        await self.control("founder", entries=2)
        self.voters.world.loss = loss
        self.ends = loop.time() + SECONDS
        await asyncio.gather(
            self.break_things(), self.block_ways(), *(self.controllers(one) for one in range(3))
        )
        self.voters.world.loss = 0.0
        self.voters.world.blocked.clear()
        before = list(self.history.committed)
        await asyncio.sleep(SETTLE_SECONDS)
        await self.control("last", entries=1)
        assert self.history.committed[: len(before)] == before, "what counted is lost"
        assert len(self.history.committed) > len(before)
        assert self.voters.world.failures == []

    async def controllers(self, number: int) -> None:
        """Run one controller after another. Some compete with those of other numbers."""
        loop = asyncio.get_running_loop()
        generation = 0
        while loop.time() < self.ends:
            generation += 1
            try:
                await self.control(f"{number}.{generation}", entries=self.chance.randint(1, 20))
            except QuorumLost:
                await asyncio.sleep(self.chance.uniform(0, 0.5))

    async def control(self, name: str, entries: int) -> None:
        """Win an epoch, append its first entry and some more."""
        number = name.partition(".")[0]
        runtime = self.voters.world.runtime_for(name, number)
        quorum = VoterQuorum(runtime, CLUSTER, range(VOTERS), name)
        await quorum.take_over()
        self.history.took_over(quorum.epoch)
        for _ in range(entries):
            batch = [self.entry(quorum, ahead) for ahead in range(self.chance.randint(1, 2))]
            await quorum.append(batch)
            log = contents(quorum)
            self.history.commit(log)
            if self.chance.random() < 0.2:
                records = tuple(log)
                await quorum.install_snapshot(LogSnapshot(len(log), quorum.epoch, records))
            await asyncio.sleep(self.chance.uniform(0, 0.5))

    def entry(self, quorum: VoterQuorum, ahead: int) -> LogEntry:
        self.serial += 1
        record = b"%d@%d" % (self.serial, quorum.epoch)
        return LogEntry(quorum.next_offset + ahead, quorum.epoch, (record,))

    async def block_ways(self) -> None:
        """Cut controllers off from some voters. They continue, and others start."""
        loop = asyncio.get_running_loop()
        names = [broker_name(CLUSTER, one) for one in range(VOTERS)]
        while loop.time() < self.ends:
            self.voters.world.blocked = {
                (str(number), name)
                for number in range(3)
                for name in self.chance.sample(names, self.chance.choice([0, 0, 1, 1, 2]))
            }
            await asyncio.sleep(self.chance.uniform(0, 6))

    async def break_things(self) -> None:
        """Stop one voter after another for a while, and sometimes two at once."""
        loop = asyncio.get_running_loop()
        while loop.time() < self.ends:
            await asyncio.sleep(self.chance.uniform(0, 5))
            broken = self.chance.sample(range(VOTERS), self.chance.choice([1, 1, 1, 2]))
            for broker_id in broken:
                if self.chance.random() < 0.5:
                    await self.voters.power_loss(broker_id, self.chance)
                else:
                    await self.voters.down(broker_id)
            await asyncio.sleep(self.chance.uniform(0, 4))
            await self.voters.up(*broken)


def contents(quorum: VoterQuorum) -> list[bytes]:
    """All records of a controller's log."""
    snapshot, entries = quorum.adopted
    return [*snapshot.records, *(one for entry in entries for one in entry.records)]


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30))
def test_committed_records_stay_committed(seed: int) -> None:
    run = Run(seed)
    run_in_virtual_time(lambda _: run.main())
    assert run.history.commits >= 2


def test_a_voter_that_lost_its_directory_does_not_help_to_forget() -> None:
    async def scenario() -> None:
        voters = Voters(1)
        voters.world.loss = 0.0
        await voters.up(0, 1, 2)
        await voters.down(2)
        await asyncio.sleep(3)
        first = VoterQuorum(voters.runtime, CLUSTER, range(VOTERS), "first")
        with pytest.raises(QuorumLost, match="0 of 3 voters answer"):
            await first.take_over()  # a cluster begins with all its voters
        await voters.up(2)
        await first.take_over()
        await voters.down(2)
        await first.append([LogEntry(0, first.epoch, (b"it",))])
        await voters.down(1)
        voters.disks[1] = FaultyDisk()
        await voters.up(1, 2)
        await voters.down(0)
        await asyncio.sleep(3)
        second = VoterQuorum(voters.runtime, CLUSTER, range(VOTERS), "second")
        with pytest.raises(QuorumLost, match="1 of 3 voters answer"):
            await second.take_over()
        await voters.up(0)
        await second.take_over()
        assert contents(second) == [b"it"]

    run_in_virtual_time(lambda _: scenario())

"""Voters are added, removed and lost while controllers come and go: what is committed stays.

As in `test_metadata_quorum`, a run is a seed. Controllers start, append, change the voters and
vanish, calls get lost, brokers lose power, and sometimes a broker comes back with an empty
directory. An epoch has one controller, whatever voter set it was won from, and what one controller
was told is committed is in the log of every later one.
"""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.controller.messages import AddVoter, RemoveVoter
from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.controller.rules.quorum import QuorumLost
from raylog.actors.controller.rules.voters import VoterControl
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.image import BrokerRegistration, MetadataImage
from raylog.actors.metadata.records import Voters, VotersChanged, encode_record
from raylog.actors.names import BROKER, broker_name
from raylog.actors.runtime.base import ActorSpec
from raylog.simulation.loop import run_in_virtual_time
from raylog.wire.errors import KafkaError
from tests.property.test_metadata_quorum import History, LossyWorld, contents
from tests.worlds.broker.voters import CLUSTER, VoterHost
from tests.worlds.storage.disk import FaultyDisk

BROKERS = 5
FOUNDERS: Voters = tuple((one, f"d{one}") for one in range(3))
SECONDS = 25
SETTLE_SECONDS = 20
LEASE_MS = 2_000


class Brokers:
    """Brokers that may hold the metadata log, each in a directory that can be lost."""

    def __init__(self, seed: int) -> None:
        self.world = LossyWorld(seed)
        self.runtime = self.world.runtime()
        self.disks = [FaultyDisk() for _ in range(BROKERS)]
        self.directories = [f"d{one}" for one in range(BROKERS)]
        self.down = set(range(BROKERS))

    async def up(self, broker_id: int) -> None:
        if broker_id not in self.down:
            return
        args = {
            "broker_id": broker_id,
            "disk": self.disks[broker_id],
            "voters": FOUNDERS,
            "directory_id": self.directories[broker_id],
        }
        await self.runtime.spawn(ActorSpec(broker_name(CLUSTER, broker_id), BROKER, args))
        assert isinstance(self.world.resident(broker_name(CLUSTER, broker_id)).actor, VoterHost)
        self.down.discard(broker_id)

    async def end(self, broker_id: int, *, power: bool) -> None:
        self.down.add(broker_id)
        await self.runtime.kill(await self.runtime.find(broker_name(CLUSTER, broker_id)))
        if power:
            self.disks[broker_id].crash(self.world.random)
        else:
            self.disks[broker_id].kill()

    def lose_directory(self, broker_id: int) -> None:
        """Lose the directory of a broker that is down."""
        self.disks[broker_id] = FaultyDisk()
        self.directories[broker_id] += "'"

    def intact(self, voters: Voters) -> int:
        """How many of these voters have not lost their directory."""
        return sum(self.directories[one] == directory_id for one, directory_id in voters)


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.brokers = Brokers(seed)
        self.chance = self.brokers.world.random
        self.history = History()
        self.in_force: list[Voters] = [FOUNDERS]
        """The last committed voter set, and those appended since."""
        self.changes = 0
        self.lost = 0
        self.ends = 0.0
        self.serial = 0

    async def main(self) -> None:
        world = self.brokers.world
        loss, world.loss = world.loss, 0.0
        for broker_id in range(BROKERS):
            await self.brokers.up(broker_id)
        await self.control("founder", steps=2)
        world.loss = loss
        self.ends = asyncio.get_running_loop().time() + SECONDS
        await asyncio.gather(self.break_things(), *(self.controllers(one) for one in range(3)))
        world.loss = 0.0
        before = list(self.history.committed)
        await asyncio.sleep(SETTLE_SECONDS)
        await self.settle()
        assert self.history.committed[: len(before)] == before, "what counted is lost"
        assert len(self.history.committed) > len(before)
        assert world.failures == []

    async def settle(self) -> None:
        """Start a controller.

        At most its first attempts fail because of what others have left behind.
        """
        for attempt in range(3):
            try:
                await self.control(f"last.{attempt}", steps=1)
            except QuorumLost:
                await asyncio.sleep(LEASE_MS / 1000)
            else:
                return
        raise AssertionError("nobody takes over")

    async def controllers(self, number: int) -> None:
        """Run one controller after another. Some compete with those of other numbers."""
        generation = 0
        while asyncio.get_running_loop().time() < self.ends:
            generation += 1
            try:
                await self.control(f"{number}.{generation}", steps=self.chance.randint(1, 20))
            except QuorumLost:
                await asyncio.sleep(self.chance.uniform(0, 0.5))

    async def control(self, name: str, steps: int) -> None:
        """Win an epoch, append its first entry, then append, snapshot and change voters."""
        runtime = self.brokers.world.runtime_for(name, name)
        known = self.chance.sample(range(BROKERS), self.chance.randint(3, BROKERS))
        quorum = VoterQuorum(runtime, CLUSTER, range(3) if name == "founder" else known, name)
        await quorum.take_over()
        self.history.took_over(quorum.epoch)
        machine = VoterControl(self.image(quorum))
        await self.append(quorum, encode_record(VotersChanged(quorum.voters)))
        for _ in range(steps):
            kind = self.chance.random()
            if kind < 0.3:
                await self.change(quorum, machine, runtime.monotonic_ms() - LEASE_MS)
            elif kind < 0.45:
                log = contents(quorum)
                snapshot = LogSnapshot(len(log), quorum.epoch, tuple(log))
                await quorum.install_snapshot(snapshot)
            else:
                self.serial += 1
                await self.append(quorum, b"%d@%d" % (self.serial, quorum.epoch))
            await asyncio.sleep(self.chance.uniform(0, 0.5))

    def image(self, quorum: VoterQuorum) -> MetadataImage:
        """The machine's knowledge: the current voter set, and the registered brokers."""
        image = MetadataImage(voters=quorum.voters)
        for one, directory_id in enumerate(self.brokers.directories):
            image.brokers[one] = BrokerRegistration(
                one, 1, (), None, directory_id, "i", fenced=False, build="", node_id=""
            )
        return image

    async def append(self, quorum: VoterQuorum, record: bytes) -> None:
        await quorum.append([LogEntry(quorum.next_offset, quorum.epoch, (record,))])
        self.history.commit(contents(quorum))

    async def change(self, quorum: VoterQuorum, machine: VoterControl, since_ms: float) -> None:
        """Add or remove a voter, as the machine allows it."""
        broker_id = self.chance.randrange(BROKERS)
        members = dict(quorum.voters)
        committed = quorum.next_offset
        try:
            if broker_id in members:
                asked = RemoveVoter(broker_id, members[broker_id])
                decision = machine.remove(asked, committed, quorum.rules.in_contact_since(since_ms))
            else:
                directory_id = self.brokers.directories[broker_id]
                machine.begin_joining(AddVoter(broker_id, directory_id, 1_000), committed)
                if not await self.brought_level(quorum, broker_id, directory_id):
                    machine.gave_up()
                    return
                decision = machine.joined(quorum.rules.in_contact_since(since_ms))
        except KafkaError:
            return
        [record] = decision.records
        assert isinstance(record, VotersChanged)
        if self.brokers.intact(record.voters) * 2 <= len(record.voters):
            return  # no operator would: of these voters a majority is known to be lost
        self.in_force.append(record.voters)
        machine._image.voters = record.voters
        await self.append(quorum, encode_record(record))
        self.in_force = [record.voters]
        self.changes += 1

    async def brought_level(self, quorum: VoterQuorum, broker_id: int, directory_id: str) -> bool:
        try:
            async with asyncio.timeout(1):
                if await quorum.bring_level(broker_id, directory_id):
                    return True
        except (TimeoutError, QuorumLost):
            return False
        raise QuorumLost("a copy knows a later epoch")

    async def break_things(self) -> None:
        """Stop brokers for a while. Sometimes one comes back empty."""
        while asyncio.get_running_loop().time() < self.ends:
            await asyncio.sleep(self.chance.uniform(0, 3))
            broken = self.chance.sample(range(BROKERS), self.chance.choice([1, 1, 1, 2]))
            for broker_id in broken:
                await self.brokers.end(broker_id, power=self.chance.random() < 0.5)
            if self.chance.random() < 0.4 and self.may_be_lost(broken[0]):
                self.brokers.lose_directory(broken[0])
                self.lost += 1
            await asyncio.sleep(self.chance.uniform(0, 3))
            for broker_id in broken:
                await self.brokers.up(broker_id)

    def may_be_lost(self, broker_id: int) -> bool:
        """Whether each voter set that may be current has three voters, with no other one lost."""
        key = (broker_id, self.brokers.directories[broker_id])
        return all(
            key not in voters or (len(voters) >= 3 and self.brokers.intact(voters) == len(voters))
            for voters in self.in_force
        )


def run_to_its_end(run: Run) -> None:
    run_in_virtual_time(lambda _: run.main())


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 30))
def test_committed_records_survive_voter_changes(seed: int) -> None:
    run = Run(seed)
    run_to_its_end(run)
    assert run.history.commits >= 2


def test_such_runs_change_voters_and_lose_directories() -> None:
    runs = [Run(seed) for seed in range(3)]
    for run in runs:
        run_to_its_end(run)
    assert sum(run.changes for run in runs) >= 20
    assert sum(run.lost for run in runs) >= 3

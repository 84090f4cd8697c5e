"""Simulations of losses that no guarantee covers.

After some ordinary faults, and when the clients are gone, one of these methods runs:

| disaster            | what is lost                                                              |
| ------------------- | ------------------------------------------------------------------------- |
| `_lose_metadata`    | the copies of the metadata log of all voters, or their whole directories  |
| `_restore_metadata` | the same, and an older copy takes its place                               |
| `_lose_power`       | what no machine had synced: all lose power at once                        |
| `_elect_unclean`    | a leader's machine, while no other replica is in sync                     |

The cluster may then be unable to serve. But no broker may accept metadata older than it has known,
or remove anything that an operator could still use, and it must say what can be done. When what was
lost is back in place, the cluster serves everything again, with all acknowledged records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from raylog.actors.common_messages import TopicId
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import NewTopic
from raylog.actors.controller.rules.internal_topics import internal_topic
from raylog.actors.controller.rules.voters import VOTERS_WANTED, WANTED_AGAIN_MS
from raylog.actors.metadata.records import Voters
from raylog.actors.names import BROKER, OFFSETS_TOPIC
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.simulation import branches
from raylog.simulation.clients import Ledger, Producer
from raylog.simulation.cluster import Cluster
from raylog.simulation.directories import METADATA
from raylog.simulation.faults import WEIGHTS, draw_weights
from raylog.simulation.keeping import Kept
from raylog.simulation.loop import SimLoop
from raylog.simulation.properties import Property
from raylog.simulation.scenario import LOST, Plan, Simulation
from raylog.simulation.volume import Directory, Inode
from raylog.simulation.world import Machine
from raylog.wire.errors import KafkaError

ORDINARY = (
    "kill",
    "restart_cleanly",
    "stop_node",
    "pause",
    "cut_one_way",
    "cut_both_ways",
    "isolate",
    "bad_weather",
    "slow",
)
"""Faults that lose no data."""
NOTED_S = 2.5
"""After this time every broker has written down which metadata it follows."""
LASTS_S = (3.0, 8.0)
ELECTED_S = 8.0
GROWN_S = 2.5 * WANTED_AGAIN_MS / 1_000
UNCLEAN = "unclean.leader.election.enable"
Replicas = tuple[int, ...]
SPELLINGS = ("true", "TRUE", "True")
"""Kafka treats all of these alike."""
WAY_OUT = "estore"
"""Part of a word that a refusal must contain: restore, Restored."""


class DisasterSimulation(Simulation):
    """One run."""

    fault_s = 3.0
    served_again_s = 40.0
    branches = branches.DISASTERS

    def __init__(self, loop: SimLoop, seed: int, plan: Plan) -> None:
        super().__init__(loop, seed, plan)
        self.observer.is_unclean = True
        self._older: dict[str, Directory] = {}
        """By machine, its data directory as it was before the last topics were created."""
        self._aside: dict[str, dict[str, Inode | Directory | None]] = {}
        """What was lost: by machine, the paths and their contents."""

    def _draw_brokers(self) -> int:
        return self.random.choice((2, 2, 3, 3, 3))

    def _new_cluster(self, brokers: int) -> Cluster:
        """Half of the clusters with three brokers begin with one broker, and so with one voter."""
        first = 1 if brokers > 2 and self.random.random() < 0.5 else None
        return Cluster(self.world, brokers, self._settings(), first=first)

    def _draw_weights(self) -> dict[str, int]:
        ordinary = {kind: weight * (kind in ORDINARY) for kind, weight in WEIGHTS.items()}
        return draw_weights(self.random, ordinary)

    def _settings(self) -> dict[str, str]:
        settings = {**super()._settings(), "min.insync.replicas": "1"}
        settings["offsets.topic.num.partitions"] = "2"
        del settings["controller.quorum.auto.join.enable"]
        return settings

    async def _make_topics(self) -> None:
        """Let brokers that join later find an internal topic created when there was one broker."""
        if self.cluster.is_growing:
            settings = BrokerSettings(self.cluster.settings)
            await self.operator.make(internal_topic(OFFSETS_TOPIC, settings, 1))
            await self.cluster.grow()
        await super()._make_topics()

    # ---- the course of events ------------------------------------------------------------

    async def _judge(self) -> None:
        """Check the cluster during and after the disaster."""
        await self._copy_and_go_on()
        disasters = [self._lose_metadata, self._restore_metadata, self._lose_power]
        if len(self.cluster.machines) > 2:
            disasters += [self._elect_unclean]
        await self.random.choice(disasters)()
        await self._served_again()
        await super()._judge()

    async def _copy_and_go_on(self) -> None:
        """Create a topic that older copies lack, and let brokers write down what they follow."""
        for machine in self.cluster.machines:
            tree = machine.disk.copy_of(self._path(machine))
            assert tree is not None, "every broker has a directory"
            self._older[machine.name] = tree
        await self.operator.create("later", 1)
        await self._served_again()
        await self.cluster.runtime.sleep(NOTED_S)
        if len(self.cluster.machines) >= VOTERS_WANTED:
            await self._look_at_growth()

    async def _look_at_growth(self) -> None:
        """Wait until three brokers have three voters, and internal topics three replicas.

        A voter that was refused, or that left, is added again after a while.
        """
        end_s = self.world.loop.time() + GROWN_S
        while not (grown := self._growth())[0] and self.world.loop.time() < end_s:
            await self.cluster.runtime.sleep(0.5)
        self.checks.hold(Property.GROWN, *grown)

    def _growth(self) -> tuple[bool, Voters, list[int]]:
        """Whether the cluster has grown, with its voters and the replicas of internal partitions.

        A topic whose partitions the operator moved to fewer brokers is skipped.
        """
        image = self.cluster.newest_image()
        replicas = [
            len(state.replicas)
            for topic in image.topics.values()
            if topic.name == OFFSETS_TOPIC
            for state in topic.partitions
        ]
        is_left = self.operator.moved_to.get(OFFSETS_TOPIC, VOTERS_WANTED) < VOTERS_WANTED
        grown = len(image.voters) >= VOTERS_WANTED and (
            is_left or all(n >= VOTERS_WANTED for n in replicas)
        )
        return grown, image.voters, replicas

    def _path(self, machine: Machine) -> str:
        number = self.cluster.machines.index(machine)
        return str(self.cluster.plan.brokers[number].directory)

    def _voters(self) -> list[Machine]:
        voters = self.cluster.newest_image().voters
        return [self.cluster.machines[broker_id] for broker_id, _ in voters]

    # ---- lost or older metadata -------------------------------------------------------------

    async def _lose_metadata(self) -> None:
        hit = self._voters()
        for_good = [METADATA] if self.random.random() < 0.5 else [""]
        await self._replace(hit, for_good, older=False)

    async def _restore_metadata(self) -> None:
        hit = self._voters()
        everything = len(hit) < len(self.cluster.machines) and self.random.random() < 0.5
        await self._replace(hit, [""] if everything else [METADATA], older=True)

    async def _replace(self, hit: list[Machine], parts: list[str], *, older: bool) -> None:
        """Remove parts of directories, or put older copies there, and check the effects."""
        down = self.random.choice((hit, self.cluster.machines))
        known = self._topics_known(hit if parts == [""] else [])
        serving = self.cluster.serving_controllers()
        with self._another_history():
            for machine in down:
                self.world.stop_machine(machine, power=False)
            for machine in hit:
                for part in parts:
                    self._put(machine, part, older=older)
            replaced = hit if parts == [""] else []
            kept = Kept(self.cluster, self.checks, self.ledgers, replaced)
            for machine in down:
                self.world.start_machine(machine)
            await self._look_on(known)
            await self._ask_why()
            kept.compare()
            if any(one in serving for one in self.cluster.serving_controllers()):
                # It has given the voters back what they lacked, and the cluster has continued.
                self.world.tell("nothing was lost, for the controller lives")
                return
            self.world.tell("what was lost is put back")
            for machine in hit:
                self.world.stop_machine(machine, power=False)
                for path, one in self._aside[machine.name].items():
                    machine.disk.put_back(path, one)
            kept.compare()
        for machine in hit:
            self.world.start_machine(machine)

    def _put(self, machine: Machine, part: str, *, older: bool) -> None:
        path = f"{self._path(machine)}/{part}".rstrip("/")
        disk, tree = machine.disk, self._older[machine.name]
        self._aside.setdefault(machine.name, {})[path] = disk.copy_of(path)
        copy = tree.names.get(part) if part else tree
        disk.put_back(path, copy if older else None)
        how = "gets back an older copy of" if older else "loses"
        self.world.tell(f"{machine.name} {how} {path}")
        for tell in self.world.lost_directory:
            tell(machine)

    @contextmanager
    def _another_history(self) -> Iterator[None]:
        """Suspend the observers: what happens meanwhile is not part of the history."""
        self.observer.is_suspended = self.quorum.is_suspended = True
        try:
            yield
        finally:
            self.observer.is_suspended = self.quorum.is_suspended = False

    def _topics_known(self, forgetful: list[Machine]) -> dict[int, set[TopicId]]:
        """By broker, the topics of the metadata that its directory has recorded."""
        return {
            broker_id: set(broker._machine.image.topics)
            for broker_id, broker in self.cluster.brokers()
            if self.cluster.machine_of(broker_id) not in forgetful
        }

    async def _look_on(self, known: dict[int, set[TopicId]]) -> None:
        """Check that no broker that knew the metadata serves from what is left of it."""
        end_s = self.world.loop.time() + self.random.uniform(*LASTS_S)
        while self.world.loop.time() < end_s:
            await self.cluster.runtime.sleep(0.25)
            for broker_id, broker in self.cluster.brokers():
                lacking = known.get(broker_id, set()) - set(broker._machine.image.topics)
                serves = broker._state == "running" and lacking
                self.checks.hold(
                    Property.OLDER_REFUSED, not serves, f"broker {broker_id} lacks", len(lacking)
                )
            self.checks.raise_violations()

    async def _ask_why(self) -> None:
        """Check that a broker that does not serve says what can be done."""
        refusals: list[str] = []
        silent = 0
        for resident in self.cluster.of_role(BROKER):
            if resident.actor._state == "running":
                continue
            silent += 1
            try:
                await self.cluster.runtime.call(resident.ref, "ready", 100, timeout_ms=2_000)
            except KafkaError as why:
                refusals.append(str(why))
            except (PeerLost, PeerTimeout, ActorGone) as lost:
                self.world.note("nothing said", type(lost).__name__)
        spoken = any(WAY_OUT in one for one in refusals)
        if silent:
            self.checks.hold(Property.REFUSAL_TOLD, spoken, *refusals)

    # ---- power loss, unclean election -------------------------------------------------------

    async def _lose_power(self) -> None:
        """Cut power everywhere at once. Acknowledged records may be lost, metadata may not."""
        for machine in self.cluster.machines:
            self.world.stop_machine(machine, power=True)
        self.world.tell("all machines lose power")
        self._forget_what_was_acknowledged()
        for machine in self.cluster.machines:
            self.world.start_machine(machine)

    def _forget_what_was_acknowledged(self) -> None:
        for ledger in self.ledgers:
            ledger.acknowledged.clear()
            ledger.seen.clear()
            ledger.refused.clear()
            ledger.sequences.clear()

    async def _elect_unclean(self) -> None:
        """Lose the only in-sync replica for good. Another one leads where that is allowed."""
        late = self.random.random() < 0.5
        configs = {} if late else {UNCLEAN: self.random.choice(SPELLINGS)}
        topic_id = TopicId(await self.operator.make(NewTopic("loose", 1, 2, configs=configs)))
        state = self.cluster.newest_image().topics[topic_id].partitions[0]
        leader = state.leader
        [follower] = [one for one in state.replicas if one != leader]
        machines = self.cluster.machines
        self.world.tell(f"loose-0 is left to broker {leader} alone")
        self.world.stop_machine(machines[follower], power=False)
        if await self._waits_for(topic_id, lambda isr, _: isr == (leader,)):
            await self._write_to(topic_id)
        self.world.stop_machine(machines[leader], power=False)
        self.world.start_machine(machines[follower])
        if late:
            await self._waits_for(topic_id, lambda _, leads: leads < 0)
            self.world.tell(f"{UNCLEAN} of loose is set")
            await self.cluster.set_config("loose", UNCLEAN, self.random.choice(SPELLINGS))
        elected = await self._waits_for(topic_id, lambda _, leads: leads == follower)
        self.checks.hold(Property.UNCLEAN_ELECTED, elected, f"broker {follower} does not lead")
        self.world.start_machine(machines[leader])

    async def _waits_for(self, topic_id: TopicId, is_so: Callable[[Replicas, int], bool]) -> bool:
        """Wait for a state of the partition. Returns whether it came in time."""
        end_s = self.world.loop.time() + ELECTED_S
        while self.world.loop.time() < end_s:
            state = self.cluster.newest_image().partition(topic_id, 0)
            if state is not None and is_so(state.isr, state.leader):
                return True
            await self.cluster.runtime.sleep(0.1)
        return False

    async def _write_to(self, topic_id: TopicId) -> None:
        """Write records that the other replica does not have."""
        ledger = Ledger("loose", topic_id, 0, 1)
        writer = Producer(self.cluster, self.checks, ledger, next(self._probes), idempotent=False)
        for _ in range(3):
            try:
                await writer.write_once()
            except LOST as failure:
                self.world.note("not written", type(failure).__name__)

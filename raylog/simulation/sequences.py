"""Sequences of faults: harmless alone, they do damage one after another at the wrong moment.

Some wait for an answer between actors and strike before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from raylog.actors.common_messages import PartitionKey
from raylog.actors.controller.messages import (
    AlterPartitions,
    AlterReassignments,
    CreateTopics,
    ElectLeaders,
    IsrOutcome,
    NewTopic,
    ReassignPartition,
)
from raylog.actors.metadata.records import NO_LEADER
from raylog.actors.metadata.voting import VoterAppend
from raylog.actors.names import BROKER, CONTROLLER, REPLICA
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.simulation.cluster import CALL_TIMEOUT_MS
from raylog.simulation.damage import Damage
from raylog.simulation.world import Machine, Resident
from raylog.wire.errors import ErrorCode, KafkaError

Spring = Callable[[Resident, tuple[Any, ...], Any], bool]
"""Called with the answering actor, arguments and answer. Returns False if it did not match."""
WAIT_S = 4.0
"""How long a trap waits for its moment."""


@dataclass(slots=True, eq=False)
class _Trap:
    method: str
    spring: Spring
    until_s: float


class Sequences:
    """Applies several faults in order."""

    def __init__(self, damage: Damage) -> None:
        self._do = damage
        self._random = damage.random
        self._traps: list[_Trap] = []
        self._asked = 0
        damage.world.observers.append(self._answered)

    def _trap(self, method: str, spring: Spring) -> None:
        until_s = self._do.world.loop.time() + WAIT_S
        self._traps.append(_Trap(method, spring, until_s))

    def _answered(
        self, resident: Resident, method: str, args: tuple[Any, ...], answer: object
    ) -> None:
        if not self._traps or self._do.is_over:
            return
        now_s = self._do.world.loop.time()
        self._traps = [one for one in self._traps if one.until_s > now_s]
        for trap in tuple(self._traps):
            if trap.method == method and trap.spring(resident, args, answer):
                self._traps.remove(trap)

    # ---- in-sync replicas ----------------------------------------------------------------

    def slow_machine(self) -> None:
        """Slow down all messages of a machine."""
        machine = self._do.machine()
        factor, seconds = self._random.choice((10.0, 50.0, 300.0)), self._do.seconds()
        self._do.tell(f"messages from and to {machine.name} take {factor:.0f} times as long")
        pairs = [(machine.name, other) for other in self._do.others(machine)]
        self._do.slow(pairs + [(other, one) for one, other in pairs], factor, seconds)

    def pause_followers(self) -> None:
        """Pause the replicas of all machines but one, one by one, then resume all of them."""
        seconds = self._random.uniform(4, 8)
        step_s = seconds * self._random.uniform(0.2, 0.35)
        machines = self._random.sample(self._do.cluster.machines, len(self._do.cluster.machines))
        for number, machine in enumerate(machines[1:]):
            wait_s = min(number * step_s, 0.8 * seconds)
            self._do.later(wait_s, partial(self._pause_on, machine, seconds - wait_s))

    def _pause_on(self, machine: Machine, seconds: float) -> None:
        replica = self._do.on(machine, REPLICA)
        if replica is not None:
            self._do.pause(replica, seconds)

    def hold_back_change(self) -> None:
        """Keep a leader from learning for a while that its ISR was changed."""
        self._trap("alter_partitions", self._hold_back)

    def _hold_back(self, controller: Resident, args: tuple[Any, ...], answer: object) -> bool:
        if controller.spec.role != CONTROLLER:
            return False
        [asked] = args
        assert isinstance(asked, AlterPartitions), "that is what it is asked with"
        leader = self._do.cluster.machines[asked.broker_id]
        changed = (
            [one for one in answer if isinstance(one, IsrOutcome) and one.error is ErrorCode.NONE]
            if isinstance(answer, list)
            else []
        )
        if not changed:
            return False
        self._do.tell(f"{leader.name} does not hear of its in-sync replicas")
        seconds = self._random.uniform(0.3, 3)
        broker = self._do.on(leader, BROKER)
        if controller.machine is leader or self._random.random() < 0.5:
            if broker is not None:
                self._do.pause(broker, seconds)
        else:
            self._do.cut([(controller.machine.name, leader.name)], seconds)
        members = [one for one in self._random.choice(changed).isr if one != asked.broker_id]
        if members:
            follower = self._do.cluster.machines[self._random.choice(members)]
            self._do.later(
                self._random.uniform(0, 0.02), lambda: self._hold_up(leader, follower, seconds)
            )
        return True

    def _hold_up(self, leader: Machine, follower: Machine, seconds: float) -> None:
        """Let a follower fall behind."""
        replica = self._do.on(follower, REPLICA)
        how = self._random.choice(("pause", "slow", "cut"))
        if how == "pause" and replica is not None:
            self._do.pause(replica, seconds)
        elif how == "cut":
            self._do.tell(f"nothing gets from {leader.name} to {follower.name}")
            self._do.cut([(leader.name, follower.name)], seconds)
        else:
            self._do.tell(f"messages from {leader.name} to {follower.name} take long")
            self._do.slow([(leader.name, follower.name)], 300.0, seconds)

    def needed_follower(self) -> Machine:
        """A machine without which a leader would be alone in sync, or any if there is none."""
        found = [
            self._do.cluster.machines[one]
            for topic in self._do.cluster.newest_image().topics.values()
            for state in topic.partitions
            if len(state.isr) == 2 and state.leader in state.isr
            for one in state.isr
            if one != state.leader
        ]
        return self._random.choice(found) if found else self._do.machine()

    def delay_return(self, machine: Machine) -> None:
        """After a machine's return, let a leader hear nothing of it except through the metadata.

        Its replicas may hold less than before, so the leader must not use what they said earlier.
        """
        broker_id = self._do.cluster.machines.index(machine)
        seconds = self._random.uniform(1, 2.5)

        def spring(controller: Resident, args: tuple[Any, ...], _answer: object) -> bool:
            if controller.spec.role != CONTROLLER or args[0].broker_id != broker_id:
                return False
            leaders = self._leaders_over(broker_id, controller.machine)
            if leaders:
                leader = self._random.choice(leaders).name
                self._do.tell(f"{machine.name} is back, nothing gets from it to {leader}")
                self._do.cut([(machine.name, leader)], seconds)
            return True

        self._trap("register_broker", spring)

    def part_histories(self) -> None:
        """Let three brokers lead in turn, without the first's records on the second (KIP-279).

        The third gets those, but none of the second. When the second returns, the leader names an
        earlier epoch of which the second has no record.
        """
        found = [
            (topic.name, index, state)
            for topic in self._do.cluster.newest_image().topics.values()
            for index, state in enumerate(topic.partitions)
            if len(state.replicas) == 3
            and set(state.isr) == set(state.replicas)
            and self._is_written((topic.topic_id, index), state.leader)
        ]
        if not found:
            return
        name, index, state = self._random.choice(found)
        third = state.leader
        first, second = (one for one in state.replicas if one != third)
        self._do.tell(f"{name}-{index}: brokers {first}, {second} and {third} lead in turn")
        order = AlterReassignments([ReassignPartition(name, index, (first, second, third))])
        elect = ElectLeaders(False, [(name, index)], CALL_TIMEOUT_MS)
        machine = self._do.cluster.machines
        written_s, more_s = self._random.uniform(0.5, 0.9), self._random.uniform(0.5, 0.9)

        def first_leads() -> None:
            self._pause_on(machine[second], written_s)
            self._ask_controllers("elect_leaders", elect)

        def second_leads() -> None:
            self._pause_on(machine[third], more_s)
            self._kill_on(machine[first])

        self._ask_controllers("alter_reassignments", order)
        self._do.later(0.1, first_leads)
        self._do.later(0.1 + 0.9 * written_s, second_leads)
        self._do.later(0.1 + written_s + 0.8 * more_s, lambda: self._kill_on(machine[second]))

    def _is_written(self, key: PartitionKey, leader: int) -> bool:
        """Whether a partition's leader has records."""
        replica = self._do.on(self._do.cluster.machines[leader], REPLICA)
        partition = None if replica is None else replica.actor._partitions.get(key)
        return partition is not None and partition.log.log_end_offset > 0

    def _kill_on(self, machine: Machine) -> None:
        replica = self._do.on(machine, REPLICA)
        if replica is not None:
            self._do.kill(replica)

    def _leaders_over(self, broker_id: int, spared: Machine) -> list[Machine]:
        """The machines that lead replicas of a broker and have the fewest followers in sync."""
        led = [
            (len(state.isr), self._do.cluster.machines[state.leader])
            for topic in self._do.cluster.newest_image().topics.values()
            for state in topic.partitions
            if broker_id in state.replicas and state.leader not in (broker_id, NO_LEADER)
        ]
        found = [(count, machine) for count, machine in led if machine is not spared]
        fewest = min((count for count, _ in found), default=0)
        return [machine for count, machine in found if count == fewest]

    def isolate_leader(self) -> None:
        """Isolate a machine until others lead its partitions, or a little longer."""
        machine = self._do.machine()
        seconds = self._random.uniform(1.8, 4)
        self._do.tell(f"{machine.name} is cut off from all other machines for {seconds:.1f} s")
        self._do.isolate(machine, self._do.others(machine), seconds)

    # ---- the metadata quorum -------------------------------------------------------------

    def cut_while_writing(self) -> None:
        """Isolate a controller while its append is on its way to the voters."""
        seconds = self._random.uniform(2, 6)
        self._trap("voter_append", lambda _, args, __: self._cut_writer(args[0], seconds))
        self._ask_for_topic()

    def _cut_writer(self, asked: VoterAppend, seconds: float) -> bool:
        writer = self._do.cluster.living(asked.controller)
        if writer is None or not asked.entries:
            return False
        machine = writer.machine
        self._do.tell(f"{machine.name}, whose controller writes, is cut off for {seconds:.1f} s")
        self._do.isolate(machine, self._do.others(machine), seconds)
        return True

    def shake_quorum(self) -> None:
        """Replace controllers while some of their entries are with one voter only.

        The first is isolated and keeps writing. When it ends, the next one is isolated as soon as
        it has won its epoch, with or without the entries of the first.
        """
        controller = self._do.victim(CONTROLLER)
        if controller is None:
            return
        machine, name = controller.machine, controller.ref.name
        seconds = self._random.uniform(0.2, 1.8)
        self._do.tell(f"{machine.name}, where a controller lives, is cut off for {seconds:.1f} s")
        self._do.isolate(machine, self._do.others(machine), seconds)
        for _ in range(self._random.randint(1, 3)):
            self._do.later(self._random.uniform(0, seconds), self._ask_for_topic)

        def end() -> None:
            found = self._do.cluster.living(name)
            if found is not None:
                self._do.kill(found)
            self._trap("voter_new_epoch", self._won)

        self._do.later(seconds, end)

    def _won(self, _voter: Resident, args: tuple[Any, ...], _answer: object) -> bool:
        winner = self._do.cluster.living(args[0].controller, ready=False)
        if winner is None:
            return False
        machine = winner.machine
        seconds = self._random.uniform(2, 6)

        def strike() -> None:
            self._do.tell(f"{machine.name}, whose controller is new, is cut off")
            self._do.isolate(machine, self._do.others(machine), seconds)

        self._do.later(self._random.uniform(0, 0.03), strike)
        return True

    def _ask_for_topic(self) -> None:
        """Make every controller that considers itself active decide something."""
        self._asked += 1
        asked = CreateTopics([NewTopic(f"asked-{self._asked}", 1, 2)])
        self._ask_controllers("create_topics", asked)

    def _ask_controllers(self, method: str, asked: object) -> None:
        """Call every controller that considers itself active. The outcome is checked elsewhere."""
        runtime = self._do.cluster.runtime

        async def ask(name: str) -> None:
            try:
                await runtime.call(name, method, asked, timeout_ms=1_000)
            except (PeerLost, PeerTimeout, ActorGone, KafkaError) as lost:
                self._do.world.note("in vain", method, type(lost).__name__)

        for one in self._do.cluster.of_role(CONTROLLER):
            runtime.start(ask(one.ref.name), method)

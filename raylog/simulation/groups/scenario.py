"""Simulations of groups: members of both protocols, committing tools, and recreated topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raylog.actors.common_messages import TopicId
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.rules.internal_topics import internal_topic
from raylog.actors.names import OFFSETS_TOPIC
from raylog.simulation.asking import UNANSWERED
from raylog.simulation.clients import Ledger, Stoppable
from raylog.simulation.faults import Faults, draw_weights
from raylog.simulation.groups import branches
from raylog.simulation.groups.churning import Churner
from raylog.simulation.groups.classic import ClassicMember
from raylog.simulation.groups.committing import (
    BY_ID,
    BY_NAME,
    Committer,
    GroupClient,
    Place,
)
from raylog.simulation.groups.consumer import ConsumerMember
from raylog.simulation.groups.faults import GROUP_WEIGHTS, GroupFaults
from raylog.simulation.groups.history import GroupLedger, Ownership
from raylog.simulation.groups.strangers import Stranger
from raylog.simulation.loop import SimLoop
from raylog.simulation.properties import Property
from raylog.simulation.scenario import SERVED_AGAIN_S, Plan, Simulation
from raylog.wire.errors import KafkaError

READ, CHURNED = "read", "churned"
PARTITIONS, CHURNED_PARTITIONS = 3, 2
COMMITTED = ((READ, PARTITIONS), (CHURNED, CHURNED_PARTITIONS))
"""Topics whose offsets are committed, with their numbers of partitions."""
INTERNAL_PARTITIONS = 2
SESSION_MS = 1_500
GROUP_SETTINGS = {
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
MEMBERS = (2, 3)
STRANGERS_EVERY = 4
"""One seed in this many has a client that sends extreme requests."""
LAST_ASKERS = 980
"""The number of the first client that fetches the stored offsets at the end."""


class GroupSimulation(Simulation):
    """One run."""

    fault_s = 7.0
    branches = branches.ALL

    def __init__(self, loop: SimLoop, seed: int, plan: Plan) -> None:
        super().__init__(loop, seed, plan)
        self._has_stranger = seed % STRANGERS_EVERY == STRANGERS_EVERY - 1
        self._groups: list[GroupLedger] = []
        self._committers: list[Committer] = []
        self._members: list[ClassicMember | ConsumerMember] = []
        self._churner: Churner | None = None
        self._strangers: list[Stranger] = []
        self._strike: Callable[[], None] = _nothing

    def _draw_weights(self) -> dict[str, int]:
        return draw_weights(self.random, GROUP_WEIGHTS)

    def _faults(self) -> Faults:
        clients, given_out = len(self._clients()), self.quorum.given_out
        faults = GroupFaults(self.cluster, self.random, clients, self._weights, given_out)
        self._strike = faults.kill_coordinator
        return faults

    def _settings(self) -> dict[str, str]:
        return {**super()._settings(), **GROUP_SETTINGS}

    def _clients(self) -> Sequence[Stoppable]:
        churners = [] if self._churner is None else [self._churner]
        others = [*self._committers, *self._members, *churners, *self._strangers]
        return [*super()._clients(), *others]

    # ---- before --------------------------------------------------------------------------

    async def _make_topics(self) -> None:
        settings = BrokerSettings(self.cluster.settings)
        await self.operator.make(
            internal_topic(OFFSETS_TOPIC, settings, len(self.cluster.machines))
        )
        topic_id = TopicId(await self.operator.create(READ, PARTITIONS))
        self.ledgers = [Ledger(READ, topic_id, 0, 1)]

    def _start_clients(self, pause_s: float) -> None:
        numbers = iter(range(1_000))
        classic = self._group("classic")
        consumers = Ownership(self._group("consumer"), SESSION_MS / 1_000)
        self._members = [
            *[
                ClassicMember(self.cluster, classic, next(numbers), READ)
                for _ in range(self.random.choice(MEMBERS))
            ],
            *[
                ConsumerMember(self.cluster, consumers, next(numbers), READ)
                for _ in range(self.random.choice(MEMBERS))
            ],
        ]
        for topic, partitions in COMMITTED:
            for partition in range(partitions):
                group = self._group(f"tool-of-{topic}-{partition}")
                tool = Committer(self.cluster, group, next(numbers), topic, partition)
                self._committers.append(tool)
        self._churner = Churner(
            self.cluster, next(numbers), CHURNED, CHURNED_PARTITIONS, lambda: self._strike()
        )
        if self._has_stranger:
            self._strangers = [Stranger(self.cluster, next(numbers), READ)]
        for client in (*self._members, *self._committers, self._churner, *self._strangers):
            self.cluster.runtime.start(client.run(pause_s), "client")
        self.cluster.runtime.start(self.operator.run(), "operator")

    def _group(self, group_id: str) -> GroupLedger:
        ledger = GroupLedger(group_id, self.checks)
        self._groups.append(ledger)
        return ledger

    # ---- after ---------------------------------------------------------------------------

    async def _served_again(self) -> None:
        """Wait until members agree, too."""
        await super()._served_again()
        for one in self._members:
            one.is_calm = True
        deadline = self.world.loop.time() + SERVED_AGAIN_S
        while (unsettled := self._unsettled()) and self.world.loop.time() < deadline:
            self.checks.raise_violations()
            await self.cluster.runtime.sleep(0.1)
        self.checks.hold(Property.GROUPS_SETTLE, not unsettled, *unsettled)
        self.world.tell(f"groups have settled: {not unsettled}")
        self.checks.raise_violations()

    def _unsettled(self) -> list[str]:
        """The groups whose members do not own every partition exactly once."""
        owned: dict[str, list[int]] = {}
        for one in self._members:
            owned.setdefault(one.ledger.group_id, []).extend(one.partitions)
        return [
            f"{group_id} has {sorted(found)}"
            for group_id, found in owned.items()
            if sorted(found) != list(range(PARTITIONS))
        ]

    async def _judge(self) -> None:
        await super()._judge()
        for number, ledger in enumerate(self._groups):
            asker = GroupClient(self.cluster, ledger, LAST_ASKERS + number)
            for topic, partitions in COMMITTED:
                await self._ask_for_offsets(asker, topic, partitions)
        if self._churner is not None:
            self.world.tell(f"{CHURNED} was made {self._churner.made} times")

    async def _ask_for_offsets(self, asker: GroupClient, topic: str, partitions: int) -> None:
        """Check that a group has its last committed offsets of this topic, by name and by id."""
        deadline = self.world.loop.time() + SERVED_AGAIN_S
        left = [(version, one) for version in (BY_NAME, BY_ID) for one in range(partitions)]
        while left:
            version, partition = left[-1]
            try:
                topic_id = (await asker.asking.topic(topic)).topic_id
                await asker.fetch(Place(topic, topic_id, partition), version)
            except (*UNANSWERED, KafkaError) as failure:
                late = self.world.loop.time() > deadline
                self.checks.hold(Property.SERVED_AGAIN, not late, asker.label, failure)
                self.checks.raise_violations()
                await asker.asking.pause()
            else:
                left.pop()


def _nothing() -> None:
    """Do nothing, as long as there are no faults."""

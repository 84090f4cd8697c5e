"""The operator of a simulated cluster: creates topics, moves partitions, elects leaders."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from raylog.actors.controller.messages import (
    AlterReassignments,
    ElectLeaders,
    NewTopic,
    ReassignPartition,
)
from raylog.actors.names import CONTROLLER
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.simulation.cluster import CALL_TIMEOUT_MS, Cluster
from raylog.wire.errors import KafkaError

REPLICAS_MIN = 2


class Operator:
    """Acts every other second. Once faults are over, it only creates topics."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        replicas_max: int,
        configs: Mapping[str, str | None] | None = None,
    ) -> None:
        """`configs` are those of the topics that it creates."""
        self._cluster = cluster
        self._random = random
        self._configs = configs or {}
        self._replicas_max = min(replicas_max, len(cluster.machines))
        self._replicas_min = min(REPLICAS_MIN, self._replicas_max)
        self.topics: list[str] = []
        """Topics whose creation was acknowledged."""
        self.partitions: dict[str, int] = {}
        self.moved_to: dict[str, int] = {}
        """By topic, the fewest replicas to which one of its partitions was reassigned."""
        self.is_calm = False
        """Whether to stop moving partitions."""
        self.stopping = False
        self.stopped = False

    @property
    def label(self) -> str:
        """The name in messages."""
        return "the operator"

    async def run(self) -> None:
        """Create topics, move partitions and elect leaders until told to stop."""
        while not self.stopping:
            await self._cluster.runtime.sleep(self._random.uniform(0.5, 3))
            drawn = self._random.random()
            if self.is_calm or drawn < 0.5:
                await self.create(f"more-{len(self.topics)}", 1)
            elif drawn < 0.8:
                await self._move()
            else:
                await self._elect()
        self.stopped = True

    async def create(self, name: str, partitions: int) -> bytes:
        """Create a topic and wait for it. Returns its id."""
        replicas = self._random.randint(self._replicas_min, self._replicas_max)
        return await self.make(NewTopic(name, partitions, replicas, configs=self._configs))

    async def make(self, topic: NewTopic) -> bytes:
        """Create the described topic and wait for it. Returns its id."""
        topic_id = await self._cluster.create(topic)
        self.topics.append(topic.name)
        self.partitions[topic.name] = topic.num_partitions
        return topic_id

    def _partition(self) -> tuple[str, int]:
        name = self._random.choice(self.topics)
        return name, self._random.randrange(self.partitions[name])

    async def _move(self) -> None:
        """Reassign a partition to other brokers, or reorder its replicas."""
        count = self._random.randint(self._replicas_min, self._replicas_max)
        brokers = self._random.sample(range(len(self._cluster.machines)), count)
        name, index = self._partition()
        self._cluster.world.tell(f"{name}-{index} moves to {brokers}")
        self.moved_to[name] = min(count, self.moved_to.get(name, count))
        moves = [ReassignPartition(name, index, tuple(brokers))]
        await self._ask("alter_reassignments", AlterReassignments(moves))

    async def _elect(self) -> None:
        """Elect the preferred leaders."""
        self._cluster.world.tell("preferred leaders are elected")
        await self._ask("elect_leaders", ElectLeaders(False, None, CALL_TIMEOUT_MS))

    async def _ask(self, method: str, asked: object) -> None:
        """Call the serving controllers in turn until one accepts. Failures are ignored."""
        for resident in self._cluster.of_role(CONTROLLER):
            try:
                await self._cluster.runtime.call(
                    resident.ref.name, method, asked, timeout_ms=CALL_TIMEOUT_MS
                )
            except (PeerLost, PeerTimeout, ActorGone, KafkaError) as failure:
                self._cluster.world.note("in vain", method, type(failure).__name__)
            else:
                return

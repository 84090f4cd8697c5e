"""The operator of a simulated cluster: makes topics, moves partitions, elects leaders."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from raylog.actors.controller.api import (
    AlterReassignments,
    ElectLeaders,
    NewTopic,
    ReassignPartition,
)
from raylog.actors.names import CONTROLLER
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.actors.simulation.cluster import CALL_TIMEOUT_MS, Cluster
from raylog.wire.errors import KafkaError

REPLICAS_MIN = 2


class Operator:
    """Does something every other second: all of it while faults last, then topics only."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        replicas_max: int,
        configs: Mapping[str, str | None] | None = None,
    ) -> None:
        """`configs` are those of the topics that it makes."""
        self._cluster = cluster
        self._random = random
        self._configs = configs or {}
        self._replicas_max = min(replicas_max, len(cluster.machines))
        self._replicas_min = min(REPLICAS_MIN, self._replicas_max)
        self.topics: list[str] = []
        """Topics that were acknowledged."""
        self.partitions: dict[str, int] = {}
        self.moved_to: dict[str, int] = {}
        """The fewest replicas that a partition of each topic was moved to."""
        self.is_calm = False
        """Whether nothing is to be moved any more."""
        self.stopping = False
        self.stopped = False

    @property
    def label(self) -> str:
        """For people."""
        return "the operator"

    async def run(self) -> None:
        """Make topics, move partitions, elect leaders, until told to stop."""
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
        """Make a topic and wait for it; its id."""
        replicas = self._random.randint(self._replicas_min, self._replicas_max)
        return await self.make(NewTopic(name, partitions, replicas, configs=self._configs))

    async def make(self, topic: NewTopic) -> bytes:
        """Make a topic as it is described and wait for it; its id."""
        topic_id = await self._cluster.create(topic)
        self.topics.append(topic.name)
        self.partitions[topic.name] = topic.num_partitions
        return topic_id

    def _partition(self) -> tuple[str, int]:
        name = self._random.choice(self.topics)
        return name, self._random.randrange(self.partitions[name])

    async def _move(self) -> None:
        """Have other brokers, or others first, hold a partition."""
        count = self._random.randint(self._replicas_min, self._replicas_max)
        brokers = self._random.sample(range(len(self._cluster.machines)), count)
        name, index = self._partition()
        self._cluster.world.tell(f"{name}-{index} moves to {brokers}")
        self.moved_to[name] = min(count, self.moved_to.get(name, count))
        moves = [ReassignPartition(name, index, tuple(brokers))]
        await self._ask("alter_reassignments", AlterReassignments(moves))

    async def _elect(self) -> None:
        """Have those lead that come first."""
        self._cluster.world.tell("preferred leaders are elected")
        await self._ask("elect_leaders", ElectLeaders(False, None, CALL_TIMEOUT_MS))

    async def _ask(self, method: str, asked: object) -> None:
        """Ask whoever takes itself for the controller, once."""
        for resident in self._cluster.of_role(CONTROLLER):
            try:
                await self._cluster.runtime.call(
                    resident.ref.name, method, asked, timeout_ms=CALL_TIMEOUT_MS
                )
            except (PeerLost, PeerTimeout, ActorGone, KafkaError) as failure:
                self._cluster.world.note("in vain", method, type(failure).__name__)
            else:
                return

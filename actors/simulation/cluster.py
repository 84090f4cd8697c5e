"""A cluster on simulated machines: started, looked at, asked for topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raylog.actors.broker.actor import BrokerActor
from raylog.actors.cluster import plan_cluster, start_cluster
from raylog.actors.controller.api import (
    CreateTopics,
    FeatureUpdate,
    FeatureUpgradeType,
    NewTopic,
    UpdateFeatures,
)
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import BROKER, CONTROLLER, GATEWAY, REPLICA
from raylog.actors.ports import TopicId
from raylog.actors.replica.actor import ReplicaActor
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.actors.simulation.port import Port
from raylog.actors.simulation.runtime import SimRuntime
from raylog.actors.simulation.world import Machine, Resident, World
from raylog.wire.errors import ErrorCode, KafkaError

SETTINGS = {
    "replica.actors.max": "1",
    "replica.actors.spare": "0",
    "broker.session.timeout.ms": "2000",
}
CALL_TIMEOUT_MS = 3_000


class Cluster:
    """The cluster of one simulation, as its operator and its clients see it."""

    def __init__(self, world: World, brokers: int, settings: dict[str, str]) -> None:
        self.world = world
        self.settings = {**SETTINGS, **settings}
        self.runtime = SimRuntime(world)
        self.machines = [world.add_machine(f"machine-{number}") for number in range(brokers)]
        self.plan = plan_cluster(
            Path("/simulated"),
            self.runtime,
            host="127.0.0.1",
            ports=[9092] * brokers,
            settings=self.settings,
            nodes=[machine.name for machine in self.machines],
        )

    async def start(self) -> None:
        """Start every broker and wait until all serve."""
        await start_cluster(self.runtime, self.plan)

    async def create(self, topic: NewTopic) -> TopicId:
        """Make a topic, asking again until it is there."""
        outcome = await self._insist("create_topics", CreateTopics([topic]))
        return TopicId(outcome.topic_id)

    async def set_feature(self, name: str, level: int) -> None:
        """Have a new cluster work at another level of a feature."""
        update = FeatureUpdate(name, level, FeatureUpgradeType.SAFE_DOWNGRADE)
        await self._insist("update_features", UpdateFeatures([update]))

    async def _insist(self, method: str, asked: object) -> Any:
        """Ask whoever takes itself for the controller until it is done; the outcome."""
        while True:
            for resident in self.of_role(CONTROLLER):
                try:
                    [outcome] = await self.runtime.call(
                        resident.ref.name, method, asked, timeout_ms=CALL_TIMEOUT_MS
                    )
                except (PeerLost, PeerTimeout, KafkaError):
                    continue
                if outcome.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return outcome
            await self.runtime.sleep(0.1)

    # ---- who lives -----------------------------------------------------------------------

    def of_role(self, *roles: str) -> list[Resident]:
        """Living, ready actors of some roles."""
        return [one for one in self.world.living() if one.spec.role in roles and one.ready]

    def living(self, name: str, *, ready: bool = True) -> Resident | None:
        """The living actor of that name."""
        found = next((one for one in self.world.living() if one.ref.name == name), None)
        return found if found is not None and (found.ready or not ready) else None

    def port_of(self, broker_id: int) -> Resident | None:
        """The gateway that clients reach at a broker's address."""
        machine = self.machines[broker_id]
        for one in self.world.living():
            if one.machine is machine and one.spec.role == GATEWAY and one.ready:
                return one
        return None

    def brokers(self) -> Iterator[tuple[int, BrokerActor]]:
        """Living brokers."""
        for one in self.of_role(BROKER):
            yield one.spec.args["broker_id"], one.actor

    def replicas(self) -> Iterator[tuple[int, ReplicaActor]]:
        """Living replica processes with their broker's id."""
        for one in self.of_role(REPLICA):
            yield one.spec.args["broker_id"], one.actor

    def machine_of(self, broker_id: int) -> Machine:
        """Where a broker lives."""
        return self.machines[broker_id]

    def images(self) -> Iterator[MetadataImage]:
        """What living gateways know."""
        for one in self.of_role(GATEWAY):
            if isinstance(one.actor, Port):
                yield one.actor.view.image

    def committed_epoch(self, topic_id: TopicId, partition: int) -> int:
        """The latest leader epoch of a partition that a gateway knows; -1 if none does."""
        states = [image.partition(topic_id, partition) for image in self.images()]
        return max([state.leader_epoch for state in states if state is not None], default=-1)

    def controller_images(self) -> list[MetadataImage]:
        """The metadata of controllers that take themselves for the serving one."""
        actors = [one.actor for one in self.of_role(CONTROLLER)]
        return [actor._term.machine.image for actor in actors if actor._term is not None]

    def newest_image(self) -> MetadataImage:
        """The metadata of who knows most; decisions that are not committed yet are in it."""
        return max(
            [*self.controller_images(), *self.images(), MetadataImage()],
            key=lambda image: (image.controller_epoch, image.offset),
        )

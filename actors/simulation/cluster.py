"""A cluster on simulated machines: started, looked at, asked for topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from raylog.actors.broker.actor import BrokerActor
from raylog.actors.broker.spec import broker_spec
from raylog.actors.cluster import READY_TIMEOUT_MS, VOTERS_MAX, plan_cluster, start_cluster
from raylog.actors.config import ResourceType
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.api import (
    AlterConfigs,
    AlterOp,
    ConfigAlteration,
    ConfigOp,
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
FIRST_PORT = 9_092
"""Of the first broker; the next ones follow."""


class Cluster:
    """The cluster of one simulation, as its operator and its clients see it."""

    def __init__(
        self, world: World, brokers: int, settings: dict[str, str], *, first: int | None = None
    ) -> None:
        """`first` is how many of the brokers it begins with; the others come with `grow`."""
        self.world = world
        self.settings = {**SETTINGS, **settings}
        self.runtime = SimRuntime(world)
        self.machines = [world.add_machine(f"machine-{number}") for number in range(brokers)]
        self.plan = plan_cluster(
            Path("/simulated"),
            self.runtime,
            host="127.0.0.1",
            ports=range(FIRST_PORT, FIRST_PORT + brokers),
            settings=self.settings,
            nodes=[machine.name for machine in self.machines],
        )
        self._first = first or brokers
        if self._first < VOTERS_MAX:
            self.plan = replace(self.plan, initial_voters=self.plan.initial_voters[:1])

    async def start(self) -> None:
        """Start the first brokers and wait until all of them serve."""
        brokers = self.plan.brokers[: self._first]
        await start_cluster(self.runtime, replace(self.plan, brokers=brokers))

    @property
    def is_growing(self) -> bool:
        """Whether there are brokers that it did not begin with."""
        return self._first < len(self.machines)

    async def grow(self) -> None:
        """Start the others, which know of all, and wait until they serve."""
        for broker in self.plan.brokers[self._first :]:
            spec = broker_spec(
                cluster_id=self.plan.cluster_id,
                broker_id=broker.broker_id,
                data=broker.directory,
                settings=broker.settings,
                broker_ids=[one.broker_id for one in self.plan.brokers],
                initial_voters=list(self.plan.initial_voters),
                place=broker.place,
            )
            await self.runtime.spawn(spec)
            ready_ms = READY_TIMEOUT_MS
            await self.runtime.call(spec.name, "ready", ready_ms, timeout_ms=2 * ready_ms)

    async def create(self, topic: NewTopic) -> TopicId:
        """Make a topic, asking again until it is there."""
        outcome = await self._insist("create_topics", CreateTopics([topic]))
        return TopicId(outcome.topic_id)

    async def set_feature(self, name: str, level: int) -> None:
        """Have a new cluster work at another level of a feature."""
        update = FeatureUpdate(name, level, FeatureUpgradeType.SAFE_DOWNGRADE)
        await self._insist("update_features", UpdateFeatures([update]))

    async def set_config(self, topic: str, key: str, value: str) -> None:
        """Give a topic another setting."""
        op = ConfigOp(key, AlterOp.SET, value)
        alteration = ConfigAlteration(ResourceType.TOPIC, topic, [op])
        await self._insist("alter_configs", AlterConfigs([alteration]))

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
                yield one.actor.cluster.image

    def committed_epoch(self, topic_id: TopicId, partition: int) -> int:
        """The latest leader epoch of a partition that a gateway knows; -1 if none does."""
        states = [image.partition(topic_id, partition) for image in self.images()]
        return max([state.leader_epoch for state in states if state is not None], default=-1)

    def serving_controllers(self) -> list[ControllerActor]:
        """The controllers that take themselves for the serving one."""
        actors = [one.actor for one in self.of_role(CONTROLLER)]
        return [actor for actor in actors if actor._term is not None]

    def controller_images(self) -> list[MetadataImage]:
        """Their metadata."""
        terms = [actor._term for actor in self.serving_controllers()]
        return [term.machine.image for term in terms if term is not None]

    def newest_image(self) -> MetadataImage:
        """The metadata of who knows most; decisions that are not committed yet are in it."""
        return max(
            [*self.controller_images(), *self.images(), MetadataImage()],
            key=lambda image: (image.controller_epoch, image.offset),
        )

"""A cluster on simulated machines, as its operator and clients see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from raylog.actors.broker.actor import BrokerActor
from raylog.actors.broker.spec import broker_spec
from raylog.actors.cluster import READY_TIMEOUT_MS, VOTERS_MAX, plan_cluster, start_cluster
from raylog.actors.common_messages import TopicId
from raylog.actors.config import ResourceType
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import (
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
from raylog.actors.replica.actor import ReplicaActor
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.simulated_gateway import SimulatedGateway
from raylog.simulation.world import Machine, Resident, World
from raylog.wire.errors import ErrorCode, KafkaError

SETTINGS = {
    "replica.actors.max": "1",
    "replica.actors.spare": "0",
    "broker.session.timeout.ms": "2000",
}
CALL_TIMEOUT_MS = 3_000
FIRST_PORT = 9_092
"""The port of the first broker. The others have the next ports."""


class Cluster:
    """The cluster of one simulation, as its operator and its clients see it."""

    def __init__(
        self, world: World, brokers: int, settings: dict[str, str], *, first: int | None = None
    ) -> None:
        """`first` is the number of brokers to begin with. `grow` adds the others."""
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
        """Whether `grow` adds brokers."""
        return self._first < len(self.machines)

    async def grow(self) -> None:
        """Start the remaining brokers, which know all addresses, and wait until they serve."""
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
        """Create a topic. Retries until it exists."""
        outcome = await self._insist("create_topics", CreateTopics([topic]))
        return TopicId(outcome.topic_id)

    async def set_feature(self, name: str, level: int) -> None:
        """Set the level of a feature in a new cluster."""
        update = FeatureUpdate(name, level, FeatureUpgradeType.SAFE_DOWNGRADE)
        await self._insist("update_features", UpdateFeatures([update]))

    async def set_config(self, topic: str, key: str, value: str) -> None:
        """Change a setting of a topic."""
        op = ConfigOp(key, AlterOp.SET, value)
        alteration = ConfigAlteration(ResourceType.TOPIC, topic, [op])
        await self._insist("alter_configs", AlterConfigs([alteration]))

    async def _insist(self, method: str, asked: object) -> Any:
        """Call any serving controller until it succeeds. Returns the result."""
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

    # ---- living actors -------------------------------------------------------------------

    def of_role(self, *roles: str) -> list[Resident]:
        """Living, ready actors of some roles."""
        return [one for one in self.world.living() if one.spec.role in roles and one.ready]

    def living(self, name: str, *, ready: bool = True) -> Resident | None:
        """The living actor with that name."""
        found = next((one for one in self.world.living() if one.ref.name == name), None)
        return found if found is not None and (found.ready or not ready) else None

    def gateway_of(self, broker_id: int) -> Resident | None:
        """The gateway behind a broker's address."""
        machine = self.machines[broker_id]
        for one in self.world.living():
            if one.machine is machine and one.spec.role == GATEWAY and one.ready:
                return one
        return None

    def brokers(self) -> Iterator[tuple[int, BrokerActor]]:
        """Living brokers by id."""
        for one in self.of_role(BROKER):
            yield one.spec.args["broker_id"], one.actor

    def replicas(self) -> Iterator[tuple[int, ReplicaActor]]:
        """Living replica processes, each with its broker's id."""
        for one in self.of_role(REPLICA):
            yield one.spec.args["broker_id"], one.actor

    def machine_of(self, broker_id: int) -> Machine:
        """The machine of a broker."""
        return self.machines[broker_id]

    def images(self) -> Iterator[MetadataImage]:
        """The metadata of the living gateways."""
        for one in self.of_role(GATEWAY):
            if isinstance(one.actor, SimulatedGateway):
                yield one.actor.cluster.image

    def committed_epoch(self, topic_id: TopicId, partition: int) -> int:
        """The latest leader epoch of a partition that any gateway knows; -1 if none does."""
        states = [image.partition(topic_id, partition) for image in self.images()]
        return max([state.leader_epoch for state in states if state is not None], default=-1)

    def serving_controllers(self) -> list[ControllerActor]:
        """The controllers that consider themselves active."""
        actors = [one.actor for one in self.of_role(CONTROLLER)]
        return [actor for actor in actors if actor._term is not None]

    def controller_images(self) -> list[MetadataImage]:
        """The metadata of these controllers."""
        terms = [actor._term for actor in self.serving_controllers()]
        return [term.machine.image for term in terms if term is not None]

    def newest_image(self) -> MetadataImage:
        """The newest metadata of any controller. It may include uncommitted decisions."""
        return max(
            [*self.controller_images(), *self.images(), MetadataImage()],
            key=lambda image: (image.controller_epoch, image.offset),
        )

"""A whole cluster in one process whose gateways and replicas only record their calls."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from raylog.actors.broker.actor import BrokerActor, broker_spec
from raylog.actors.broker.messages import BrokerStatus
from raylog.actors.common_messages import (
    OpenedPartition,
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    PartitionStatus,
    RouteUpdate,
    TopicConfig,
    TopicId,
)
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import CreateTopics, MetadataUpdate, NewTopic, TopicOutcome
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import Record
from raylog.actors.names import (
    BROKER,
    CONTROLLER,
    GATEWAY,
    GROUP,
    REPLICA,
    TRANSACTION,
    broker_name,
    controller_name,
)
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.actors.runtime.inproc import InprocWorld
from raylog.wire.errors import InvalidRequest, NotController
from tests.worlds.metadata import take_in

CLUSTER = "cluster"
TIMEOUT_MS = 5_000
FAST = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "metadata.log.fsync": "false",
    "replica.actors.max": "2",
    "gateway.in.replica.process": "false",
    "broker.heartbeat.interval.ms": "20",
}


class Silent:
    """What all fake actors of this module have in common."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def link_lost(self, peer: int) -> None: ...

    def link_received(self, request: LinkRequest) -> None:
        request.fail(InvalidRequest("no links here"))


class RecordingReplica(Silent):
    """A replica that opens what it is asked to open; `broken` is an error to return instead."""

    broken: str | None = None

    def __init__(self, runtime: Runtime, *, name: str, **args: object) -> None:
        self.name = name
        self.args = args
        self.open: dict[PartitionKey, OpenPartition] = {}
        self.led: dict[PartitionKey, PartitionLeadership] = {}
        self.configs: dict[TopicId, TopicConfig] = {}
        self.stopped = False

    async def stop(self) -> None:
        self.stopped = True

    async def ping(self) -> dict[str, str]:
        return {"name": self.name}

    async def open_partitions(self, asked: list[OpenPartition]) -> list[OpenedPartition]:
        for one in asked:
            if self.broken is None:
                self.open[(one.topic_id, one.partition)] = one
                os.makedirs(one.directory, exist_ok=True)
        return [OpenedPartition(one.topic_id, one.partition, error=self.broken) for one in asked]

    async def lead_partitions(self, leaderships: list[PartitionLeadership]) -> None:
        for one in leaderships:
            self.led[(one.topic_id, one.partition)] = one

    async def close_partitions(self, keys: list[PartitionKey], delete: bool) -> None:
        for key in keys:
            del self.open[key]

    async def configure(self, configs: list[TopicConfig]) -> None:
        self.configs.update({one.topic_id: one for one in configs})

    async def describe(self) -> list[PartitionStatus]:
        return [
            PartitionStatus(*key[:1], one.topic, key[1], 0, True, 0, 0, 0, 7, 1)
            for key, one in self.open.items()
        ]


class RecordingGateway(Silent):
    """A gateway that keeps the metadata and routes it receives."""

    def __init__(self, runtime: Runtime, *, name: str, **args: Any) -> None:
        self.name = name
        self.args = args
        self.image = MetadataImage()
        self.routes: dict[PartitionKey, str] = {}
        self.coordinators: dict[str, str | None] = {}

    async def ping(self) -> dict[str, str]:
        return {"name": self.name}

    async def apply_metadata(
        self, begin: int, end: int, records: list[Record], parts: Sequence[bytes] = ()
    ) -> None:
        if not take_in(self.image, MetadataUpdate(begin, end, records, tuple(parts))):
            raise ValueError(f"{begin} follows {self.image.offset}")

    async def apply_routes(self, update: RouteUpdate) -> None:
        for key in update.removed:
            self.routes.pop(key, None)
        for route in update.added:
            self.routes[(route.topic_id, route.partition)] = route.replica_name

    async def apply_coordinator(self, role: str, address: str | None) -> None:
        self.coordinators[role] = address


class RecordingCoordinator(RecordingGateway):
    """A coordinator that keeps what it receives, as the fake gateway does."""


class RecordingCluster:
    """Brokers 0 to n-1; broker 0 holds the metadata log."""

    def __init__(self, directory: Path, brokers: int = 1, **settings: str) -> None:
        self.directory = directory
        self.broker_ids = list(range(brokers))
        self.settings = {
            **FAST,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.roles: dict[str, Callable[..., Any]] = {
            BROKER: BrokerActor,
            CONTROLLER: ControllerActor,
            GATEWAY: RecordingGateway,
            REPLICA: RecordingReplica,
            GROUP: RecordingCoordinator,
            TRANSACTION: RecordingCoordinator,
        }
        self.new_world()

    def new_world(self) -> None:
        """Start over on a machine that has just booted: no actors run."""
        self.world = InprocWorld(lambda role: self.roles[role])
        self.runtime = self.world.runtime()

    async def spawn(self, broker_id: int = 0, **settings: str) -> None:
        """Start a broker without waiting until it is ready."""
        await self.runtime.spawn(
            broker_spec(
                cluster_id=CLUSTER,
                broker_id=broker_id,
                data=self.directory / f"b{broker_id}",
                settings={**self.settings, **settings},
                broker_ids=self.broker_ids,
                initial_voters=[(0, "d0")],
            )
        )

    async def up(self) -> None:
        """Start all brokers and wait until they serve."""
        for broker_id in self.broker_ids:
            await self.spawn(broker_id)
        await self.ready()

    async def ready(self) -> None:
        for broker_id in self.broker_ids:
            await self.call(broker_id, "ready", TIMEOUT_MS)

    async def down(self) -> None:
        """Shut all brokers down cleanly."""
        for broker_id in self.broker_ids:
            await self.call(broker_id, "shutdown")
        await self.world.stop()
        assert self.world.failures == []

    async def kill(self, name: str) -> None:
        """End an actor as a crash would."""
        actor = self.world.resident(name).actor
        await self.runtime.kill(await self.runtime.find(name))
        if isinstance(actor, BrokerActor):  # released when its process ends
            actor._data.close()
            for held in actor._reservations.values():
                held.close()

    async def call(self, broker_id: int, method: str, *args: Any) -> Any:
        name = broker_name(CLUSTER, broker_id)
        return await self.runtime.call(name, method, *args, timeout_ms=TIMEOUT_MS)

    async def ask_controller(self, method: str, *args: Any) -> Any:
        """Call the controller, repeating the call until one serves."""
        while True:
            try:
                return await self.runtime.call(
                    controller_name(CLUSTER), method, *args, timeout_ms=TIMEOUT_MS
                )
            except NotController:
                await asyncio.sleep(0.001)

    async def create(self, *topics: NewTopic) -> list[TopicOutcome]:
        outcomes: list[TopicOutcome] = await self.ask_controller(
            "create_topics", CreateTopics(list(topics))
        )
        assert [one.message for one in outcomes] == [None] * len(topics)
        return outcomes

    async def describe(self, broker_id: int = 0) -> BrokerStatus:
        status: BrokerStatus = await self.call(broker_id, "describe")
        return status

    def gateways(self, broker_id: int = 0) -> list[RecordingGateway]:
        return list(self._children(RecordingGateway, GATEWAY, broker_id))

    def coordinators(self, broker_id: int = 0, role: str = GROUP) -> list[RecordingCoordinator]:
        return list(self._children(RecordingCoordinator, role, broker_id))

    def replicas(self, broker_id: int = 0) -> list[RecordingReplica]:
        return list(self._children(RecordingReplica, REPLICA, broker_id))

    def _children(self, kind: type[Any], role: str, broker_id: int) -> Iterator[Any]:
        for name, resident in self.world._residents.items():
            if name.startswith(f"{CLUSTER}/{role}/{broker_id}/"):
                assert isinstance(resident.actor, kind)
                yield resident.actor

    async def routes(self, count: int, broker_id: int = 0) -> dict[PartitionKey, str]:
        """Wait until the gateway has `count` routes, all to live replicas, and return them."""

        def settled() -> bool:
            gateways = self.gateways(broker_id)
            living = {replica.name for replica in self.replicas(broker_id)}
            return bool(gateways) and all(
                len(one.routes) == count and set(one.routes.values()) <= living for one in gateways
            )

        await self.until(settled)
        return self.gateways(broker_id)[0].routes

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while not condition():  # noqa: ASYNC110 - the actors raise no event for it
                await asyncio.sleep(0.001)


class FailingOnce(RecordingCoordinator):
    """A coordinator whose first start fails."""

    failures = 1

    async def start(self) -> None:
        if type(self).failures:
            type(self).failures -= 1
            raise OSError("no memory")

"""A broker's machine with fake processes and metadata, and the effects that tests expect."""

import itertools
from unittest.mock import ANY

from raylog.actors.broker.rules.effects import (
    Effect,
    SendRoutes,
)
from raylog.actors.broker.rules.machine import BrokerMachine
from raylog.actors.broker.rules.pool import ReplicaPool
from raylog.actors.common_messages import (
    OpenedPartition,
    OpenPartition,
    PartitionLeadership,
    Route,
    RouteUpdate,
    TopicConfig,
    TopicId,
)
from raylog.actors.config import BrokerConfigs, BrokerSettings, resolve_topic
from raylog.actors.controller.messages import MetadataUpdate
from raylog.actors.metadata.records import (
    PartitionChanged,
    PartitionCreated,
    Record,
    TopicCreated,
)
from raylog.wire.uuids import to_base64

T = TopicId(b"t" * 16)
U = TopicId(b"u" * 16)
NO_RATE = str(2**63 - 1)
CONFIG = {
    **resolve_topic({}, BrokerConfigs()),
    "producer.id.expiration.ms": "86400000",
    "leader.replication.throttled.rate": NO_RATE,
    "follower.replication.throttled.rate": NO_RATE,
    "transaction.partition.verification.enable": "true",
}
R0, R1, R2 = "c/replica/0/0", "c/replica/0/1", "c/replica/0/2"


def directory(topic: str, topic_id: TopicId, partition: int) -> str:
    return f"/data/topics/{topic}-{partition}.{to_base64(topic_id)}"


def opening(
    topic: str,
    topic_id: TopicId,
    partition: int,
    settings: dict[str, str] | None = None,
    *,
    again: bool = False,
) -> OpenPartition:
    """Return the request to open a partition whose topic has these settings of its own."""
    own = settings or {}
    return OpenPartition(
        topic_id=topic_id,
        topic=topic,
        partition=partition,
        directory=directory(topic, topic_id, partition),
        config=CONFIG | own,
        settings=own,
        was_open=again,
        noted=ANY,
    )


def configured(topic_id: TopicId, settings: dict[str, str] | None = None) -> TopicConfig:
    """Return the message that tells a process a topic's changed settings."""
    own = settings or {}
    return TopicConfig(topic_id, CONFIG | own, own, ANY)


def leadership(
    topic_id: TopicId,
    partition: int,
    *,
    leader: int = 0,
    epoch: int = 0,
    partition_epoch: int = 1,
    replicas: tuple[int, ...] = (0,),
    isr: tuple[int, ...] = (0,),
    incarnation: str | None = None,
) -> PartitionLeadership:
    return PartitionLeadership(
        topic_id,
        partition,
        leader,
        epoch,
        partition_epoch,
        replicas,
        isr,
        {0: f"i-{R0}@b.1" if incarnation is None else incarnation},
    )


def route(
    topic: str,
    topic_id: TopicId,
    partition: int,
    name: str,
    epoch: int = 0,
    *,
    leads: bool = True,
) -> Route:
    path = directory(topic, topic_id, partition)
    return Route(topic_id, partition, epoch, name, f"at-{name}", path, leads)


def routed(*routes: Route) -> SendRoutes:
    return SendRoutes(RouteUpdate(added=list(routes)))


def unrouted(*keys: tuple[TopicId, int]) -> SendRoutes:
    return SendRoutes(RouteUpdate(removed=list(keys)))


class Broker:
    """The machine of broker 0 with a pool; its methods feed it events."""

    def __init__(self, *, actors_max: int = 1, spares: int = 0) -> None:
        pool = ReplicaPool("c", 0, actors_max=actors_max, spares=spares, numbers=itertools.count())
        self.machine = BrokerMachine(
            "c", 0, BrokerSettings(), pool, topics_directory="/data/topics", incarnation="b"
        )

    def begin(self) -> list[Effect]:
        return self.machine.begin()

    def records(self, *records: Record) -> list[Effect]:
        offset = self.machine.image.offset
        return self.machine.apply(MetadataUpdate(offset, offset + len(records), list(records)))

    def ready(self, name: str, instance: str = "") -> list[Effect]:
        return self.machine.replica_ready(name, instance or f"i-{name}", f"at-{name}")

    def topic(self, topic: str = "t", topic_id: TopicId = T, partitions: int = 1) -> list[Effect]:
        return self.records(
            TopicCreated(topic_id, topic),
            *(PartitionCreated(topic_id, at, (0,), (0,), 0) for at in range(partitions)),
        )

    def opened(self, name: str, *keys: tuple[TopicId, int]) -> list[Effect]:
        return self.machine.opened(name, [OpenedPartition(*key) for key in keys])

    def incarnations(self) -> dict[tuple[TopicId, int], str]:
        return {key: local.incarnation for key, local in self.machine.partitions.items()}

    def confirmed(self, *keys: tuple[TopicId, int]) -> list[Effect]:
        """Apply the controller's records that confirm these partitions as opened."""
        return self.records(
            *(PartitionChanged(*key, incarnations={0: self.incarnations()[key]}) for key in keys)
        )

    def serve(self, topic: str = "t", topic_id: TopicId = T) -> str:
        """Create a topic of one partition and have it served; return its process's name."""
        self.topic(topic, topic_id)
        name = self.machine.partitions[(topic_id, 0)].slot
        if not self.machine.pool.slots[name].is_ready:
            self.ready(name)
        self.opened(name, (topic_id, 0))
        self.confirmed((topic_id, 0))
        self.machine.led(name, [leadership(topic_id, 0)])
        assert self.machine.serves
        return name

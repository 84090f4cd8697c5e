"""What several APIs tell about brokers, leaders and operations, in Kafka's terms."""

from __future__ import annotations

from raylog.actors.metadata.image import BrokerRegistration, MetadataImage, PartitionState
from raylog.actors.metadata.records import NO_LEADER
from raylog.wire.errors import ErrorCode

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that coordinators make and write."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << bit for bit in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << bit for bit in range(9, 13)
)
CLUSTER_OPERATIONS = (
    _CREATE
    | _ALTER
    | _DESCRIBE
    | _CLUSTER_ACTION
    | _DESCRIBE_CONFIGS
    | _ALTER_CONFIGS
    | _IDEMPOTENT_WRITE
)
"""Bits by AclOperation (KIP-430): without an authorizer, everybody may do everything."""
TOPIC_OPERATIONS = (
    _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
)


def unfenced_brokers(image: MetadataImage) -> list[BrokerRegistration]:
    """Brokers that clients may be sent to, by id."""
    return [broker for _, broker in sorted(image.brokers.items()) if not broker.fenced]


def controller_id(image: MetadataImage, broker_id: int) -> int:
    """Whom clients take for the controller: any live broker, since each passes requests on.

    This broker itself where it is live: its client then needs no other connection.
    """
    live = [broker.broker_id for broker in unfenced_brokers(image)]
    if broker_id in live:
        return broker_id
    return live[0] if live else -1


def leader_of(image: MetadataImage, partition: PartitionState) -> tuple[ErrorCode, int]:
    """The leader that clients can reach, else LEADER_NOT_AVAILABLE and -1."""
    if partition.leader in image.brokers:
        return ErrorCode.NONE, partition.leader
    return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER


def offline_replicas(image: MetadataImage, partition: PartitionState) -> list[int]:
    """Brokers of the partition that are not there."""
    brokers = image.brokers
    return [
        broker_id
        for broker_id in partition.replicas
        if (broker := brokers.get(broker_id)) is None or broker.fenced
    ]

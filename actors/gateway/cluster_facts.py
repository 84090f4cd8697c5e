"""What several APIs tell about brokers, leaders and operations, in Kafka's terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raylog.actors.endpoints import Endpoint
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


def reachable(
    brokers: Iterable[BrokerRegistration], listener: str
) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    """Those of the brokers that have a listener, and where clients of it reach them."""
    for broker in brokers:
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            yield broker, endpoint


def controller_id(image: MetadataImage, broker_id: int) -> int:
    """Whom clients take for the controller: any live broker, since each passes requests on.

    This broker itself where it is live: its client then needs no other connection.
    """
    live = [broker.broker_id for broker in unfenced_brokers(image)]
    if broker_id in live:
        return broker_id
    return live[0] if live else -1


def leader_of(
    image: MetadataImage, partition: PartitionState, listener: str
) -> tuple[ErrorCode, int]:
    """The leader that clients of a listener can reach.

    Else LEADER_NOT_AVAILABLE and -1; LISTENER_NOT_FOUND where it has no such listener.
    """
    leader = image.brokers.get(partition.leader)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    if leader.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
    return ErrorCode.NONE, partition.leader


def offline_replicas(image: MetadataImage, partition: PartitionState, listener: str) -> list[int]:
    """Brokers of the partition that are not there, or that have no such listener."""
    brokers = image.brokers
    return [
        broker_id
        for broker_id in partition.replicas
        if (broker := brokers.get(broker_id)) is None
        or broker.fenced
        or broker.endpoint(listener) is None
    ]

"""Facts about brokers, leaders and operations that several APIs report, in Kafka's terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raylog.actors.coordinator_kinds import KIND_OF_TOPIC
from raylog.actors.endpoints import Endpoint
from raylog.actors.metadata.image import BrokerRegistration, MetadataImage, PartitionState
from raylog.actors.metadata.records import NO_LEADER
from raylog.wire.errors import ErrorCode

INTERNAL_TOPICS = frozenset({*KIND_OF_TOPIC, "__share_group_state"})
"""Topics to which clients may not write; Kafka reserves the last one for share groups."""

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
"""The bits of AclOperation (KIP-430): without an authorizer everybody may do everything."""
TOPIC_OPERATIONS = (
    _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
)


def unfenced_brokers(image: MetadataImage) -> list[BrokerRegistration]:
    """Return the brokers to which clients may connect, sorted by id."""
    return [broker for _, broker in sorted(image.brokers.items()) if not broker.fenced]


def reachable(
    brokers: Iterable[BrokerRegistration], listener: str
) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    """Yield the brokers that have this listener, each with its endpoint."""
    for broker in brokers:
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            yield broker, endpoint


def controller_id(image: MetadataImage, broker_id: int) -> int:
    """Return the broker that clients use as the controller: any live one, since all forward.

    This broker is preferred, because its clients then need no other connection.
    """
    live = [broker.broker_id for broker in unfenced_brokers(image)]
    if broker_id in live:
        return broker_id
    return live[0] if live else -1


def leader_of(
    image: MetadataImage, partition: PartitionState, listener: str
) -> tuple[ErrorCode, int]:
    """Return (NONE, leader) if clients of a listener can reach the leader.

    Otherwise return -1 as the leader, with LEADER_NOT_AVAILABLE, or with LISTENER_NOT_FOUND if the
    leader does not have the listener.
    """
    leader = image.brokers.get(partition.leader)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    if leader.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
    return ErrorCode.NONE, partition.leader


def offline_replicas(image: MetadataImage, partition: PartitionState, listener: str) -> list[int]:
    """Return the partition's replicas on brokers that are offline or do not have this listener."""
    brokers = image.brokers
    return [
        broker_id
        for broker_id in partition.replicas
        if (broker := brokers.get(broker_id)) is None
        or broker.fenced
        or broker.endpoint(listener) is None
    ]

"""Clients for anything that speaks the Kafka protocol: a blocking one and one for asyncio.

Names are loaded when they are first used (PEP 562): the command line starts without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raylog.client.accumulator import Delivery
    from raylog.client.admin import (
        ClusterDescription,
        ConfigEntry,
        ConfigSource,
        LogDir,
        NewTopic,
        Resource,
        ResourceType,
    )
    from raylog.client.aio import AsyncClient, AsyncConsumer, AsyncProducer
    from raylog.client.blocking import BlockingClient, BlockingConsumer, BlockingProducer
    from raylog.client.cluster import ClusterView, Node, PartitionView, TopicPartition, TopicView
    from raylog.client.errors import (
        AbortRequired,
        BufferExhausted,
        ClientError,
        ConnectionLost,
        DeliveryFailed,
        InvalidSetting,
        NotConnected,
        NotKafka,
        NotSupported,
        ProducerUnusable,
        RecordTooLarge,
        RequestTimedOut,
        WrongTransactionState,
    )
    from raylog.client.fetched import ConsumedRecords
    from raylog.client.group_descriptions import GroupDescription, GroupMember
    from raylog.client.groups import CommittedOffset, GroupListing
    from raylog.client.membership import GroupMetadata
    from raylog.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset
    from raylog.client.replicas import (
        PartitionReplicas,
        QuorumMember,
        QuorumView,
        Reassignment,
    )
    from raylog.client.settings import (
        ACKS_ALL,
        ClientSettings,
        ConsumerSettings,
        ProducerSettings,
        parse_bootstrap,
    )
    from raylog.client.transactions import (
        ActiveProducer,
        HangingTransaction,
        TransactionDescription,
        TransactionListing,
    )
    from raylog.wire.compression import Codec
    from raylog.wire.records import Record

_HOMES = {
    "raylog.client.accumulator": ("Delivery",),
    "raylog.client.admin": (
        "ClusterDescription",
        "ConfigEntry",
        "ConfigSource",
        "LogDir",
        "NewTopic",
        "Resource",
        "ResourceType",
    ),
    "raylog.client.aio": ("AsyncClient", "AsyncConsumer", "AsyncProducer"),
    "raylog.client.blocking": ("BlockingClient", "BlockingConsumer", "BlockingProducer"),
    "raylog.client.cluster": (
        "ClusterView",
        "Node",
        "PartitionView",
        "TopicPartition",
        "TopicView",
    ),
    "raylog.client.errors": (
        "AbortRequired",
        "BufferExhausted",
        "ClientError",
        "ConnectionLost",
        "DeliveryFailed",
        "InvalidSetting",
        "NotConnected",
        "NotKafka",
        "NotSupported",
        "ProducerUnusable",
        "RecordTooLarge",
        "RequestTimedOut",
        "WrongTransactionState",
    ),
    "raylog.client.fetched": ("ConsumedRecords",),
    "raylog.client.group_descriptions": ("GroupDescription", "GroupMember"),
    "raylog.client.groups": ("CommittedOffset", "GroupListing"),
    "raylog.client.membership": ("GroupMetadata",),
    "raylog.client.offsets": ("EARLIEST", "LATEST", "MAX_TIMESTAMP", "FoundOffset"),
    "raylog.client.replicas": (
        "PartitionReplicas",
        "QuorumMember",
        "QuorumView",
        "Reassignment",
    ),
    "raylog.client.settings": (
        "ACKS_ALL",
        "ClientSettings",
        "ConsumerSettings",
        "ProducerSettings",
        "parse_bootstrap",
    ),
    "raylog.client.transactions": (
        "ActiveProducer",
        "HangingTransaction",
        "TransactionDescription",
        "TransactionListing",
    ),
    "raylog.wire.compression": ("Codec",),
    "raylog.wire.records": ("Record",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ACKS_ALL",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AbortRequired",
    "ActiveProducer",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingProducer",
    "BufferExhausted",
    "ClientError",
    "ClientSettings",
    "ClusterDescription",
    "ClusterView",
    "Codec",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigSource",
    "ConnectionLost",
    "ConsumedRecords",
    "ConsumerSettings",
    "Delivery",
    "DeliveryFailed",
    "FoundOffset",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "HangingTransaction",
    "InvalidSetting",
    "LogDir",
    "NewTopic",
    "Node",
    "NotConnected",
    "NotKafka",
    "NotSupported",
    "PartitionReplicas",
    "PartitionView",
    "ProducerSettings",
    "ProducerUnusable",
    "QuorumMember",
    "QuorumView",
    "Reassignment",
    "Record",
    "RecordTooLarge",
    "RequestTimedOut",
    "Resource",
    "ResourceType",
    "TopicPartition",
    "TopicView",
    "TransactionDescription",
    "TransactionListing",
    "WrongTransactionState",
    "parse_bootstrap",
]


def __getattr__(name: str) -> object:
    """Load a public name's module when it is first used."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'raylog.client' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted(__all__)

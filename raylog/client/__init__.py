"""Kafka clients, blocking and asyncio, for any broker that speaks the Kafka protocol.

Public names are loaded on first use (PEP 562), so that the command line starts quickly.
"""

from typing import TYPE_CHECKING

from raylog.lazy import lazy_names

if TYPE_CHECKING:
    from raylog.client.admin.acls import (
        AclBinding,
        AclFilter,
        AclOperation,
        AclPermission,
        AclResourceType,
        PatternType,
        ResourcePattern,
    )
    from raylog.client.admin.aio import AsyncAdmin, AsyncClient
    from raylog.client.admin.blocking import Admin, BlockingClient
    from raylog.client.admin.features import Features, UpgradeType
    from raylog.client.admin.group_descriptions import GroupDescription, GroupMember
    from raylog.client.admin.groups import CommittedOffset, GroupListing
    from raylog.client.admin.quotas import ANY_NAME, DEFAULT_NAME, QuotaEntity, QuotaMatch
    from raylog.client.admin.replicas import (
        PartitionReplicas,
        QuorumMember,
        QuorumView,
        Reassignment,
    )
    from raylog.client.admin.tokens import DelegationToken
    from raylog.client.admin.topics import (
        ClusterDescription,
        ConfigEntry,
        ConfigSource,
        LogDir,
        NewTopic,
        Resource,
        ResourceType,
    )
    from raylog.client.admin.transactions import (
        ActiveProducer,
        HangingTransaction,
        TransactionDescription,
        TransactionListing,
    )
    from raylog.client.admin.users import (
        ScramCredential,
        ScramDeletion,
        ScramMechanism,
        ScramUpsertion,
    )
    from raylog.client.cluster import ClusterView, Node, PartitionView, TopicPartition, TopicView
    from raylog.client.consumer.aio import AsyncConsumer
    from raylog.client.consumer.blocking import BlockingConsumer, Consumer
    from raylog.client.consumer.commits import CommitFailed
    from raylog.client.consumer.core import WokenUp, WrongState
    from raylog.client.consumer.decoding import DeserializationFailed
    from raylog.client.consumer.fetched import ConsumedRecords
    from raylog.client.consumer.listener import RebalanceListener
    from raylog.client.consumer.membership import GroupMetadata
    from raylog.client.consumer.positions import LogTruncated, NoOffset
    from raylog.client.consumer.settings import ConsumerSettings
    from raylog.client.errors import (
        AbortRequired,
        AuthenticationFailed,
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
        TlsFailed,
        WrongTransactionState,
    )
    from raylog.client.interceptors import (
        ClientInterceptor,
        ConsumerRecord,
        ProducerRecord,
        RecordMetadata,
    )
    from raylog.client.librdkafka import from_confluent
    from raylog.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset
    from raylog.client.producer.accumulator import Delivery
    from raylog.client.producer.aio import AsyncProducer
    from raylog.client.producer.blocking import BlockingProducer, Producer
    from raylog.client.producer.future import RecordFuture
    from raylog.client.producer.reports import ProducerStatistics
    from raylog.client.security.settings import SecuritySettings
    from raylog.client.settings import (
        ACKS_ALL,
        ClientSettings,
        ProducerSettings,
        parse_bootstrap,
    )
    from raylog.wire.compression import Codec
    from raylog.wire.errors import ErrorCode, KafkaError
    from raylog.wire.records import Record

__all__ = [
    "ACKS_ALL",
    "ANY_NAME",
    "DEFAULT_NAME",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AbortRequired",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
    "ActiveProducer",
    "Admin",
    "AsyncAdmin",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AuthenticationFailed",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingProducer",
    "BufferExhausted",
    "ClientError",
    "ClientInterceptor",
    "ClientSettings",
    "ClusterDescription",
    "ClusterView",
    "Codec",
    "CommitFailed",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigSource",
    "ConnectionLost",
    "ConsumedRecords",
    "Consumer",
    "ConsumerRecord",
    "ConsumerSettings",
    "DelegationToken",
    "Delivery",
    "DeliveryFailed",
    "DeserializationFailed",
    "ErrorCode",
    "Features",
    "FoundOffset",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "HangingTransaction",
    "InvalidSetting",
    "KafkaError",
    "LogDir",
    "LogTruncated",
    "NewTopic",
    "NoOffset",
    "Node",
    "NotConnected",
    "NotKafka",
    "NotSupported",
    "PartitionReplicas",
    "PartitionView",
    "PatternType",
    "Producer",
    "ProducerRecord",
    "ProducerSettings",
    "ProducerStatistics",
    "ProducerUnusable",
    "QuorumMember",
    "QuorumView",
    "QuotaEntity",
    "QuotaMatch",
    "Reassignment",
    "RebalanceListener",
    "Record",
    "RecordFuture",
    "RecordMetadata",
    "RecordTooLarge",
    "RequestTimedOut",
    "Resource",
    "ResourcePattern",
    "ResourceType",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "SecuritySettings",
    "TlsFailed",
    "TopicPartition",
    "TopicView",
    "TransactionDescription",
    "TransactionListing",
    "UpgradeType",
    "WokenUp",
    "WrongState",
    "WrongTransactionState",
    "from_confluent",
    "parse_bootstrap",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "raylog.client.admin.acls": (
            "AclBinding",
            "AclFilter",
            "AclOperation",
            "AclPermission",
            "AclResourceType",
            "PatternType",
            "ResourcePattern",
        ),
        "raylog.client.admin.features": ("Features", "UpgradeType"),
        "raylog.client.admin.quotas": ("ANY_NAME", "DEFAULT_NAME", "QuotaEntity", "QuotaMatch"),
        "raylog.client.admin.tokens": ("DelegationToken",),
        "raylog.client.admin.users": (
            "ScramCredential",
            "ScramDeletion",
            "ScramMechanism",
            "ScramUpsertion",
        ),
        "raylog.client.producer.accumulator": ("Delivery",),
        "raylog.client.admin.topics": (
            "ClusterDescription",
            "ConfigEntry",
            "ConfigSource",
            "LogDir",
            "NewTopic",
            "Resource",
            "ResourceType",
        ),
        "raylog.client.admin.aio": ("AsyncAdmin", "AsyncClient"),
        "raylog.client.consumer.aio": ("AsyncConsumer",),
        "raylog.client.producer.aio": ("AsyncProducer",),
        "raylog.client.admin.blocking": ("Admin", "BlockingClient"),
        "raylog.client.consumer.blocking": ("BlockingConsumer", "Consumer"),
        "raylog.client.consumer.commits": ("CommitFailed",),
        "raylog.client.consumer.core": ("WokenUp", "WrongState"),
        "raylog.client.consumer.decoding": ("DeserializationFailed",),
        "raylog.client.consumer.listener": ("RebalanceListener",),
        "raylog.client.consumer.positions": ("LogTruncated", "NoOffset"),
        "raylog.client.producer.blocking": ("BlockingProducer", "Producer"),
        "raylog.client.producer.future": ("RecordFuture",),
        "raylog.client.producer.reports": ("ProducerStatistics",),
        "raylog.client.cluster": (
            "ClusterView",
            "Node",
            "PartitionView",
            "TopicPartition",
            "TopicView",
        ),
        "raylog.client.errors": (
            "AbortRequired",
            "AuthenticationFailed",
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
            "TlsFailed",
            "WrongTransactionState",
        ),
        "raylog.client.librdkafka": ("from_confluent",),
        "raylog.client.consumer.fetched": ("ConsumedRecords",),
        "raylog.client.admin.group_descriptions": ("GroupDescription", "GroupMember"),
        "raylog.client.admin.groups": ("CommittedOffset", "GroupListing"),
        "raylog.client.consumer.membership": ("GroupMetadata",),
        "raylog.client.interceptors": (
            "ClientInterceptor",
            "ConsumerRecord",
            "ProducerRecord",
            "RecordMetadata",
        ),
        "raylog.client.offsets": ("EARLIEST", "LATEST", "MAX_TIMESTAMP", "FoundOffset"),
        "raylog.client.admin.replicas": (
            "PartitionReplicas",
            "QuorumMember",
            "QuorumView",
            "Reassignment",
        ),
        "raylog.client.security.settings": ("SecuritySettings",),
        "raylog.client.settings": (
            "ACKS_ALL",
            "ClientSettings",
            "ProducerSettings",
            "parse_bootstrap",
        ),
        "raylog.client.consumer.settings": ("ConsumerSettings",),
        "raylog.client.admin.transactions": (
            "ActiveProducer",
            "HangingTransaction",
            "TransactionDescription",
            "TransactionListing",
        ),
        "raylog.wire.compression": ("Codec",),
        "raylog.wire.errors": ("ErrorCode", "KafkaError"),
        "raylog.wire.records": ("Record",),
    },
)

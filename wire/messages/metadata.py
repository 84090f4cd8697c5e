"""Metadata, API key 3: brokers, topics and partition leaders.

v1 returns racks and the controller; no topics now means none, null means all.
v2 returns the cluster id (KIP-78).
v4 may forbid the creation of topics.
v5 returns offline replicas (KIP-112).
v7 returns leader epochs (KIP-320).
v8 may return authorized operations (KIP-430); v11 leaves those of the cluster to DescribeCluster.
v9 is flexible.
v10 returns topic ids, v12 accepts them (KIP-516).
v13 may send the client back to its bootstrap servers (KIP-1102).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT32_MIN,
    STRING,
    UUID,
    array,
    message,
    struct,
    wire,
)


@struct
class MetadataRequestTopic:
    """A topic by name, or since v12 by id."""

    topic_id: bytes = wire(UUID, "10+", ignorable=True)  # KIP-516
    name: str | None = wire(STRING, nullable="10+")


@message(ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataRequest:
    """The topics to describe."""

    # None: all; v0 says all by an empty list
    topics: list[MetadataRequestTopic] | None = wire(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = wire(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, "8-10")  # KIP-430
    include_topic_authorized_operations: bool = wire(BOOL, "8+")  # KIP-430


@struct
class MetadataResponseBroker:
    """A live broker and its address on the client's listener."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, "1+", default=None, nullable="0+", ignorable=True)


@struct
class MetadataResponsePartition:
    """One partition."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)  # -1: none
    leader_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)  # KIP-320
    replica_nodes: list[int] = wire(array(INT32))
    isr_nodes: list[int] = wire(array(INT32))
    offline_replicas: list[int] = wire(array(INT32), "5+", ignorable=True)  # KIP-112


@struct
class MetadataResponseTopic:
    """One topic."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable="12+")  # None: the id is unknown
    topic_id: bytes = wire(UUID, "10+", ignorable=True)  # KIP-516
    is_internal: bool = wire(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = wire(array(MetadataResponsePartition))
    # bit field of AclOperation; smallest int32: not requested (KIP-430)
    topic_authorized_operations: int = wire(INT32, "8+", default=INT32_MIN)


@message(ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataResponse:
    """The cluster as this broker sees it."""

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = wire(array(MetadataResponseBroker))
    # KIP-78
    cluster_id: str | None = wire(STRING, "2+", default=None, nullable="0+", ignorable=True)
    controller_id: int = wire(INT32, "1+", default=-1, ignorable=True)  # -1: none
    topics: list[MetadataResponseTopic] = wire(array(MetadataResponseTopic))
    # bit field of AclOperation; smallest int32: not requested (KIP-430)
    cluster_authorized_operations: int = wire(INT32, "8-10", default=INT32_MIN)
    error_code: int = wire(INT16, "13+", ignorable=True)  # KIP-1102

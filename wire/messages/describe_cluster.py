"""DescribeCluster, API key 60 (KIP-700).

v1 can ask the controllers instead (KIP-919).
v2 can list fenced brokers too (KIP-1073).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT32_MIN,
    STRING,
    array,
    message,
    struct,
    wire,
)


@message(ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """What to include in the answer."""

    include_cluster_authorized_operations: bool = wire(BOOL)
    endpoint_type: int = wire(INT8, "1+", default=1)  # 1 brokers, 2 controllers (KIP-919)
    include_fenced_brokers: bool = wire(BOOL, "2+")  # KIP-1073


@struct
class DescribeClusterBroker:
    """A broker and its address on the client's listener."""

    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, default=None, nullable="0+")
    is_fenced: bool = wire(BOOL, "2+")  # KIP-1073


@message(ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The cluster."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    endpoint_type: int = wire(INT8, "1+", default=1)  # 1 brokers, 2 controllers (KIP-919)
    cluster_id: str = wire(STRING)
    controller_id: int = wire(INT32, default=-1)  # -1: none
    brokers: list[DescribeClusterBroker] = wire(array(DescribeClusterBroker))
    # bit field of AclOperation; smallest int32: not requested (KIP-430)
    cluster_authorized_operations: int = wire(INT32, default=INT32_MIN)

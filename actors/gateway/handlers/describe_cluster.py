"""DescribeCluster 0-2: brokers and cluster id (KIP-700).

v1 distinguishes brokers and controllers (KIP-919), v2 can list fenced brokers (KIP-1073). Left out:
endpoints of controllers, which do not exist here.
"""

from __future__ import annotations

from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.rules.cluster_facts import CLUSTER_OPERATIONS, controller_id, reachable
from raylog.wire.errors import MismatchedEndpointType, UnsupportedEndpointType
from raylog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from raylog.wire.schema import INT32_MIN

BROKERS, CONTROLLERS = 1, 2
FENCED_SINCE = 2


def describe_cluster(
    context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Answer from this gateway's metadata image."""
    if request.endpoint_type == CONTROLLERS:
        raise MismatchedEndpointType(
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER"
        )
    if request.endpoint_type != BROKERS:
        raise UnsupportedEndpointType(f"Unsupported endpoint type {request.endpoint_type}")
    cluster = context.gateway.cluster
    return DescribeClusterResponse(
        cluster_id=context.gateway.cluster_id,
        controller_id=controller_id(cluster.image, cluster.broker_id),
        brokers=_brokers(context, request.include_fenced_brokers),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else INT32_MIN,
    )


def _brokers(context: RequestContext, include_fenced: bool) -> list[DescribeClusterBroker]:
    found = [
        broker
        for _, broker in sorted(context.gateway.cluster.image.brokers.items())
        if include_fenced or not broker.fenced
    ]
    return [
        DescribeClusterBroker(
            broker_id=broker.broker_id,
            host=at.host,
            port=at.port,
            rack=broker.rack,
            is_fenced=broker.fenced and context.version >= FENCED_SINCE,
        )
        for broker, at in reachable(found, context.listener)
    ]

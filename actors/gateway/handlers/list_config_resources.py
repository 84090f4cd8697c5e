"""ListConfigResources 0-1: the resources that have settings.

v0 lists only client metrics subscriptions (KIP-714), v1 resources of any type (KIP-1142). A
broker's loggers are one resource with the broker's name.
"""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.config import ResourceType
from raylog.actors.gateway.context import RequestContext
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.errors import UnsupportedVersion
from raylog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TYPES_SINCE = 1


def list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Answer from this gateway's metadata image."""
    types = set(request.resource_types or ResourceType)
    if context.version < TYPES_SINCE:
        types = {int(ResourceType.CLIENT_METRICS)}
    unknown = types.difference(ResourceType)
    if unknown:
        raise UnsupportedVersion(f"unknown resource types {sorted(unknown)}")
    image = context.gateway.cluster.image
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(types)
            for name in _names(image, kind)
        ]
    )


def _names(image: MetadataImage, kind: int) -> Iterable[str]:
    match kind:
        case ResourceType.TOPIC:
            return sorted(image.topic_ids)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        case _:  # groups and subscriptions exist if they have settings
            return sorted(name for of, name in image.configs if of == kind)

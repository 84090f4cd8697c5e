"""ListConfigResources, API key 74: resources that have settings.

v0 lists client metrics subscriptions only (KIP-714).
v1 lists other kinds too (KIP-1142).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT8, INT16, INT32, STRING, array, message, struct, wire


@message(ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """The kinds of resources to list."""

    # as in DescribeConfigs; none: all (KIP-1142)
    resource_types: list[int] = wire(array(INT8), "1+")


@struct
class ConfigResource:
    """One resource."""

    resource_name: str = wire(STRING)
    # ConfigResource.Type: 2 topic, 4 broker, 8 logger, 16 client metrics, 32 group (KIP-1142)
    resource_type: int = wire(INT8, "1+", default=16, ignorable=True)


@message(ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    config_resources: list[ConfigResource] = wire(array(ConfigResource))

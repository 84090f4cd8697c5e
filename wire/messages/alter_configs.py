"""AlterConfigs, API key 33: replace all settings of resources.

v2 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT8, INT16, INT32, STRING, array, message, struct, wire


@struct
class AlterableConfig:
    """One setting."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")


@struct
class AlterConfigsResource:
    """All settings of one resource. Omitted ones fall back to their defaults."""

    # ConfigResource.Type: 2 topic, 4 broker, 8 logger, 16 client metrics, 32 group
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: list[AlterableConfig] = wire(array(AlterableConfig))


@message(ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """The settings."""

    resources: list[AlterConfigsResource] = wire(array(AlterConfigsResource))
    validate_only: bool = wire(BOOL)  # check, change nothing


@struct
class AlterConfigsResourceResponse:
    """The outcome for one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    # ConfigResource.Type: 2 topic, 4 broker, 8 logger, 16 client metrics, 32 group
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message(ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    responses: list[AlterConfigsResourceResponse] = wire(array(AlterConfigsResourceResponse))

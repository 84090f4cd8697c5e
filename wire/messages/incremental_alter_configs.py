"""IncrementalAlterConfigs, API key 44: change single settings (KIP-339).

v1 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT8, INT16, INT32, STRING, array, message, struct, wire


@struct
class AlterableConfig:
    """One change."""

    name: str = wire(STRING)
    config_operation: int = wire(INT8)  # 0 set, 1 delete, 2 append to a list, 3 take from a list
    value: str | None = wire(STRING, nullable="0+")


@struct
class AlterConfigsResource:
    """The changes of one resource."""

    # ConfigResource.Type: 2 topic, 4 broker, 8 logger, 16 client metrics, 32 group
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: list[AlterableConfig] = wire(array(AlterableConfig))


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """The changes. Each resource succeeds or fails on its own."""

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


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    responses: list[AlterConfigsResourceResponse] = wire(array(AlterConfigsResourceResponse))

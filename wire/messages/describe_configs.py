"""DescribeConfigs, API key 32: settings of topics, brokers and other resources.

v1 returns the source of each value and its synonyms (KIP-226).
v3 returns types and documentation (KIP-569).
v4 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT8, INT16, INT32, STRING, array, message, struct, wire


@struct
class DescribeConfigsResource:
    """A resource and the settings to describe."""

    # ConfigResource.Type: 2 topic, 4 broker, 8 logger, 16 client metrics, 32 group
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: list[str] | None = wire(array(STRING), nullable="0+")  # None: all


@message(ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """The resources to describe."""

    resources: list[DescribeConfigsResource] = wire(array(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOL)
    include_documentation: bool = wire(BOOL, "3+")  # KIP-569


@struct
class DescribeConfigsSynonym:
    """A key that a value may come from, most specific first."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")
    source: int = wire(INT8)  # as config_source


@struct
class DescribeConfigsResourceResult:
    """One setting."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")  # None: sensitive, or none set
    read_only: bool = wire(BOOL)
    # 1 topic, 2 broker, 3 all brokers, 4 static, 5 default, 6 logger, 7 client, 8 group
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOL)
    synonyms: list[DescribeConfigsSynonym] = wire(array(DescribeConfigsSynonym))
    # 1 bool, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password (KIP-569)
    config_type: int = wire(INT8, "3+", ignorable=True)
    documentation: str | None = wire(STRING, "3+", nullable="0+", ignorable=True)  # KIP-569


@struct
class DescribeConfigsResult:
    """The settings of one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    # ConfigResource.Type: 2 topic, 4 broker, 8 logger, 16 client metrics, 32 group
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: list[DescribeConfigsResourceResult] = wire(array(DescribeConfigsResourceResult))


@message(ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """The settings. Each resource succeeds or fails on its own."""

    throttle_time_ms: int = wire(INT32)
    results: list[DescribeConfigsResult] = wire(array(DescribeConfigsResult))

"""DescribeConfigs 1-4: settings of topics, brokers and groups (KIP-133).

v1 adds synonyms (KIP-226), v3 types and documentation (KIP-569), v4 is flexible. Loggers (KIP-412)
are those of this process. Client metrics subscriptions (KIP-714) have settings, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from raylog.actors.config import (
    BrokerConfigs,
    ConfigSource,
    DescribedConfig,
    ResourceType,
    describe_broker,
    describe_client_metrics,
    describe_dynamic_default,
    describe_group,
    describe_topic,
    node_id_of,
)
from raylog.actors.controller.rules.topics import check_name
from raylog.actors.gateway import broker_loggers
from raylog.actors.gateway.answers import attempt
from raylog.actors.gateway.context import RequestContext
from raylog.actors.metadata.configs import broker_configs
from raylog.wire.errors import InvalidRequest
from raylog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)
"""Apache Kafka's message for an unknown resource type."""
CONFIG_STEPS = 1
"""The cost of describing one setting."""


def describe_configs(context: RequestContext, request: DescribeConfigsRequest) -> None:
    """Describe each resource once, as this broker sees it; each succeeds or fails independently."""
    response = DescribeConfigsResponse(results=[])

    def each() -> Iterator[int]:
        seen = set()
        for asked in request.resources:
            keys = tuple(asked.configuration_keys or ())
            what = (asked.resource_type, asked.resource_name, keys)
            if what not in seen:
                seen.add(what)
                result = attempt(partial(_result, context, request, asked), partial(_failed, asked))
                response.results.append(result)
                yield CONFIG_STEPS * len(result.configs)
            yield 1

    context.in_turns(each(), partial(context.reply, response))


def _failed(
    resource: DescribeConfigsResource, code: int, message: str | None
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _result(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        configs = _loggers(resource, context.gateway.broker_id)
    else:
        configs = [_config(config, request) for config in _described(context, resource)]
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_message="",
        configs=configs,
    )


def _loggers(
    resource: DescribeConfigsResource, broker_id: int
) -> list[DescribeConfigsResourceResult]:
    broker_loggers.check_described(resource.resource_name, broker_id)
    names = resource.configuration_keys
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=level,
            config_source=int(ConfigSource.BROKER_LOGGER),
            documentation="",
        )
        for name, level in broker_loggers.levels()
        if not names or name in names
    ]


def _described(context: RequestContext, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    cluster = context.gateway.cluster
    image = cluster.image
    layers = broker_configs(image, context.gateway.settings, cluster.broker_id)
    name = resource.resource_name
    keys = resource.configuration_keys or None
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_name(name)
            cluster.topic_named(name)
            return describe_topic(image.configs_of(ResourceType.TOPIC, name), layers, keys)
        case ResourceType.BROKER:
            return _described_broker(layers, name, cluster.broker_id, keys)
        case ResourceType.GROUP:
            if not name:
                raise InvalidRequest("Group name must not be empty")
            return describe_group(image.configs_of(ResourceType.GROUP, name), layers, keys)
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise InvalidRequest("Client metrics subscription name must not be empty")
            configs = image.configs_of(ResourceType.CLIENT_METRICS, name)
            return describe_client_metrics(configs, keys)
        case _:
            raise InvalidRequest(_MALFORMED)


def _described_broker(
    layers: BrokerConfigs, name: str, broker_id: int, keys: list[str] | None
) -> list[DescribedConfig]:
    if not name:
        described = describe_dynamic_default(layers.dynamic_default)
        return [config for config in described if keys is None or config.name in keys]
    node_id = node_id_of(name)
    if node_id is None:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if node_id != broker_id:
        raise InvalidRequest(
            f"Unexpected broker id, expected {broker_id} or empty string, but received {name}"
        )
    return describe_broker(layers, keys)


def _config(
    config: DescribedConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    synonyms = config.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=int(config.source),
        synonyms=[
            DescribeConfigsSynonym(name=one.name, value=one.value, source=int(one.source))
            for one in synonyms
        ],
        config_type=int(config.type),
        documentation=config.documentation if request.include_documentation else None,
    )

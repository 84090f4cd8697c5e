"""DescribeConfigs 1-4: settings of topics, brokers and groups (KIP-133).

v1 synonyms (KIP-226), v3 types and documentation (KIP-569), v4 is flexible.
Left out: loggers (KIP-412) and clients' metrics subscriptions (KIP-714), which have no settings
here.
"""

from __future__ import annotations

from functools import partial

from raylog.actors.config import (
    BrokerConfigs,
    DescribedConfig,
    ResourceType,
    describe_broker,
    describe_dynamic_default,
    describe_group,
    describe_topic,
    node_id_of,
)
from raylog.actors.controller.topics import check_name
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


def describe_configs(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe each resource as this broker sees it; each succeeds or fails on its own."""
    return DescribeConfigsResponse(
        results=[
            attempt(partial(_result, context, request, asked), partial(_failed, asked))
            for asked in request.resources
        ]
    )


def _failed(
    asked: DescribeConfigsResource, code: int, message: str | None
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


def _result(
    context: RequestContext, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        error_message="",
        configs=[_config(config, request) for config in _described(context, asked)],
    )


def _described(context: RequestContext, asked: DescribeConfigsResource) -> list[DescribedConfig]:
    cluster = context.gateway.cluster
    image = cluster.image
    layers = broker_configs(image, context.gateway.settings, cluster.broker_id)
    name = asked.resource_name
    keys = asked.configuration_keys or None
    match asked.resource_type:
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
        case other:
            raise InvalidRequest(f"resource type {other} has no settings here")


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

"""IncrementalAlterConfigs 0-1: changes single settings of a resource (KIP-339). v1 is flexible."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from raylog.actors.config import ResourceType
from raylog.actors.controller.messages import (
    AlterConfigs,
    AlterOp,
    ConfigAlteration,
    ConfigOp,
    ConfigOutcome,
)
from raylog.actors.gateway import broker_loggers
from raylog.actors.gateway.answers import attempt
from raylog.actors.gateway.config_changes import alter
from raylog.actors.gateway.context import RequestContext
from raylog.wire.errors import ErrorCode, InvalidRequest
from raylog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_OPERATIONS = {int(operation): operation for operation in AlterOp}


async def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change settings through the controller; each resource succeeds or fails independently."""
    asked = AlterConfigs([], request.validate_only)
    outcomes: list[ConfigOutcome] = []
    broker_id = context.gateway.broker_id

    def read() -> Iterator[int]:
        for resource in request.resources:
            attempt(
                partial(_take, resource, asked.alterations, broker_id),
                partial(_refuse, resource, outcomes),
            )
            yield 1 + len(resource.configs)

    await context.turns(read())
    if asked.alterations:
        outcomes.extend(await alter(context.gateway, asked))
    return IncrementalAlterConfigsResponse(responses=[_response(one) for one in outcomes])


def _take(
    resource: AlterConfigsResource, alterations: list[ConfigAlteration], broker_id: int
) -> None:
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        changes = [(one.name, one.config_operation, one.value) for one in resource.configs]
        broker_loggers.refuse(resource.resource_name, broker_id, changes)
    ops = [ConfigOp(one.name, _operation(one), one.value) for one in resource.configs]
    alterations.append(ConfigAlteration(resource.resource_type, resource.resource_name, ops))


def _refuse(
    resource: AlterConfigsResource, outcomes: list[ConfigOutcome], code: int, message: str | None
) -> None:
    outcomes.append(
        ConfigOutcome(resource.resource_type, resource.resource_name, ErrorCode(code), message)
    )


def _operation(config: AlterableConfig) -> AlterOp:
    operation = _OPERATIONS.get(config.config_operation)
    if operation is None:
        raise InvalidRequest(f"{config.name}: operation {config.config_operation} is unknown")
    return operation


def _response(outcome: ConfigOutcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=int(outcome.error),
        error_message=outcome.message,
        resource_type=outcome.resource_type,
        resource_name=outcome.resource_name,
    )

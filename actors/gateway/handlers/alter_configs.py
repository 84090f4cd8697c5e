"""AlterConfigs 0-2: replaces all settings of a resource (KIP-133). v2 is flexible."""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.controller.messages import AlterConfigs, AlterOp, ConfigAlteration, ConfigOp
from raylog.actors.gateway.config_changes import alter
from raylog.actors.gateway.context import RequestContext
from raylog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def alter_configs(
    context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace settings through the controller; each resource succeeds or fails independently."""
    asked = AlterConfigs([], request.validate_only)

    def read() -> Iterator[int]:
        for resource in request.resources:
            asked.alterations.append(_alteration(resource))
            yield 1 + len(resource.configs)

    await context.turns(read())
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=int(outcome.error),
                error_message=outcome.message,
                resource_type=outcome.resource_type,
                resource_name=outcome.resource_name,
            )
            for outcome in await alter(context.gateway, asked)
        ]
    )


def _alteration(resource: AlterConfigsResource) -> ConfigAlteration:
    return ConfigAlteration(
        resource.resource_type,
        resource.resource_name,
        [ConfigOp(one.name, AlterOp.SET, one.value) for one in resource.configs],
        replaces=True,
    )

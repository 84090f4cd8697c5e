"""Changes settings through the Controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.actors.controller.messages import AlterConfigs, ConfigAlteration, ConfigOutcome
from raylog.actors.gateway.interceptor_trials import refused_alterations
from raylog.actors.gateway.parts import in_parts
from raylog.actors.remote import Controller
from raylog.actors.runtime.waiting import until
from raylog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor

TIMEOUT_MS = 30_000
"""For requests without their own deadline."""
SEEN_MS = 5_000
"""A committed change is answered after this time even if this gateway has not seen it."""


async def alter(gateway: GatewayActor, request: AlterConfigs) -> list[ConfigOutcome]:
    """Change settings; each resource succeeds or fails independently.

    Returns when this gateway has applied the change, or after a timeout. So the next request gets
    the new value, on any connection to this gateway.
    """

    async def ask(some: list[ConfigAlteration]) -> list[ConfigOutcome]:
        part, outcomes = await refused_alterations(gateway, request._replace(alterations=some))

        def refused(code: int, message: str | None) -> list[ConfigOutcome]:
            return [
                ConfigOutcome(one.resource_type, one.resource_name, ErrorCode(code), message)
                for one in part.alterations
            ]

        made = await gateway.controller.outcomes(
            Controller.alter_configs, part, TIMEOUT_MS, refused
        )
        return outcomes + made

    outcomes = await in_parts(
        request.alterations, ask, lambda one: (one.resource_type, one.resource_name)
    )
    cluster = gateway.cluster
    end = max((outcome.offset for outcome in outcomes), default=-1)
    await until(gateway.runtime, cluster.on_change, lambda: cluster.image.offset >= end, SEEN_MS)
    return outcomes

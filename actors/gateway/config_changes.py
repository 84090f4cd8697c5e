"""Changing settings through the Controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.actors.controller.api import AlterConfigs, ConfigAlteration, ConfigOutcome
from raylog.actors.gateway.interceptor_trials import refused_alterations
from raylog.actors.gateway.parts import in_parts
from raylog.actors.runtime.waiting import until
from raylog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor

TIMEOUT_MS = 30_000
"""The requests carry no deadline of their own."""
SEEN_MS = 5_000
"""A committed change that this gateway does not see by then is answered all the same."""


async def alter(gateway: GatewayActor, asked: AlterConfigs) -> list[ConfigOutcome]:
    """Change settings; each resource succeeds or fails on its own.

    This gateway sees the change when this returns, if in time: whoever asks next, over whatever
    connection to it, is told the new value.
    """

    async def ask(some: list[ConfigAlteration]) -> list[ConfigOutcome]:
        part, outcomes = await refused_alterations(gateway, asked._replace(alterations=some))

        def refused(code: int, message: str | None) -> list[ConfigOutcome]:
            return [
                ConfigOutcome(one.resource_type, one.resource_name, ErrorCode(code), message)
                for one in part.alterations
            ]

        made = await gateway.controller.outcomes("alter_configs", part, TIMEOUT_MS, refused)
        return outcomes + made

    outcomes = await in_parts(
        asked.alterations, ask, lambda one: (one.resource_type, one.resource_name)
    )
    cluster = gateway.cluster
    end = max((outcome.offset for outcome in outcomes), default=-1)
    await until(gateway.runtime, cluster.on_change, lambda: cluster.image.offset >= end, SEEN_MS)
    return outcomes

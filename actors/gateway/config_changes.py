"""Changing settings through the Controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.actors.controller.api import AlterConfigs, ConfigOutcome
from raylog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor

TIMEOUT_MS = 30_000
"""The requests carry no deadline of their own."""


async def alter(gateway: GatewayActor, asked: AlterConfigs) -> list[ConfigOutcome]:
    """Change settings; each resource succeeds or fails on its own."""

    def refused(code: int, message: str | None) -> list[ConfigOutcome]:
        return [
            ConfigOutcome(one.resource_type, one.resource_name, ErrorCode(code), message)
            for one in asked.alterations
        ]

    return await gateway.controller.outcomes("alter_configs", asked, TIMEOUT_MS, refused)

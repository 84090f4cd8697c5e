"""Tries interceptors with new options before the options are set.

If interceptors refused their options later, the topic could not be written to, and only its
producers would notice. The Controller runs no code of plug-ins; it checks only names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from raylog.actors.config import INTERCEPTOR_KEYS_PREFIX
from raylog.actors.controller.messages import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOutcome,
    NewTopic,
    TopicOutcome,
)
from raylog.actors.controller.rules.configs import ConfigControl
from raylog.actors.gateway.interception import wanted_by
from raylog.actors.interceptors.learning import have_learned
from raylog.actors.runtime.base import PeerTimeout
from raylog.wire.errors import InvalidConfig, KafkaError

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor


async def refused_topics(
    gateway: GatewayActor, topics: list[NewTopic]
) -> tuple[list[NewTopic], list[TopicOutcome]]:
    """Remove the topics whose interceptors would not work, and return their outcomes as well."""
    kept = []
    refused = []
    for topic in topics:
        configs = {name: value for name, value in topic.configs.items() if value is not None}
        try:
            await _try(gateway, topic.name, configs)
        except InvalidConfig as failure:
            refused.append(TopicOutcome(topic.name, error=failure.code, message=failure.message))
        else:
            kept.append(topic)
    return kept, refused


async def refused_alterations(
    gateway: GatewayActor, request: AlterConfigs
) -> tuple[AlterConfigs, list[ConfigOutcome]]:
    """Remove the changes that interceptors refuse, and return their outcomes as well."""
    kept = []
    refused = []
    for one in request.alterations:
        try:
            await _try_alteration(gateway, one)
        except InvalidConfig as failure:
            refused.append(
                ConfigOutcome(one.resource_type, one.resource_name, failure.code, failure.message)
            )
        else:
            kept.append(one)
    return request._replace(alterations=kept), refused


async def _try_alteration(gateway: GatewayActor, alteration: ConfigAlteration) -> None:
    if not any(op.name.startswith(INTERCEPTOR_KEYS_PREFIX) for op in alteration.ops):
        return
    await have_learned(gateway.runtime, (INTERCEPTOR_KEYS_PREFIX,))
    try:
        configs = ConfigControl(gateway.cluster.image, gateway.settings).after(alteration)
    except KafkaError:
        return  # the Controller reports this, and may have newer metadata
    await _try(gateway, alteration.resource_name, configs)


async def _try(gateway: GatewayActor, topic: str, configs: Mapping[str, str]) -> None:
    wanted = wanted_by(topic, configs)
    if wanted is None:
        return
    await have_learned(gateway.runtime, (INTERCEPTOR_KEYS_PREFIX,))
    from raylog.actors.interceptors.loading import load_chain

    settings = gateway.settings
    timeout_ms = settings.number("raylog.interceptors.timeout.ms")
    files_dir = settings.raw("raylog.interceptors.files.dir")
    try:
        await gateway.runtime.run_foreign(load_chain, wanted, files_dir, timeout_ms=timeout_ms)
    except KafkaError as failure:
        raise InvalidConfig(failure.message) from failure
    except PeerTimeout as late:
        names = ", ".join(wanted.names)
        raise InvalidConfig(
            f"interceptors {names} took more than {timeout_ms} ms to be configured"
        ) from late

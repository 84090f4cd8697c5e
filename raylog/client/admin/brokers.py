"""Asking one broker, chosen by its id."""

from __future__ import annotations

from typing import TypeVar

from raylog.client.core import Core
from raylog.client.errors import NotConnected
from raylog.wire.errors import BrokerIdNotRegistered

R = TypeVar("R")


async def live_broker(core: Core, broker: int | str) -> int:
    """The id of a broker in the metadata, which is asked for anew unless it has the broker.

    Raises BrokerIdNotRegistered.
    """
    if not _is_known(core, broker):
        await core.refresh([])
        if not _is_known(core, broker):
            live = ", ".join(map(str, sorted(core.cluster.nodes)))
            raise BrokerIdNotRegistered(
                f"expected one of the live brokers {live}, found {broker!r}"
            )
    return int(broker)


async def ask_broker(core: Core, broker: int | str, request: object, expected: type[R]) -> R:
    """Ask one broker what changes nothing, again if the answer was lost.

    Raises BrokerIdNotRegistered.
    """

    async def attempt() -> R:
        return await core.ask(await reached_broker(core, broker), request, expected)

    return await core.look(attempt)


async def reached_broker(core: Core, broker: int | str) -> int:
    """As `live_broker`, with a connection; the metadata is refreshed if there can be none."""
    broker_id = await live_broker(core, broker)
    try:
        await core.api_versions(broker_id)
    except NotConnected:
        await core.refresh([])
        raise
    return broker_id


def _is_known(core: Core, broker: int | str) -> bool:
    return str(broker) in map(str, core.cluster.nodes)

"""Requests to one broker, chosen by its id."""

from __future__ import annotations

from typing import TypeVar

from raylog.client.core import Core
from raylog.wire.errors import BrokerIdNotRegistered

R = TypeVar("R")


async def live_broker(core: Core, broker: int | str) -> int:
    """Return the id of a broker in the metadata; refresh the metadata if it lacks the broker.

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
    """Send a read-only request to one broker; repeat it if the answer was lost.

    Raises BrokerIdNotRegistered.
    """

    async def attempt() -> R:
        return await core.ask(await reached_broker(core, broker), request, expected)

    return await core.look(attempt)


async def reached_broker(core: Core, broker: int | str) -> int:
    """Connect to a broker and return its id, like `live_broker`; on failure refresh metadata."""
    return await core.reached(await live_broker(core, broker))


def _is_known(core: Core, broker: int | str) -> bool:
    return str(broker) in map(str, core.cluster.nodes)

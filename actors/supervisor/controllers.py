"""Calling the controller from outside: brokers tell which actor it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from raylog.actors.names import broker_name
from raylog.actors.remote import Broker, call
from raylog.actors.runtime.base import PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import InvalidRequest, KafkaError

T = TypeVar("T")
CALL_TIMEOUT_MS = 5_000


async def by_controller(
    runtime: Runtime,
    cluster_id: str,
    broker_ids: Iterable[int],
    ask: Callable[[str], Awaitable[T]],
) -> T:
    """Return the result of `ask` for the controller, trying those that the brokers name in order.

    Raises PeerLost if no broker names one that serves, and InvalidRequest if one refuses.
    """
    why: object = "there is no broker to ask"
    for broker_id in broker_ids:
        broker = broker_name(cluster_id, broker_id)
        try:
            name = await call(runtime, broker, Broker.controller, timeout_ms=CALL_TIMEOUT_MS)
            return await ask(name)
        except InvalidRequest:
            raise
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            why = f"broker {broker_id}: {failure}"
    raise PeerLost(f"no broker knows a controller that serves: {why}")

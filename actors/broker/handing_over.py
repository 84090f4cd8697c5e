"""Giving leadership up before a shutdown, while a controller answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from raylog.actors.broker.succession import Succession
from raylog.actors.controller.api import BrokerHeartbeatAnswer
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import KafkaError, StaleBrokerEpoch

log = logging.getLogger(__name__)
HAND_OVER_MS = 10_000
_PAUSE_S = 0.05


async def hand_over(
    runtime: Runtime,
    ask: Callable[[], Awaitable[BrokerHeartbeatAnswer]],
    succession: Succession,
    ensure_controller: Callable[[], Awaitable[None]],
) -> None:
    """Have the controller move leadership away; returns when it has, or cannot within a time.

    `ask` is a heartbeat that says the broker wants to shut down. A controller that does not answer
    is waited for (`ensure_controller`) where others may take over for it.
    """
    deadline_ms = runtime.monotonic_ms() + HAND_OVER_MS
    while runtime.monotonic_ms() < deadline_ms:
        try:
            answer = await ask()
        except (PeerLost, PeerTimeout, ActorGone, KafkaError) as failure:
            if not succession.is_shared or isinstance(failure, StaleBrokerEpoch):
                log.warning("stopping without the controller: %s", failure)
                return
            await ensure_controller()
        else:
            if answer.should_shut_down:
                return
        await runtime.sleep(_PAUSE_S)

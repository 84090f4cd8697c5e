"""Hands leadership over before a shutdown, as long as a controller answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from raylog.actors.broker.succession import Succession
from raylog.actors.controller.messages import BrokerHeartbeatAnswer
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
    """Let the controller move leadership away; return when it has, or after HAND_OVER_MS.

    `ask` sends a heartbeat that requests the shutdown. If the controller does not answer and other
    voters may start a successor, `ensure_controller` looks for that one.
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

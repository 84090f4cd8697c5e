"""SIGTERM handling: brokers end first, then the processes that serve them.

| process                 | on SIGTERM                                                             |
|-------------------------|------------------------------------------------------------------------|
| broker                  | hands leadership over, ends its children, closes the logs, then ends   |
| child of a broker       | goes on while its broker shuts down and ends it; stops at once if the  |
|                         | broker does not shut down                                              |
| controller              | serves for `CONTROLLER_S`, so that brokers of its machine can hand over|
| supervisor              | ends                                                                   |

This takes `drain.timeout.ms` at most. A second SIGTERM ends the process at once. Ray starts brokers
and controllers again; to prevent that, hold the broker (`supervisor.notes`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Protocol, cast

from raylog.actors.names import BROKER, CONTROLLER, SUPERVISOR, broker_name, host_of
from raylog.actors.runtime.base import Actor, ActorGone, ActorSpec, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
DRAIN_MS = 25_000
"""Below the 30 s that Kubernetes gives a pod."""
CONTROLLER_S = 3.0
BROKER_ENDS_WITHIN_S = 2.0
"""How long a broker may take to report that it shuts down, too."""
ASK_MS = 1_000
LOOK_S = 0.1
EXIT_CODE = 143
"""A shell's exit code for SIGTERM."""


class Drains(Protocol):
    """A shell that can shut down in order."""

    async def shutdown(self) -> None:
        """Hand over and close everything."""

    async def stop(self) -> None:
        """Release what is left."""


class Termination:
    """Ends a process in order, once."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end_in_order: Callable[[], asyncio.Task[None]],
        exit_now: Callable[[int], object] = os._exit,
    ) -> None:
        self._loop = loop
        self._end_in_order = end_in_order
        self._exit_now = exit_now
        self._was_signalled = False
        self._ending: asyncio.Task[None] | None = None

    def on_signal(self) -> None:
        """Handle a SIGTERM; may be called from any thread."""
        if self._was_signalled:
            self._exit_now(EXIT_CODE)
        self._was_signalled = True
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._ending = self._end_in_order()


async def end_in_order(spec: ActorSpec, actor: Actor, runtime: Runtime) -> None:
    """Shut an actor down; return when its process may end, whatever goes wrong."""
    log.warning("%s got SIGTERM and shuts down", spec.name)
    timeout_s = (spec.drain_ms or DRAIN_MS) / 1_000
    try:
        async with asyncio.timeout(timeout_s):
            await _drain(spec, actor, runtime)
    except TimeoutError:
        log.warning("%s has not ended in order within %g s", spec.name, timeout_s)
    except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
        log.warning("%s does not end in order: %s", spec.name, failure)
    except Exception:  # half shut down it would serve nobody and not be restarted
        log.exception("%s does not end in order", spec.name)


async def _drain(spec: ActorSpec, actor: Actor, runtime: Runtime) -> None:
    if spec.role == BROKER:
        await cast(Drains, actor).shutdown()
    elif spec.role == CONTROLLER:
        await runtime.sleep(CONTROLLER_S)
    elif spec.role != SUPERVISOR:
        await _while_broker_ends(spec, runtime)
    await actor.stop()


async def _while_broker_ends(spec: ActorSpec, runtime: Runtime) -> None:
    """Wait while the broker shuts down and ends this process; return if it does not."""
    cluster_id, _, broker_id, _ = host_of(spec.name).split("/")
    broker = broker_name(cluster_id, int(broker_id))
    until_ms = runtime.monotonic_ms() + 1_000 * BROKER_ENDS_WITHIN_S
    while True:
        try:
            pong: dict[str, object] = await runtime.call(broker, "ping", timeout_ms=ASK_MS)
        except PeerLost:
            return
        except PeerTimeout:
            pong = {}
        if pong.get("state") == "shut down":
            return
        if pong.get("state") == "shutting down":
            until_ms = runtime.monotonic_ms() + 1_000 * BROKER_ENDS_WITHIN_S
        elif runtime.monotonic_ms() > until_ms:
            return
        await runtime.sleep(LOOK_S)

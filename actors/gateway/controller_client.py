"""Calls to the controller with a deadline, retried when it restarts or is replaced."""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the gateway's shell: a call is given up for another
import logging
from collections.abc import Callable
from typing import TypeVar

from raylog.actors.gateway.answers import attempt_async
from raylog.actors.gateway.cluster import ClusterView
from raylog.actors.names import controller_name
from raylog.actors.remote import Method, T, Ts, call
from raylog.actors.runtime.base import PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import NotController, RequestTimedOut

log = logging.getLogger(__name__)
A = TypeVar("A")
R = TypeVar("R")
RETRY_MS = 100
TIMEOUT_MIN_MS = 1_000
"""Clients may send a timeout of 0, but a call takes some time."""
TIMEOUT_MAX_MS = 300_000


class ControllerClient:
    """Calls the controller that the metadata names."""

    def __init__(self, runtime: Runtime, cluster_id: str, cluster: ClusterView) -> None:
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._cluster = cluster

    @property
    def _name(self) -> str:
        return self._cluster.image.controller or controller_name(self._cluster_id)

    async def ask(self, method: Method[*Ts, T], *args: *Ts, timeout_ms: int) -> T:
        """Call a method; retry if the controller restarts in the meantime.

        Raises what the method raises, and RequestTimedOut at the deadline. A retried call may
        already have taken effect: a topic then already exists, as with forwarded requests in Kafka.
        """
        timeout_ms = min(max(timeout_ms, TIMEOUT_MIN_MS), TIMEOUT_MAX_MS)
        deadline = self._runtime.monotonic_ms() + timeout_ms
        while True:
            left = deadline - self._runtime.monotonic_ms()
            try:
                return await self._call(method, *args, timeout_ms=max(1, int(left)))
            except (PeerLost, NotController) as absent:
                if left <= RETRY_MS:
                    raise RequestTimedOut(
                        f"the controller did not answer {method} within {timeout_ms} ms"
                    ) from absent
                log.info("%s is asked again: %s", method, absent)
            except PeerTimeout as late:
                raise RequestTimedOut(str(late)) from late
            await self._runtime.sleep(RETRY_MS / 1000)

    async def _call(self, method: Method[*Ts, T], *args: *Ts, timeout_ms: int) -> T:
        """Call once; raises PeerLost if the metadata names another controller in the meantime.

        The old controller may be cut off or stopped: it would not respond, or its response would be
        invalid.
        """
        name = self._name
        calling = asyncio.ensure_future(
            call(self._runtime, name, method, *args, timeout_ms=timeout_ms)
        )
        left_behind = False

        def changed() -> None:
            nonlocal left_behind
            if self._name != name and not left_behind:
                left_behind = True
                calling.cancel()

        unwatch = self._cluster.on_change(changed)
        try:
            return await calling
        except asyncio.CancelledError:
            if not left_behind:
                calling.cancel()
                raise
            raise PeerLost(f"another controller came before {method} was answered") from None
        finally:
            unwatch()

    async def outcomes(
        self,
        method: Method[A, list[R]],
        argument: A,
        timeout_ms: int,
        refused: Callable[[int, str | None], list[R]],
    ) -> list[R]:
        """Return the outcomes of a method, or those of `refused` if it raises for all of them."""
        return await attempt_async(self.ask(method, argument, timeout_ms=timeout_ms), refused)

"""Asking the Controller, with a deadline, through its restarts and from one to the next."""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the gateway's shell: a call is given up for another
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from raylog.actors.gateway.answers import attempt_async
from raylog.actors.gateway.cluster import ClusterView
from raylog.actors.names import controller_name
from raylog.actors.runtime.base import PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import NotController, RequestTimedOut

log = logging.getLogger(__name__)
R = TypeVar("R")
RETRY_MS = 100
TIMEOUT_MIN_MS = 1_000
"""Clients may ask with timeout 0; a call needs some time to get there and back."""
TIMEOUT_MAX_MS = 300_000


class ControllerClient:
    """The Controller as a gateway sees it: the one that the metadata names."""

    def __init__(self, runtime: Runtime, cluster_id: str, cluster: ClusterView) -> None:
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._cluster = cluster

    @property
    def _name(self) -> str:
        return self._cluster.image.controller or controller_name(self._cluster_id)

    async def ask(self, method: str, argument: object, timeout_ms: int) -> Any:
        """Call a method, again if the Controller restarts meanwhile; one without argument by None.

        Raises what the method raises, RequestTimedOut at the deadline. A call that is repeated may
        have taken effect before: then a topic exists already, as with Kafka's forwarded requests.
        """
        timeout_ms = min(max(timeout_ms, TIMEOUT_MIN_MS), TIMEOUT_MAX_MS)
        deadline = self._runtime.monotonic_ms() + timeout_ms
        arguments = () if argument is None else (argument,)
        while True:
            left = deadline - self._runtime.monotonic_ms()
            try:
                return await self._call(method, arguments, max(1, int(left)))
            except (PeerLost, NotController) as absent:
                if left <= RETRY_MS:
                    raise RequestTimedOut(
                        f"the controller did not answer {method} within {timeout_ms} ms"
                    ) from absent
                log.info("%s is asked again: %s", method, absent)
            except PeerTimeout as late:
                raise RequestTimedOut(str(late)) from late
            await self._runtime.sleep(RETRY_MS / 1000)

    async def _call(self, method: str, arguments: tuple[object, ...], timeout_ms: int) -> Any:
        """One call; raises PeerLost when another controller comes meanwhile.

        One that is cut off or held up would not answer, or its answer would not count.
        """
        name = self._name
        calling = asyncio.ensure_future(
            self._runtime.call(name, method, *arguments, timeout_ms=timeout_ms)
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
        method: str,
        argument: object,
        timeout_ms: int,
        refused: Callable[[int, str | None], list[R]],
    ) -> list[R]:
        """The outcomes that a method answers; those of `refused` where it refuses all at once."""
        return await attempt_async(self.ask(method, argument, timeout_ms), refused)
